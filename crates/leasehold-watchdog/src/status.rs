//! The status of a node's clients, for people.

use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::frame::{FRAME_MAX, encode};
use leasehold::__private::wire::{self, ClientStatus, ToClient};
use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::watchdog::Liveness;
use leasehold_core::{ClientId, Instant};

use crate::client::Client;
use crate::shared::Shared;

/// How many names of locks the status of a client contains at most.
const NAMES_MAX: usize = 3;

/// The length of the clients on a page, in bytes. A single longer client still fits into its frame.
const PAGE_MAX: usize = FRAME_MAX / 2;

/// The status of all clients at the time of the request, in pages that fit into a frame each.
#[derive(Debug)]
pub(crate) struct Pages {
    shared: Arc<Shared>,
    left: std::vec::IntoIter<ClientId>,
    /// A client that did not fit into the previous page.
    next: Option<ClientStatus>,
    over: bool,
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
            left: clients.into_iter(),
            next: None,
            over: false,
        }
    }
}

impl Iterator for Pages {
    type Item = ToClient;

    fn next(&mut self) -> Option<ToClient> {
        if self.over {
            return None;
        }
        let now = BootClock.now();
        let mut clients: Vec<_> = self.next.take().into_iter().collect();
        let mut length: usize = clients.iter().map(length).sum();
        for id in self.left.by_ref() {
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
        self.over = !more;
        Some(ToClient::Status { clients, more })
    }
}

fn length(status: &ClientStatus) -> usize {
    encode(status).map_or(PAGE_MAX, |frame| frame.len())
}

fn of(client: &Client, now: Instant) -> ClientStatus {
    let state = client.lock();
    let charge = &state.charge;
    let condition = charge.condition(now);
    let is_kept = |number: u64| charge.kept_until(number).is_some_and(|until| until > now);
    let kept = match condition {
        Liveness::Silent { .. } => {
            let kept = charge.leases().filter(|(number, ..)| is_kept(*number));
            let names = kept.map(|(_, name, _)| name.to_string());
            names.take(NAMES_MAX).collect()
        }
        _ => Vec::new(),
    };
    let why = match condition {
        Liveness::Alive => String::new(),
        _ => state.why(),
    };
    let about = client.about.clone();
    let mut status = ClientStatus::default();
    status.client = client.id.to_bytes();
    status.host = about.host;
    status.pid = about.pid;
    status.program = about.program;
    status.label = about.label;
    client.store.redacted_url().clone_into(&mut status.store);
    status.leases = u32::try_from(charge.len()).unwrap_or(u32::MAX);
    status.processes = u32::try_from(state.processes()).unwrap_or(u32::MAX);
    status.connected = charge.is_connected();
    status.known_ms = millis(now.since(client.known_since));
    status.silent_ms = millis(now.since(charge.last_heard()));
    status.condition = match condition {
        Liveness::Alive => wire::Liveness::Alive,
        Liveness::Silent { .. } => wire::Liveness::Silent,
        Liveness::Abandoned => wire::Liveness::Abandoned,
        Liveness::Unknown => wire::Liveness::Unknown,
        Liveness::Dead => wire::Liveness::Dead,
    };
    status.why = why;
    status.kept = kept;
    status
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
