//! A minimal client of a Redis server: one command at a time over a unix socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long a server may take for one command of a test.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Resp {
    stream: BufReader<UnixStream>,
}

impl Resp {
    pub(crate) fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a command. The inner result is the server's: its reply as text, one line for each
    /// element, or its error.
    pub(crate) fn call(&mut self, args: &[&str]) -> io::Result<Result<String, String>> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Result<String, String>> {
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
            // The reply may be null.
            "$" if rest == "-1" => Ok(String::new()),
            "$" => {
                let mut bytes = vec![0; count()? as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                let text = bytes.strip_suffix(b"\r\n").unwrap_or(&bytes);
                Ok(String::from_utf8_lossy(text).into_owned())
            }
            "*" => {
                let mut lines = Vec::new();
                for _ in 0..count()?.max(0) {
                    match self.reply()? {
                        Ok(text) => lines.push(text),
                        Err(error) => return Ok(Err(error)),
                    }
                }
                Ok(lines.join("\n"))
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}
