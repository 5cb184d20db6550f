//! The fenced resource, which rejects a token that is smaller than the largest it has seen.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::history::{FencedWrite, Journal, Note};

/// The largest token of each name.
type Largest = Mutex<BTreeMap<String, u64>>;

/// Starts a resource that records its decisions, and returns its port. It serves as long as the campaign runs.
pub(crate) fn start(journal: Arc<Journal>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let largest = Arc::<Largest>::default();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (largest, journal) = (Arc::clone(&largest), Arc::clone(&journal));
            // It ends with its connection, and the connection with the holder.
            thread::spawn(move || serve(stream, &largest, &journal));
        }
    });
    port
}

/// Decides on each request: a process, a hold, a name and a token.
fn serve(stream: TcpStream, largest: &Largest, journal: &Journal) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut replies = stream.try_clone()?;
    for line in BufReader::new(stream).lines() {
        // A killed holder may leave a part of a line.
        let request: (String, u64, String, u64) = serde_json::from_str(&line?)?;
        let (process, hold, name, token) = request;
        let mut largest = largest.lock().unwrap();
        let seen = largest.entry(name.clone()).or_default();
        let accepted = token >= *seen;
        *seen = token.max(*seen);
        // In the order of the decisions.
        journal.record(&Note::Wrote(FencedWrite {
            process,
            hold,
            name,
            token,
            accepted,
        }));
        drop(largest);
        replies.write_all(if accepted {
            b"accepted\n"
        } else {
            b"rejected\n"
        })?;
    }
    Ok(())
}
