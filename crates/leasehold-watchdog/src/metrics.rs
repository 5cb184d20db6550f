//! The metrics of a node, for Prometheus.

use std::sync::{Arc, OnceLock};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::watchdog::Liveness;
use metrics::gauge;

use crate::Error;
use crate::client::Client;
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::status;

/// The metrics recorder. A process has one, which all its nodes share.
#[derive(Clone, Debug)]
pub(crate) struct MetricsRecorder(Recorder);

impl MetricsRecorder {
    /// Installs the recorder, unless a node has installed it before.
    ///
    /// # Errors
    ///
    /// If this process has another recorder.
    pub(crate) fn install() -> Result<Self, Error> {
        static INSTALLED: OnceLock<Option<Recorder>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            let recorder = Recorder::default();
            metrics::set_global_recorder(recorder.clone()).ok()?;
            describe();
            Some(recorder)
        });
        match installed {
            Some(recorder) => Ok(Self(recorder.clone())),
            None => Err(Error::new(
                "cannot serve metrics: this process has another metrics recorder",
            )),
        }
    }

    /// All metrics in the text format of Prometheus.
    pub(crate) fn render(&self, shared: &Shared) -> String {
        measure(shared);
        self.0.render()
    }
}

/// Updates the gauges, which are measured only when they are rendered.
fn measure(shared: &Shared) {
    let now = BootClock.now();
    let clients = shared.clients.all();
    let state = |client: &Arc<Client>| status::wire_liveness(client.lock().monitor.liveness(now));
    let states: Vec<_> = clients.iter().map(state).collect();
    for state in [
        Liveness::Alive,
        Liveness::Silent,
        Liveness::Abandoned,
        Liveness::Unknown,
        Liveness::Dead,
    ] {
        let count = states.iter().filter(|it| **it == state).count();
        gauge!("leasehold_watchdog_clients", "state" => state.as_str()).set(count as f64);
    }
    gauge!("leasehold_watchdog_leases").set(shared.clients.leases() as f64);
    gauge!("leasehold_watchdog_connections").set(shared.permits.connections() as f64);
}

fn describe() {
    use metrics::{describe_counter, describe_gauge};
    describe_gauge!("leasehold_watchdog_clients", "monitored clients, by state");
    describe_gauge!("leasehold_watchdog_leases", "registered leases");
    describe_gauge!("leasehold_watchdog_connections", "open connections");
    describe_counter!(
        "leasehold_watchdog_actions_total",
        "renewals and releases that got a reply, or failed"
    );
    describe_counter!(
        "leasehold_watchdog_deaths_total",
        "clients whose processes have all ended while they had leases or a connection"
    );
    describe_counter!(
        "leasehold_watchdog_refused_total",
        "connections that were ended because of a message on them"
    );
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The names of metrics in a text.
    fn names(text: &str) -> BTreeSet<&str> {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        words
            .filter(|word| word.starts_with("leasehold_watchdog_"))
            .collect()
    }

    #[test]
    fn the_page_lists_every_metric() {
        let page = include_str!("../../../docs/watchdog.md");
        let (code, _) = include_str!("metrics.rs")
            .split_once("#[cfg(test)]")
            .unwrap();
        let mut own = names(code);
        // In the client.
        own.insert("leasehold_watchdog_connected");
        let (_, table) = page.split_once("## Metrics").unwrap();
        assert_eq!(names(table), own);
    }
}
