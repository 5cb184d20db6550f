//! One connection through the proxy.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::lane::Lane;
use super::rules::{Fate, Rules, Then, Way};

/// A client's connection and the one to the server that belongs to it.
pub(super) struct Link {
    client: TcpStream,
    server: TcpStream,
    number: usize,
}

/// The replies that the server still owes, in their order.
#[derive(Debug, Default)]
pub(super) struct Owed {
    fates: Mutex<VecDeque<Fate>>,
    cut: Notify,
}

impl Link {
    pub(super) fn new(client: TcpStream, server: TcpStream, number: usize) -> Self {
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        Self {
            client,
            server,
            number,
        }
    }

    /// Carries both directions until both have ended, or the connection is reset.
    pub(super) async fn run(mut self, rules: &Rules) {
        rules.opened();
        let owed = Owed::default();
        let (from_client, to_client) = self.client.split();
        let (from_server, to_server) = self.server.split();
        let there = Lane::new(Way::There, (from_client, to_server), rules, &owed);
        let back = Lane::new(Way::Back, (from_server, to_client), rules, &owed);
        tokio::select! {
            _ = async { tokio::join!(there.run(), back.run()) } => {}
            () = rules.cut_off(self.number) => self.reset(),
            () = owed.cut.notified() => self.reset(),
        }
        rules.ended();
    }

    fn reset(&self) {
        let _ = (self.client.set_zero_linger(), self.server.set_zero_linger());
    }
}

impl Owed {
    pub(super) fn add(&self, fate: Fate) {
        self.fates().push_back(fate);
    }

    pub(super) fn take(&self) -> Fate {
        self.fates().pop_front().unwrap_or(Fate::Pass)
    }

    /// A reply was lost.
    pub(super) fn lost(&self, then: Then) {
        if then == Then::Cut {
            self.cut.notify_one();
        }
    }

    fn fates(&self) -> std::sync::MutexGuard<'_, VecDeque<Fate>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
