//! The way to the fenced resource.

use leasehold::Token;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::history::Write;

/// A task's connection to the fenced resource. Made when it is first needed.
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
    pub(super) async fn write(&mut self, hold: u64, name: &str, token: Token) -> Write {
        let request = format!("{} {hold} {name} {token}\n", self.process);
        match self.call(&request).await {
            Ok(answer) if answer == "accepted\n" => Write::Accepted,
            Ok(answer) if answer == "refused\n" => Write::Refused,
            Ok(_) | Err(_) => {
                self.stream = None;
                Write::Unknown
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
        let mut answer = String::new();
        stream.read_line(&mut answer).await?;
        Ok(answer)
    }
}
