//! Writes to a stream that another process may have made non-blocking.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};

/// Writes all bytes to a stream, also where another process has made it non-blocking.
pub(crate) fn write_all<S: Write + AsFd>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = match bytes {
            [] => stream.flush().map(|()| 0),
            bytes => stream.write(bytes),
        };
        match written {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(stream, PollFlags::OUT)], None);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
