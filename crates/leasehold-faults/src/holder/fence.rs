//! The client of the fenced resource.

use std::io::ErrorKind;

use leasehold::Token;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// The reply to a write with a token that is too small.
pub(super) const REJECTED: &str = "rejected";

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

    /// Writes to the resource of a name under a token. Returns the reply, or an error.
    pub(super) async fn write(&mut self, hold: u64, name: &str, token: Token) -> String {
        let request = serde_json::json!([self.process, hold, name, token.get()]);
        let reply = self.call(&format!("{request}\n")).await;
        reply.unwrap_or_else(|error| {
            self.stream = None;
            error.to_string()
        })
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
        match stream.read_line(&mut reply).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(reply.trim_end().to_owned()),
        }
    }
}
