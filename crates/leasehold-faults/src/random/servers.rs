//! The servers of a world: a single one, or many masters; with a proxy between each holder and each server.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use leasehold_testkit::{Proxy, RedisServer, addresses};

use super::plan::Plan;
use crate::admission::{self, is_admitted};

/// The servers of a world.
pub(super) struct Servers {
    all: Vec<Slot>,
    /// Runs beside many masters, idle until it takes over the address of one.
    spare: Option<Mutex<RedisServer>>,
    longest_ttl: Duration,
    /// When each of many masters has forgotten, until it is admitted again.
    forgotten: Mutex<Vec<Option<Instant>>>,
}

/// An address, and the server that has it.
pub(super) struct Slot {
    server: Mutex<RedisServer>,
    port: AtomicU16,
    /// The proxies of the holders.
    pub(super) links: Vec<Proxy>,
}

impl Servers {
    pub(super) fn of(plan: &Plan) -> Self {
        let many = plan.servers > 1;
        let mut options = RedisServer::options();
        if plan.durable {
            options = options.append_only();
        }
        if plan.clock {
            options = options.clock_shim();
        }
        if many {
            options = options.started_ago(admission::AGE_MS);
        }
        let count = plan.servers + usize::from(many);
        let mut servers = options.start_many(count);
        let spare = many.then(|| servers.pop()).flatten();
        let slot = |server: RedisServer| Slot {
            links: plan
                .holders
                .iter()
                .map(|_| Proxy::before(&server))
                .collect(),
            port: AtomicU16::new(server.port()),
            server: Mutex::new(server),
        };
        Self {
            forgotten: Mutex::new(vec![None; servers.len()]),
            all: servers.into_iter().map(slot).collect(),
            spare: spare.map(Mutex::new),
            longest_ttl: Duration::from_millis(plan.ttl_max_ms()),
        }
    }

    pub(super) fn all(&self) -> &[Slot] {
        &self.all
    }

    pub(super) fn majority(&self) -> usize {
        self.all.len() / 2 + 1
    }

    /// The URL by which a holder reaches them.
    pub(super) fn url_of(&self, holder: usize) -> String {
        if let [one] = &self.all[..] {
            return one.links[holder].url();
        }
        let ports = self.all.iter().map(|slot| slot.links[holder].port());
        let (hosts, longest) = (addresses("127.0.0.1", ports), self.longest_ttl.as_millis());
        format!("redlock://{hosts}?longest-ttl={longest}ms")
    }

    /// Whether a server may forget now: one of many masters only if fewer than a majority of them forget at a time. If
    /// so, it counts as one that has forgotten until it is admitted again.
    pub(super) fn may_forget(&self, nth: usize) -> bool {
        if self.all.len() == 1 {
            return true;
        }
        let mut forgotten = self.forgotten.lock().unwrap();
        for (slot, since) in self.all.iter().zip(forgotten.iter_mut()) {
            let over = |since: Instant| since.elapsed() > self.longest_ttl + admission::DRIFT;
            if since.is_some_and(over) && is_admitted(slot.port()) {
                *since = None;
            }
        }
        let others = forgotten.iter().enumerate();
        let others = others.filter(|(other, since)| *other != nth && since.is_some());
        let may = others.count() + 1 < self.majority();
        if may {
            forgotten[nth] = Some(Instant::now());
        }
        may
    }

    /// A server has just forgotten.
    pub(super) fn has_forgotten(&self, nth: usize) {
        self.forgotten.lock().unwrap()[nth] = Some(Instant::now());
    }

    /// Lets the spare server take over an address. The server that had it is emptied, and is the next spare.
    pub(super) fn replace(&self, nth: usize) {
        let mut spare = self.spare.as_ref().unwrap().lock().unwrap();
        let slot = &self.all[nth];
        let mut server = slot.server();
        std::mem::swap(&mut *server, &mut *spare);
        slot.port.store(server.port(), Ordering::Relaxed);
        for link in &slot.links {
            link.redirect(server.port());
        }
        spare.cli(&["FLUSHALL"]);
    }
}

impl Slot {
    /// The server that has the address now.
    pub(super) fn server(&self) -> MutexGuard<'_, RedisServer> {
        self.server.lock().unwrap()
    }

    /// Its port.
    pub(super) fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }
}
