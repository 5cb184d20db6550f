//! A bucket of an S3 server, and its faults.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use leasehold_testkit::{Proxy, S3Server};

use super::plan::{LONG_TTLS_MS, PROXIED_FAULTS, Plan, any_of};
use super::server_faults::disturb;
use super::{Sequence, Store, Timed};
use crate::history::Fault;

pub(super) struct Bucket {
    server: S3Server,
    path: String,
    /// The proxies of the holders.
    links: Vec<Proxy>,
}

/// The plan of a world with such a server.
pub(super) fn draw(seed: u64, round: u64, world: u64, duration_ms: u64) -> Plan {
    let (at, links) = ([seed, round, world], PROXIED_FAULTS);
    let server_fault = |rng: &mut Rng| any_of(rng, &[Fault::StopServer]);
    Plan::draw_one(at, duration_ms, LONG_TTLS_MS, links, server_fault)
}

impl Store for Bucket {
    // Its tokens have the time of no clock.
    const HAS_TIMES: bool = false;
    const SHORT: Duration = Duration::from_secs(12);

    fn start(plan: &Plan) -> Self {
        let server = S3Server::start();
        let holders = plan.holders.iter();
        Self {
            links: holders.map(|_| Proxy::before_port(server.port())).collect(),
            path: S3Server::fresh_path(),
            server,
        }
    }

    fn url(&self, holder: usize) -> String {
        S3Server::url_at(self.links[holder].port(), &self.path)
    }

    fn inject(&self, sequence: &Sequence, timed: &Timed) {
        if let Some(holder) = sequence.holder {
            let link = &self.links[holder];
            disturb(link, timed);
            // The server handles one request at a time, and would wait for the rest of a lost one forever.
            if timed.fault == Fault::SwallowLink {
                link.cut();
            }
            return;
        }
        self.server.pause();
        thread::sleep(Duration::from_millis(timed.length_ms));
        self.server.resume();
    }
}
