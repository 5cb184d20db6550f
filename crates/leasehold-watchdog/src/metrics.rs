//! The metrics of a node, for Prometheus.

use std::sync::{Arc, OnceLock};

use leasehold::__private::wire::Liveness;
use leasehold::clock::{BootClock, Clock as _};
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::Error;
use crate::client::WatchedClient;
use crate::shared::Shared;
use crate::status;

/// The metrics recorder. A process has one, which all its nodes share.
#[derive(Clone, Debug)]
pub(crate) struct MetricsRecorder(PrometheusHandle);

impl MetricsRecorder {
    /// Installs the recorder, unless a node has installed it before.
    ///
    /// # Errors
    ///
    /// If this process has another recorder.
    pub(crate) fn install() -> Result<Self, Error> {
        static INSTALLED: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            let recorder = PrometheusBuilder::new().build_recorder();
            let handle = recorder.handle();
            metrics::set_global_recorder(recorder).ok()?;
            describe();
            register_counters();
            Some(handle)
        });
        match installed {
            Some(handle) => Ok(Self(handle.clone())),
            None => Err(Error::new(
                "cannot serve metrics: this process has another metrics recorder",
            )),
        }
    }

    /// All metrics in the text format of Prometheus. `reachable` has the stores by their index.
    pub(crate) fn render(&self, shared: &Shared, reachable: &[bool]) -> String {
        measure(shared);
        for (store, reachable) in shared.stores.iter().zip(reachable) {
            gauge!("leasehold_watchdog_store_reachable", "store" => store.label())
                .set(f64::from(u8::from(*reachable)));
        }
        self.0.run_upkeep();
        self.0.render()
    }
}

/// Updates the gauges, which are measured only when they are rendered.
fn measure(shared: &Shared) {
    let now = BootClock.now();
    let clients = shared.clients.all();
    let state =
        |client: &Arc<WatchedClient>| status::wire_liveness(client.lock().monitor.liveness(now));
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
    let (limits, permits) = (&shared.clients.limits, &shared.permits);
    gauge!("leasehold_watchdog_clients_limit").set(limits.clients as f64);
    gauge!("leasehold_watchdog_leases").set(shared.clients.leases() as f64);
    gauge!("leasehold_watchdog_leases_limit").set(limits.leases as f64);
    gauge!("leasehold_watchdog_connections").set(permits.connections() as f64);
    gauge!("leasehold_watchdog_connections_limit").set(permits.connections_max as f64);
    gauge!("leasehold_watchdog_files").set(permits.files() as f64);
    gauge!("leasehold_watchdog_files_limit").set(permits.files_max as f64);
}

/// Sets the counters to zero: for Prometheus a counter that appears with its first event has not increased.
fn register_counters() {
    counter!("leasehold_watchdog_deaths_total").increment(0);
    counter!("leasehold_watchdog_ended_total").increment(0);
    counter!("leasehold_watchdog_refused_total").increment(0);
    for (action, result) in [
        ("renewal", "renewed"),
        ("renewal", "not_held"),
        ("renewal", "failed"),
        ("release", "not_held"),
        ("release", "failed"),
    ] {
        let actions = "leasehold_watchdog_actions_total";
        counter!(actions, "action" => action, "result" => result).increment(0);
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge};
    describe_gauge!("leasehold_watchdog_clients", "monitored clients, by state");
    describe_gauge!("leasehold_watchdog_leases", "registered leases");
    describe_gauge!("leasehold_watchdog_connections", "open connections");
    describe_gauge!(
        "leasehold_watchdog_files",
        "open files of connections and watched processes"
    );
    describe_gauge!("leasehold_watchdog_clients_limit", "the limit of clients");
    describe_gauge!("leasehold_watchdog_leases_limit", "the limit of leases");
    describe_gauge!(
        "leasehold_watchdog_connections_limit",
        "the limit of connections"
    );
    describe_gauge!("leasehold_watchdog_files_limit", "the limit of files");
    describe_gauge!(
        "leasehold_watchdog_store_reachable",
        "1 if the store replies, by store"
    );
    describe_counter!(
        "leasehold_watchdog_actions_total",
        "renewals and releases that got a reply, or failed"
    );
    describe_counter!(
        "leasehold_watchdog_deaths_total",
        "clients that died with registered leases"
    );
    describe_counter!(
        "leasehold_watchdog_ended_total",
        "clients that ended without a registered lease"
    );
    describe_counter!(
        "leasehold_watchdog_refused_total",
        "connections that the node refused: an invalid frame, a wrong token, another version, a \
         namespace without permission, or a limit"
    );
}
