//! A healthy system, then faults: what the dashboard shows, and which alerts are active.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::files::{Query, dashboard, queries};
use super::programs::eventually;
use super::prometheus::Prometheus;
use super::system::{SERVICES, System};

/// The alerts that no fault of this check causes: one reports a bug, the other one a job that nobody has run for minutes.
const NOT_CAUSED: [&str; 2] = ["LeaseholdRenewerRestarted", "LeaseholdJobOverdue"];

/// How long a service is stopped: longer than its ttl and its fixed leases.
const STOP: Duration = Duration::from_secs(12);

/// The services that run from the start, and one that begins during a fault.
const STEADY: Range<usize> = 0..SERVICES - 1;
const FRESH: usize = SERVICES - 1;

/// The clients that died.
const DEATHS: &str = "leasehold_watchdog_deaths_total";

/// The alerts that have not been active so far.
struct Inactive(BTreeSet<String>);

/// Checks the queries in a healthy system, and the alerts under faults.
pub(super) fn check(system: &mut System) -> Result<(), String> {
    check_queries(&system.prometheus)?;
    let mut inactive = Inactive::all(&system.prometheus)?;

    println!("fault: a connection without the protocol");
    refuse(system)?;
    inactive.wait(system, &["LeaseholdWatchdogRefuses"])?;

    println!("fault: services die, one by one");
    for service in STEADY {
        let before = value(&system.prometheus, DEATHS)?;
        system.kill_service(service);
        eventually(
            "a death",
            || Ok(value(&system.prometheus, DEATHS)? > before),
        )?;
    }

    println!("fault: a stopped service");
    system.start_service(FRESH)?;
    stop_service(system, &mut inactive)?;

    println!("fault: as many clients as the node allows, and one more dies");
    for service in STEADY {
        system.start_service(service)?;
    }
    inactive.wait(system, &["LeaseholdWatchdogLimit"])?;
    registered(system, SERVICES)?;
    system.kill_service(FRESH);
    inactive.wait(system, &["LeaseholdClientsDie"])?;

    println!("fault: a stopped store, and a service dies");
    system.signal_store(Signal::STOP)?;
    system.kill_service(STEADY.start);
    let store = [
        "LeaseholdAcquisitionsFail",
        "LeaseholdJeopardyLasts",
        "LeaseholdLeaseLost",
        "LeaseholdReleasesFail",
        "LeaseholdRenewalsFail",
        "LeaseholdWatchdogActionsFail",
        "LeaseholdWatchdogStoreUnreachable",
    ];
    inactive.wait(system, &store)?;
    system.signal_store(Signal::CONT)?;

    println!("fault: no node");
    system.node = None;
    let node = ["LeaseholdWatchdogDisconnected", "LeaseholdWatchdogDown"];
    inactive.wait(system, &node)?;
    inactive.check_empty()
}

/// Checks that each query of the dashboard has data.
fn check_queries(prometheus: &Prometheus) -> Result<(), String> {
    let mut queries = queries(&dashboard()?);
    println!("{} queries of the dashboard", queries.len());
    let has_data = |query: &Query| -> Result<bool, String> {
        let values = prometheus.query(&query.expr)?;
        Ok(values.iter().any(|value| value.is_finite()))
    };
    let waited = eventually("data of each query", || {
        let mut missing = Vec::new();
        for query in std::mem::take(&mut queries) {
            if !has_data(&query)? {
                missing.push(query);
            }
        }
        queries = missing;
        Ok(queries.is_empty())
    });
    let places = queries
        .iter()
        .map(|query| format!("\n{}: {}", query.place, query.expr));
    waited.map_err(|error| error + &places.collect::<String>())
}

/// Sends something else than the protocol to the node.
fn refuse(system: &System) -> Result<(), String> {
    let mut node = system.connect_node()?;
    let sent = node.write_all(b"GET / HTTP/1.0\r\n\r\n");
    // The node ends the connection.
    let ended = sent.and_then(|()| node.read_to_end(&mut Vec::new()));
    ended.map(|_| ()).map_err(|error| error.to_string())
}

/// Stops a service that has just begun, so that most of its renewals are late. Its fixed lease expires, unless it was
/// stopped between two of them.
fn stop_service(system: &mut System, inactive: &mut Inactive) -> Result<(), String> {
    let renewals = format!(
        "sum(leasehold_renewals_total{{instance=\"{}\"}})",
        system.instance(FRESH)
    );
    let late = ["LeaseholdLeaseOverrun", "LeaseholdRenewalsLate"];
    eventually("late renewals and an expired lease", || {
        registered(system, 1)?;
        eventually("renewals", || {
            Ok(value(&system.prometheus, &renewals)? > 1.0)
        })?;
        system.signal_service(FRESH, Signal::STOP)?;
        inactive.wait(system, &["LeaseholdClientsSilent"])?;
        thread::sleep(STOP);
        system.signal_service(FRESH, Signal::CONT)?;
        let after = value(&system.prometheus, &renewals)?;
        eventually("renewals after the stop", || {
            Ok(value(&system.prometheus, &renewals)? > after + 2.0)
        })?;
        inactive.update(system)?;
        Ok(!late.iter().any(|name| inactive.0.contains(*name)))
    })
}

/// Waits until the node has so many living clients.
fn registered(system: &System, clients: usize) -> Result<(), String> {
    let alive = "sum(leasehold_watchdog_clients{state=\"alive\"})";
    eventually("registered services", || {
        Ok(value(&system.prometheus, alive)? >= clients as f64)
    })
}

/// The value of an expression with one series, or 0 without one.
fn value(prometheus: &Prometheus, expr: &str) -> Result<f64, String> {
    Ok(prometheus.query(expr)?.first().copied().unwrap_or_default())
}

impl Inactive {
    /// All alerts. None is active in a healthy system.
    fn all(prometheus: &Prometheus) -> Result<Self, String> {
        let rules = prometheus.rules()?;
        let active = rules.iter().filter(|rule| rule.active);
        let active: Vec<_> = active.map(|rule| &rule.name).collect();
        if !active.is_empty() {
            return Err(format!("active without a fault: {active:?}"));
        }
        println!("{} alerts, none is active", rules.len());
        Ok(Self(rules.into_iter().map(|rule| rule.name).collect()))
    }

    fn update(&mut self, system: &System) -> Result<(), String> {
        for rule in system.prometheus.rules()? {
            if rule.active && self.0.remove(&rule.name) {
                println!("active: {}", rule.name);
            }
        }
        Ok(())
    }

    /// Waits until each of these alerts was active.
    fn wait(&mut self, system: &System, names: &[&str]) -> Result<(), String> {
        let waited = eventually("active alerts", || {
            self.update(system)?;
            Ok(!names.iter().any(|name| self.0.contains(*name)))
        });
        waited.map_err(|error| format!("{error}: {:?}", self.0))
    }

    /// Checks that each alert was active.
    fn check_empty(mut self) -> Result<(), String> {
        self.0.retain(|name| !NOT_CAUSED.contains(&&**name));
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(format!("never active: {:?}", self.0)),
        }
    }
}
