//! The session under any input. `cargo fuzz` runs it with inputs that it finds, the tests with inputs that they
//! generate.

use std::sync::Arc;

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::{ToClient, ToNode};
use leasehold_core::Instant;

use crate::Limits;
use crate::session::{Peer, Session, Step};
use crate::settings::{Settings, StoreSettings, Token};
use crate::shared::Shared;

/// The name of the only store.
pub const STORE: &str = "main";

/// The token that authenticates a client.
pub const TOKEN: &str = "0123456789abcdef";

const CLIENTS_MAX: usize = 3;
const LEASES_MAX: usize = 8;

/// Feeds bytes to a node through several connections in turn. The first byte of each part selects the connection,
/// the second is the length of the part.
///
/// # Panics
///
/// If a limit is exceeded, a lease is left behind, or a reply does not fit into a frame.
pub fn node(data: &[u8]) {
    run(data);
}

/// Returns the largest number of leases.
fn run(data: &[u8]) -> usize {
    let mut most = 0;
    let shared = shared();
    let mut connections: Vec<_> = (0..4).map(|_| Some(FuzzConnection::new(&shared))).collect();
    let mut rest = data;
    let mut now = 0_u64;
    while let [index, length, after @ ..] = rest {
        let (part, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        now += 1_000_000;
        let connection = &mut connections[usize::from(*index % 4)];
        // A refused connection may be opened again.
        let open = connection.get_or_insert_with(|| FuzzConnection::new(&shared));
        if !open.feed(part, Instant::from_nanos(now)) {
            *connection = None;
        }
        let clients = shared.clients.all();
        let leases: usize = clients
            .iter()
            .map(|client| client.lock().monitor.len())
            .sum();
        assert!(clients.len() <= CLIENTS_MAX);
        assert!(leases <= LEASES_MAX);
        assert_eq!(leases, shared.clients.leases());
        most = most.max(leases);
    }
    drop(connections);
    // All clients were remote, and are disconnected.
    assert!(shared.clients.all().is_empty());
    assert_eq!(shared.clients.leases(), 0);
    most
}

struct FuzzConnection {
    decoder: Decoder,
    session: Session,
}

impl FuzzConnection {
    fn new(shared: &Arc<Shared>) -> Self {
        let peer = Peer::Remote(([127, 0, 0, 1], 1).into());
        Self {
            decoder: Decoder::default(),
            session: Session::new(shared, peer),
        }
    }

    /// Returns whether the connection stays open.
    fn feed(&mut self, bytes: &[u8], now: Instant) -> bool {
        self.decoder.push(bytes);
        loop {
            let message = match self.decoder.message::<ToNode>() {
                Ok(Some(message)) => message,
                Ok(None) => return true,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return false;
                }
            };
            match self.session.handle_message(message, || None, now) {
                Step::NoReply => {}
                Step::Reply(message) => assert_fits(&message),
                Step::ReplyPages(pages) => pages.for_each(|page| assert_fits(&page)),
                Step::Refuse(_) | Step::End => return false,
            }
        }
    }
}

fn assert_fits(message: &ToClient) {
    assert!(encode(message).is_ok(), "{message:?}");
}

/// The state of a node with low limits, and one store that it never opens.
pub(crate) fn shared() -> Arc<Shared> {
    let mut store = StoreSettings::new("redis://nowhere");
    store.name = Some(STORE.to_owned());
    let mut settings = Settings::new(vec![], vec![store]);
    settings.limits = Limits {
        clients: CLIENTS_MAX,
        leases_per_client: LEASES_MAX,
        leases: LEASES_MAX,
    };
    let shared = Token::parse_file(TOKEN).and_then(|tokens| {
        settings.tokens = tokens;
        Shared::new(&settings, None)
    });
    match shared {
        Ok(shared) => shared,
        Err(error) => unreachable!("{error}"),
    }
}

#[cfg(test)]
pub(crate) mod tests;
