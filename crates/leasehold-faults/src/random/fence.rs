//! The fenced resource, which rejects a token that is smaller than the largest it has seen.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::history::{FencedWrite, Journal, Note};

/// The largest token of each name.
#[derive(Default)]
struct Seen(Mutex<BTreeMap<String, u64>>);

/// Starts a resource that records its decisions, and returns its port. It serves as long as the campaign runs.
pub(super) fn start(journal: Arc<Journal>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::new(Seen::default());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (seen, journal) = (Arc::clone(&seen), Arc::clone(&journal));
            // It ends with its connection, and the connection with the holder.
            thread::spawn(move || seen.serve(stream, &journal));
        }
    });
    port
}

impl Seen {
    fn serve(&self, stream: TcpStream, journal: &Journal) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut replies = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let Some(accepted) = self.decide(&line, journal) else {
                return Ok(());
            };
            let reply: &[u8] = if accepted {
                b"accepted\n"
            } else {
                b"rejected\n"
            };
            replies.write_all(reply)?;
        }
        Ok(())
    }

    /// Decides on a process, a hold, a name and a token, and records that in the order of the decisions.
    fn decide(&self, line: &str, journal: &Journal) -> Option<bool> {
        // A killed holder may leave a part of a line.
        let request = serde_json::from_str(line).ok()?;
        let (process, hold, name, token): (String, u64, String, u64) = request;
        let mut seen = self.0.lock().unwrap();
        let largest = seen.entry(name.clone()).or_default();
        let accepted = token >= *largest;
        *largest = token.max(*largest);
        journal.record(&Note::Wrote(FencedWrite {
            process,
            hold,
            name,
            token,
            accepted,
        }));
        Some(accepted)
    }
}
