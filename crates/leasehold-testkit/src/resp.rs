//! The least that can talk to a Redis server: one command at a time over a unix socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take for one command of a test.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Resp {
    stream: BufReader<UnixStream>,
}

impl Resp {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a command. The inner result is the server's: its answer as text, one line for each
    /// element, or its error.
    pub(crate) fn call(&mut self, args: &[&str]) -> io::Result<Result<String, String>> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<Result<String, String>> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).ok_or(io::ErrorKind::InvalidData)?;
        let count = || rest.parse::<i64>().map_err(io::Error::other);
        Ok(match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "-" => Err(rest.to_owned()),
            "$" => match usize::try_from(count()?) {
                Ok(len) => Ok(self.bulk(len)?),
                Err(_) => Ok(String::new()),
            },
            "*" => {
                let mut lines = Vec::new();
                for _ in 0..count()?.max(0) {
                    match self.answer()? {
                        Ok(text) => lines.push(text),
                        Err(error) => return Ok(Err(error)),
                    }
                }
                Ok(lines.join("\n"))
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }

    fn bulk(&mut self, len: usize) -> io::Result<String> {
        let mut bytes = vec![0; len + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(len);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
