//! A delay of the network.

use std::io::{Read as _, Result, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A port that passes everything on to another one, in order and later. It is closed when this is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    closed: Arc<AtomicBool>,
}

impl Proxy {
    pub(super) fn start(server: u16, delay: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let closed = Arc::new(AtomicBool::new(false));
        let proxy = Self {
            port,
            closed: Arc::clone(&closed),
        };
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if closed.load(Ordering::Relaxed) {
                    break;
                }
                // A client of a dead server is disconnected.
                let _ = TcpStream::connect(("127.0.0.1", server))
                    .and_then(|server| join(&client, &server, delay));
            }
        });
        Ok(proxy)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn join(client: &TcpStream, server: &TcpStream, delay: Duration) -> Result<()> {
    for (from, to) in [(client, server), (server, client)] {
        from.set_nodelay(true)?;
        let (from, to) = (from.try_clone()?, to.try_clone()?);
        thread::spawn(move || forward(from, to, delay));
    }
    Ok(())
}

/// Passes on what one side sends, until it ends.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let due = Instant::now() + delay;
        if sender.send((due, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
}
