//! The fenced resource: it refuses a token that is smaller than the largest it has seen.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::history::{Journal, Note};

/// A running resource. It serves as long as the campaign runs.
pub(super) struct Fence {
    pub(super) port: u16,
}

/// The largest token of each name.
#[derive(Default)]
struct Seen(Mutex<BTreeMap<String, u64>>);

impl Fence {
    /// Starts one that writes its decisions into a journal.
    pub(super) fn start(journal: Arc<Journal>) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let seen = Arc::new(Seen::default());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, journal) = (Arc::clone(&seen), Arc::clone(&journal));
                // It ends with its connection, and that with the holder.
                thread::spawn(move || seen.serve(stream, &journal));
            }
        });
        Ok(Self { port })
    }
}

impl Seen {
    fn serve(&self, stream: TcpStream, journal: &Journal) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut answers = stream.try_clone()?;
        for line in BufReader::new(stream).lines() {
            let line = line?;
            let Some(accepted) = self.decide(&line, journal) else {
                return Ok(());
            };
            let answer: &[u8] = if accepted {
                b"accepted\n"
            } else {
                b"refused\n"
            };
            answers.write_all(answer)?;
        }
        Ok(())
    }

    /// Decides about `PROCESS HOLD NAME TOKEN`, and writes it down in the order of the decisions.
    fn decide(&self, line: &str, journal: &Journal) -> Option<bool> {
        let mut words = line.split(' ');
        let process = words.next()?.to_owned();
        let hold = words.next()?.parse().ok()?;
        let name = words.next()?.to_owned();
        let token: u64 = words.next()?.parse().ok()?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let largest = seen.entry(name.clone()).or_default();
        let accepted = token >= *largest;
        *largest = token.max(*largest);
        journal.write(&Note::Wrote {
            process,
            hold,
            name,
            token,
            accepted,
        });
        Some(accepted)
    }
}
