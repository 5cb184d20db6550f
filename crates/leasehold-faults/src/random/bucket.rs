//! A bucket of an S3 server, and its faults.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{BucketServer, Proxy};

use super::plan::Plan;
use super::server_faults::disturb;
use super::{Sequence, Store, Timed, Usage};
use crate::clock::DriftingClock;
use crate::history::Fault;

pub(super) struct Bucket {
    server: BucketServer,
    path: String,
    /// The proxies of the holders.
    links: Vec<Proxy>,
}

impl Store for Bucket {
    // Its tokens have the time of no clock.
    const HAS_TIMES: bool = false;
    const SHORT: Duration = Duration::from_secs(12);
    const FAULTS: &'static [Fault] = &[Fault::StopServer];

    /// Another holder excludes this one by its own clock: their rates differ as far as the guarantees allow.
    fn clock(holder: usize) -> Option<DriftingClock> {
        let percent = [100, 101][holder % 2];
        Some(DriftingClock { percent })
    }

    fn start(plan: &Plan) -> Self {
        let server = BucketServer::start();
        let holders = plan.holders.iter();
        Self {
            links: holders.map(|_| Proxy::before_port(server.port())).collect(),
            path: BucketServer::fresh_path(),
            server,
        }
    }

    fn url(&self, holder: usize) -> String {
        BucketServer::url_at(self.links[holder].port(), &self.path)
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

    fn usage(&self) -> Usage {
        Usage {
            // The service of the tests collects memory by itself, and is none that users have.
            pids: Vec::new(),
            data: Vec::new(),
            entries: self.server.objects(),
        }
    }
}
