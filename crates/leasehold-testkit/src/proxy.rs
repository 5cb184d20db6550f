//! A proxy in front of a server, which does to its connections what a bad network does.
//!
//! * `frames` finds the requests and replies in a stream of bytes.
//! * `rules` are those of the test, with what was done so far.
//! * `connection` forwards one connection by these rules.

mod connection;
mod frames;
mod rules;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};

pub use self::rules::{AfterLoss, ProxyStats, Way};
use self::rules::{Flow, Plan, ProxyState, Rules};
use crate::redis::RedisServer;

/// A TCP proxy in front of a [`RedisServer`], on a port and a thread of its own.
///
/// Its rules change while connections are open. It reads the Redis protocol without TLS, so
/// before a server with TLS it has to be one of [`Proxy::before_port`]. A connection to it is always accepted, as one
/// to a server that is stopped would be.
///
/// Bytes that are held arrive later, even if their sender has gone meanwhile: so a network delivers a late
/// request. Bytes that are swallowed never arrive, nor does anything behind
/// them on the same connection, its end included: neither side is notified that the other is gone.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    server: Arc<AtomicU16>,
    rules: Arc<Rules>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy that passes everything on, until its rules change. It ends when it is dropped.
    ///
    /// The server may be killed and come back meanwhile.
    ///
    /// # Panics
    ///
    /// If the machine has no port or thread left.
    #[must_use]
    pub fn before(server: &RedisServer) -> Self {
        Self::start(server.port(), false)
    }

    /// The same before a server on this machine with another protocol: everything passes as it comes, and no
    /// request is ever found.
    ///
    /// # Panics
    ///
    /// As [`Proxy::before`].
    #[must_use]
    pub fn before_port(port: u16) -> Self {
        Self::start(port, true)
    }

    fn start(server: u16, plain: bool) -> Self {
        let rules = Arc::new(Rules::default());
        rules.update(|state| state.plain = plain);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.expect("no port is free");
        let port = listener.local_addr().expect("a bound port").port();
        listener.set_nonblocking(true).expect("a plain socket");
        let server = Arc::new(AtomicU16::new(server));
        let shared = (Arc::clone(&server), Arc::clone(&rules));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let thread = std::thread::Builder::new()
            .name("proxy".into())
            .spawn(move || runtime.block_on(serve(listener, shared.0, shared.1)));
        Self {
            port,
            server,
            rules,
            thread: Some(thread.expect("a thread")),
        }
    }

    /// The port where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server by way of the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The same for one of the server's users.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}/0", self.port)
    }

    /// Connects new clients to another server of this machine, and resets the connections to the one before:
    /// another server takes over the address.
    pub fn redirect(&self, port: u16) {
        self.server.store(port, Ordering::Relaxed);
        self.cut();
    }

    /// Holds everything back until [`Proxy::go_on`].
    pub fn hold(&self, way: Way) {
        self.rules.set(way, |rules| rules.flow = Flow::Held);
    }

    /// Swallows everything until [`Proxy::go_on`]; on the connections from which something was
    /// swallowed, for ever.
    pub fn swallow(&self, way: Way) {
        self.rules.set(way, |rules| rules.flow = Flow::Swallowed);
    }

    /// Ends [`Proxy::hold`], [`Proxy::swallow`], [`Proxy::refuse`], [`Proxy::cut_after`], [`Proxy::lose_replies`] and
    /// [`Proxy::hold_requests`], and delivers what was held back.
    pub fn go_on(&self) {
        self.rules.set(Way::Both, |rules| {
            (rules.flow, rules.bytes_left) = (Flow::Open, None);
        });
        self.rules.update(|state| {
            state.refusing = false;
            state.plans.clear();
            state.deliveries += 1;
        });
    }

    /// Resets all connections.
    pub fn cut(&self) {
        let reset = |state: &mut ProxyState| state.reset_up_to = state.stats.connections;
        self.rules.update(reset);
    }

    /// Resets every new connection immediately, until [`Proxy::go_on`].
    pub fn refuse(&self) {
        self.rules.update(|state| state.refusing = true);
    }

    /// Passes on so many more bytes this way, on all connections together, and then resets them all.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.rules.set(way, |rules| rules.bytes_left = Some(bytes));
    }

    /// Lets the next `count` requests that contain `word` run, and their replies get lost. After that
    /// the connection is silent towards the client, or is reset.
    pub fn lose_replies(&self, word: &str, count: usize, after_loss: AfterLoss) {
        self.plan(word, count, Some(after_loss));
    }

    /// Holds back the next `count` requests that contain `word`, each with all that is behind it on its
    /// connection, until [`Proxy::deliver`].
    pub fn hold_requests(&self, word: &str, count: usize) {
        self.plan(word, count, None);
    }

    /// Replaces each reply that begins with `start`, as another version of the server would reply.
    pub fn replace_replies(&self, start: &str, reply: &str) {
        let replacement = (start.to_owned(), reply.to_owned());
        self.rules
            .update(|state| state.replacement = Some(replacement));
    }

    fn plan(&self, word: &str, count: usize, lose: Option<AfterLoss>) {
        let word = word.to_owned();
        let plan = Plan { word, count, lose };
        self.rules.update(|state| state.plans.push(plan));
    }

    /// Delivers the requests that were held back, even if their sender has gone.
    pub fn deliver(&self) {
        self.rules.update(|state| state.deliveries += 1);
    }

    /// Counts the requests that contain `word`, from now on.
    pub fn count(&self, word: &str) {
        self.rules.update(|state| {
            state.counts.insert(word.to_owned(), 0);
        });
    }

    /// The number of requests that contained a word that is counted.
    #[must_use]
    pub fn counted(&self, word: &str) -> usize {
        self.rules.state().counts.get(word).copied().unwrap_or(0)
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> ProxyStats {
        self.rules.state().stats
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.rules.update(|state| state.closed = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, server: Arc<AtomicU16>, rules: Arc<Rules>) {
    let listener = TcpListener::from_std(listener).expect("a listener");
    loop {
        tokio::select! {
            () = rules.wait_for(|state| state.closed) => return,
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    tokio::spawn(forward(client, Arc::clone(&server), Arc::clone(&rules)));
                }
            }
        }
    }
}

async fn forward(client: TcpStream, server: Arc<AtomicU16>, rules: Arc<Rules>) {
    let number = rules.accepted();
    // Only now: a connection that was numbered before a redirection is reset by it.
    let server = server.load(Ordering::Relaxed);
    let server = match number {
        Some(_) => TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await.ok(),
        None => None,
    };
    match number.zip(server) {
        Some((number, server)) => connection::run(client, server, number, &rules).await,
        // Reset, not closed: as if no process listened there.
        None => drop(client.set_zero_linger()),
    }
}
