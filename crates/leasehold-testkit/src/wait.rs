//! Waiting for a state that can be observed, finding a port, and addresses of ports.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{process, thread};

/// The interval of checks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(2);

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
    found_within(deadline, || condition().then_some(())).is_some()
}

/// Waits until something is found. `None`: it is not within `deadline`.
pub fn found_within<T>(deadline: Duration, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = find();
        if found.is_some() || start.elapsed() >= deadline {
            return found;
        }
        thread::sleep(INTERVAL);
    }
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

/// The ports for servers of tests. The system gives none of them to a connection before a server listens on it.
const PORTS: Range<u32> = 20_000..32_000;

/// A port of this machine on which nobody listens at this moment, and which this process gets only once.
///
/// # Panics
///
/// If the machine has none left.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = PORTS.end - PORTS.start;
    // Processes that run side by side begin at different ports.
    let first = process::id().wrapping_mul(997) % count;
    let mut ports = (0..count).map(|_| {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PORTS.start + (first + number) % count
    });
    let free = ports.find_map(|port| {
        let port = u16::try_from(port).ok()?;
        TcpListener::bind(("127.0.0.1", port)).ok()?;
        Some(port)
    });
    free.expect("no port is free")
}

/// A host with each of these ports, as a URL has them.
pub fn addresses(host: &str, ports: impl IntoIterator<Item = u16>) -> String {
    let addresses = ports.into_iter().map(|port| format!("{host}:{port}"));
    addresses.collect::<Vec<_>>().join(",")
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
