//! Questions to a node on this machine, without a client.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Instant, LeaseId};

use super::frame::{self, Decoder};
use super::wire::{Hello, Role, ToClient, ToNode};

/// How long a node has for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Until when the node at a socket of this machine is sure that the store keeps a lease, because it renewed
/// it itself. `None`: it has not. Waits for a second at most, and blocks.
///
/// # Errors
///
/// As the system's; [`io::ErrorKind::InvalidData`] for an answer that is none.
pub fn kept_until(socket: &Path, lease: LeaseId) -> io::Result<Option<Instant>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (role, token) = (Role::Observer, None);
    let ask = ToNode::Ask {
        client: lease.client.to_bytes(),
        number: lease.number,
    };
    for word in [ToNode::Hello(Hello { token, role }), ask] {
        stream.write_all(&frame::encode(&word).map_err(io::Error::other)?)?;
    }
    let mut decoder = Decoder::default();
    loop {
        match next(&mut stream, &mut decoder)? {
            ToClient::Welcome { .. } => {}
            ToClient::Kept(until) => return Ok(until.map(Instant::from_nanos)),
            ToClient::Refused(why) => return Err(io::Error::other(why.to_string())),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

fn next(stream: &mut UnixStream, decoder: &mut Decoder) -> io::Result<ToClient> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(word) = decoder.word().map_err(io::Error::other)? {
            return Ok(word);
        }
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => decoder.push(buffer.get(..read).unwrap_or_default()),
        }
    }
}
