//! Waiting for a state that can be observed, and finding a port.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The interval of checks.
const INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds.
///
/// # Panics
///
/// If it does not within `deadline`.
#[track_caller]
pub fn eventually(deadline: Duration, condition: impl FnMut() -> bool) {
    assert!(within(deadline, condition), "not within {deadline:?}");
}

/// Waits until a condition holds. Returns whether it does within `deadline`.
pub fn within(deadline: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= deadline {
            return false;
        }
        thread::sleep(INTERVAL);
    }
    true
}

/// Waits until a condition holds, without blocking the runtime.
///
/// # Panics
///
/// If it does not within `deadline`.
pub async fn eventually_async(deadline: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !condition().await {
        assert!(start.elapsed() < deadline, "not within {deadline:?}");
        tokio::time::sleep(INTERVAL).await;
    }
}

/// A port of this machine on which nobody listens at this moment.
///
/// # Panics
///
/// If the machine has none left.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("no port is free");
    listener.local_addr().expect("a bound port").port()
}

/// Connects to a Redis server until it refuses connections, and returns the connections.
///
/// # Panics
///
/// If it does not within `deadline`, or cannot be reached.
pub fn fill_connections(port: u16, deadline: Duration) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    eventually(deadline, || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut reply = [0; 4];
        let read = stream.read(&mut reply).unwrap_or_default();
        let full = read == 0 || reply == *b"-ERR";
        if !full {
            connections.push(stream);
        }
        full
    });
    connections
}
