//! The client of the fenced resource.

use leasehold::Token;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::history::WriteOutcome;

/// A task's connection to the fenced resource, opened by the first write.
pub(super) struct Fence {
    port: u16,
    process: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Fence {
    pub(super) fn new(port: u16, process: &str) -> Self {
        Self {
            port,
            process: process.to_owned(),
            stream: None,
        }
    }

    /// Writes to the resource of a name under a token.
    pub(super) async fn write(&mut self, hold: u64, name: &str, token: Token) -> WriteOutcome {
        let request = format!("{} {hold} {name} {token}\n", self.process);
        match self.call(&request).await {
            Ok(reply) if reply == "accepted\n" => WriteOutcome::Accepted,
            Ok(reply) if reply == "rejected\n" => WriteOutcome::Rejected,
            Ok(_) | Err(_) => {
                self.stream = None;
                WriteOutcome::Unknown
            }
        }
    }

    async fn call(&mut self, request: &str) -> std::io::Result<String> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
                stream.set_nodelay(true)?;
                none.insert(BufReader::new(stream))
            }
        };
        stream.get_mut().write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_line(&mut reply).await?;
        Ok(reply)
    }
}
