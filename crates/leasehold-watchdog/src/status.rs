//! The status of a node's clients, for people.

use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::frame::{FRAME_MAX, encode};
use leasehold::__private::wire::{self, ClientStatus, ToClient};
use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::watchdog::Liveness;
use leasehold_core::{ClientId, Instant};

use crate::client::WatchedClient;
use crate::shared::Shared;

/// How many names of locks the status of a client contains at most.
const NAMES_MAX: usize = 3;

/// The length of the clients on a page, in bytes. A single longer client still fits into its frame.
const PAGE_MAX: usize = FRAME_MAX / 2;

/// The status of all clients at the time of the request, in pages that fit into a frame each.
#[derive(Debug)]
pub(crate) struct Pages {
    shared: Arc<Shared>,
    remaining: std::vec::IntoIter<ClientId>,
    /// A client that did not fit into the previous page.
    next: Option<ClientStatus>,
    done: bool,
}

impl Pages {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let clients: Vec<_> = shared
            .clients
            .all()
            .iter()
            .map(|client| client.id)
            .collect();
        Self {
            shared: Arc::clone(shared),
            remaining: clients.into_iter(),
            next: None,
            done: false,
        }
    }
}

impl Iterator for Pages {
    type Item = ToClient;

    fn next(&mut self) -> Option<ToClient> {
        if self.done {
            return None;
        }
        let now = BootClock.now();
        let mut clients: Vec<_> = self.next.take().into_iter().collect();
        let mut length: usize = clients.iter().map(length).sum();
        for id in self.remaining.by_ref() {
            let Some(client) = self.shared.clients.find(id) else {
                continue;
            };
            let status = of(&client, now);
            length += self::length(&status);
            if length > PAGE_MAX && !clients.is_empty() {
                self.next = Some(status);
                break;
            }
            clients.push(status);
        }
        let more = self.next.is_some();
        self.done = !more;
        Some(ToClient::Status { clients, more })
    }
}

fn length(status: &ClientStatus) -> usize {
    encode(status).map_or(PAGE_MAX, |frame| frame.len())
}

fn of(client: &WatchedClient, now: Instant) -> ClientStatus {
    let state = client.lock();
    let monitor = &state.monitor;
    let liveness = monitor.liveness(now);
    let is_renewed = |number: u64| monitor.kept_until(number).is_some_and(|until| until > now);
    let renewed = match liveness {
        Liveness::Silent { .. } => {
            let renewed = monitor.leases().filter(|(number, ..)| is_renewed(*number));
            let names = renewed.map(|(_, name, _)| name.to_string());
            names.take(NAMES_MAX).collect()
        }
        _ => Vec::new(),
    };
    let reason = match liveness {
        Liveness::Alive => String::new(),
        _ => state.processes.silence_reason(),
    };
    let info = client.info.clone();
    let mut status = ClientStatus::default();
    status.client = client.id.to_bytes();
    status.host = info.host;
    status.pid = info.pid;
    status.program = info.program;
    status.label = info.label;
    status.store = info.store;
    status.leases = u32::try_from(monitor.len()).unwrap_or(u32::MAX);
    status.processes = u32::try_from(state.processes.alive()).unwrap_or(u32::MAX);
    status.connected = monitor.is_connected();
    status.known_ms = millis(now.since(client.known_since));
    status.silent_ms = millis(now.since(monitor.last_received()));
    status.liveness = wire_liveness(liveness);
    status.reason = reason;
    status.renewed = renewed;
    status
}

/// The liveness of a client, as the protocol has it.
pub(crate) fn wire_liveness(liveness: Liveness) -> wire::Liveness {
    match liveness {
        Liveness::Alive => wire::Liveness::Alive,
        Liveness::Silent { .. } => wire::Liveness::Silent,
        Liveness::Abandoned => wire::Liveness::Abandoned,
        Liveness::Unknown => wire::Liveness::Unknown,
        Liveness::Dead => wire::Liveness::Dead,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
