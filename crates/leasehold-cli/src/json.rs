//! The output for programs: one JSON object for each command, and lines of them by `hold` and `watch`. `docs/json.md`
//! describes it, and `docs/schema/leasehold.json` is its schema.
//!
//! The order of the fields is that of the keys. What is not known is null, and its key is there.

mod hold;
mod jobs;

use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use leasehold::__private::wire::ClientStatus;
use leasehold::doctor::{Finding, Report};
use leasehold::{ClientInfo, LockEvent, LockInfo, WaiterInfo};
use serde::Serialize;

pub(crate) use self::hold::Hold;
pub(crate) use self::jobs::{Jobs, JobsReset};
use crate::event_record::EventRecord;
use crate::exit::Failure;
use crate::output;

/// The output of `ls`.
#[derive(Debug, Serialize)]
pub(crate) struct Ls<'a> {
    store: String,
    /// By the clock of this machine.
    time: Option<String>,
    locks: Vec<Lock<'a>>,
}

/// The output of `show`.
#[derive(Debug, Serialize)]
pub(crate) struct Show<'a> {
    store: String,
    name: &'a str,
    held: bool,
    lock: Option<Lock<'a>>,
}

/// The output of `release`.
#[derive(Debug, Serialize)]
pub(crate) struct Release<'a> {
    store: String,
    name: &'a str,
    released: bool,
    lock: Option<Lock<'a>>,
}

/// The output of `doctor`.
#[derive(Debug, Serialize)]
pub(crate) struct Doctor<'a> {
    store: &'a str,
    severity: &'static str,
    findings: Vec<DoctorFinding<'a>>,
    acl: Option<&'a str>,
}

/// The output of `leader`.
#[derive(Debug, Serialize)]
pub(crate) struct Leadership<'a> {
    store: String,
    name: &'a str,
    leader: Option<Leader<'a>>,
}

/// A line of `watch`.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    time: Option<String>,
    name: &'a str,
    event: &'static str,
    lease: Option<String>,
    token: Option<u64>,
    holder: Option<Client<'a>>,
    waiters: Option<usize>,
    leader: Option<Leader<'a>>,
    since: Option<String>,
}

/// The output of `watchdog status`.
#[derive(Debug, Serialize)]
pub(crate) struct WatchdogStatus<'a> {
    node: &'a str,
    clients: Vec<MonitoredClient<'a>>,
}

/// A failure of any command. It is on stderr, in one line.
#[derive(Debug, Serialize)]
struct Error<'a> {
    error: ErrorBody<'a>,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    kind: &'static str,
    message: String,
    lock: Option<&'a str>,
    store: Option<&'a str>,
    transient: bool,
    exit_code: u8,
}

/// A lock that is held, or in its minimum hold.
#[derive(Debug, Serialize)]
struct Lock<'a> {
    name: &'a str,
    lease: String,
    min_hold: bool,
    /// A number below 2^53, exact in every JSON reader.
    token: Option<u64>,
    count: u32,
    time_left_ms: u64,
    since: Option<String>,
    holder: Option<Client<'a>>,
    waiters: Vec<Waiter<'a>>,
}

/// A lease in the queue of a lock.
#[derive(Debug, Serialize)]
struct Waiter<'a> {
    lease: String,
    client: Option<Client<'a>>,
}

/// A leader.
#[derive(Debug, Serialize)]
struct Leader<'a> {
    value: &'a str,
    term: u64,
    lease: String,
    holder: Option<Client<'a>>,
}

/// The client info of a client.
#[derive(Debug, Serialize)]
struct Client<'a> {
    host: &'a str,
    pid: u32,
    program: &'a str,
    label: &'a str,
    connected_since: Option<String>,
}

#[derive(Debug, Serialize)]
struct DoctorFinding<'a> {
    severity: &'static str,
    check: &'static str,
    node: Option<&'a str>,
    observed: &'a str,
    consequence: Option<&'a str>,
    fix: Option<&'a str>,
}

/// A client of a watchdog.
#[derive(Debug, Serialize)]
struct MonitoredClient<'a> {
    id: String,
    host: &'a str,
    pid: u32,
    program: &'a str,
    label: &'a str,
    store: &'a str,
    leases: u32,
    processes: u32,
    connected: bool,
    known_ms: u64,
    silent_ms: u64,
    state: &'static str,
    reason: Option<&'a str>,
    renewed: &'a [String],
}

impl<'a> Ls<'a> {
    pub(crate) fn new(client: &leasehold::Client, locks: &'a [LockInfo]) -> Self {
        Self {
            store: client.store().to_string(),
            time: output::rfc3339(SystemTime::now()),
            locks: locks.iter().map(Lock::from).collect(),
        }
    }
}

impl<'a> Show<'a> {
    pub(crate) fn new(
        client: &leasehold::Client,
        name: &'a str,
        held: Option<&'a LockInfo>,
    ) -> Self {
        Self {
            store: client.store().to_string(),
            name,
            held: held.is_some(),
            lock: held.map(Lock::from),
        }
    }
}

impl<'a> Release<'a> {
    pub(crate) fn new(
        client: &leasehold::Client,
        name: &'a str,
        held: Option<&'a LockInfo>,
    ) -> Self {
        Self {
            store: client.store().to_string(),
            name,
            released: held.is_some(),
            lock: held.map(Lock::from),
        }
    }
}

impl<'a> Leadership<'a> {
    pub(crate) fn new(
        client: &leasehold::Client,
        name: &'a str,
        leader: Option<&'a leasehold::Leader>,
        holder: Option<&'a ClientInfo>,
    ) -> Self {
        Self {
            store: client.store().to_string(),
            name,
            leader: leader.map(|leader| Leader::new(leader, holder)),
        }
    }
}

impl<'a> Leader<'a> {
    fn new(leader: &'a leasehold::Leader, holder: Option<&'a ClientInfo>) -> Self {
        Self {
            value: &leader.value,
            term: leader.term.get(),
            lease: leader.lease.to_string(),
            holder: holder.map(Client::from),
        }
    }
}

impl<'a> From<&'a EventRecord> for Event<'a> {
    fn from(record: &'a EventRecord) -> Self {
        let (event, lease) = match &record.event {
            LockEvent::Held(lease) => ("held", Some(lease)),
            LockEvent::Free => ("free", None),
            LockEvent::Granted(lease) => ("granted", Some(lease)),
            LockEvent::Released(lease) => ("released", Some(lease)),
            LockEvent::Revoked(lease) => ("revoked", Some(lease)),
            LockEvent::Expired(lease) => ("expired", Some(lease)),
            LockEvent::QueueLength(_) => ("queue", None),
            LockEvent::LeaderChanged(_) => ("leader", None),
            LockEvent::Completed(_) => ("completed", None),
            LockEvent::Unobserved(_) => ("unobserved", None),
            LockEvent::Observed => ("observed", None),
            // Of a newer library.
            _ => ("other", None),
        };
        Self {
            time: output::rfc3339(record.time),
            name: &record.name,
            event,
            lease: lease.map(ToString::to_string),
            token: match &record.event {
                LockEvent::Completed(token) => Some(token.get()),
                _ => None,
            },
            holder: record.client.as_ref().map(Client::from),
            waiters: match &record.event {
                LockEvent::QueueLength(waiters) => Some(*waiters),
                _ => None,
            },
            leader: match &record.event {
                LockEvent::LeaderChanged(leader) => {
                    leader.as_ref().map(|leader| Leader::new(leader, None))
                }
                _ => None,
            },
            since: record.unobserved_since().and_then(output::rfc3339),
        }
    }
}

impl<'a> From<&'a Report> for Doctor<'a> {
    fn from(report: &'a Report) -> Self {
        Self {
            store: &report.store,
            severity: report.severity().as_str(),
            findings: report.findings.iter().map(DoctorFinding::from).collect(),
            acl: report.acl.as_deref(),
        }
    }
}

impl<'a> From<&'a Finding> for DoctorFinding<'a> {
    fn from(finding: &'a Finding) -> Self {
        Self {
            severity: finding.severity.as_str(),
            check: finding.check,
            node: finding.node.as_deref(),
            observed: &finding.observed,
            consequence: finding.consequence.as_deref(),
            fix: finding.fix.as_deref(),
        }
    }
}

impl<'a> WatchdogStatus<'a> {
    pub(crate) fn new(node: &'a str, clients: &'a [ClientStatus]) -> Self {
        let clients = clients.iter().map(MonitoredClient::from).collect();
        Self { node, clients }
    }
}

impl<'a> From<&'a ClientStatus> for MonitoredClient<'a> {
    fn from(status: &'a ClientStatus) -> Self {
        Self {
            id: format!("{:032x}", u128::from_be_bytes(status.client)),
            host: &status.host,
            pid: status.pid,
            program: &status.program,
            label: &status.label,
            store: &status.store,
            leases: status.leases,
            processes: status.processes,
            connected: status.connected,
            known_ms: status.known_ms,
            silent_ms: status.silent_ms,
            state: status.liveness.as_str(),
            reason: Some(&*status.reason).filter(|reason| !reason.is_empty()),
            renewed: &status.renewed,
        }
    }
}

impl<'a> From<&'a LockInfo> for Lock<'a> {
    fn from(info: &'a LockInfo) -> Self {
        Self {
            name: &info.name,
            lease: info.lease.to_string(),
            min_hold: info.min_hold,
            token: info.token.map(|token| token.get()),
            count: info.count,
            time_left_ms: millis(info.time_left),
            since: info.since.and_then(output::rfc3339),
            holder: info.client.as_ref().map(Client::from),
            waiters: info.waiters.iter().map(Waiter::from).collect(),
        }
    }
}

impl<'a> From<&'a WaiterInfo> for Waiter<'a> {
    fn from(waiter: &'a WaiterInfo) -> Self {
        Self {
            lease: waiter.lease.to_string(),
            client: waiter.client.as_ref().map(Client::from),
        }
    }
}

impl<'a> From<&'a ClientInfo> for Client<'a> {
    fn from(client: &'a ClientInfo) -> Self {
        Self {
            host: &client.host,
            pid: client.pid,
            program: &client.program,
            label: &client.label,
            connected_since: output::rfc3339(client.since),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Whether arguments that the parser refuses request JSON. Behind `run`, `once` and `elect` are those of another command.
pub(crate) fn is_requested(args: impl Iterator<Item = OsString>) -> bool {
    args.take_while(|arg| arg != "run" && arg != "once" && arg != "elect" && arg != "--")
        .any(|arg| arg == "--json")
}

/// Prints an object over several lines, for people as well.
pub(crate) fn print(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(unwritable)?;
    output::print_line(&escaped(&text))
}

/// Prints a failure to stderr, in one line. `lock` is the name in the arguments.
pub(crate) fn report(failure: &Failure, lock: Option<&str>) {
    let error = failure.library_error();
    let body = ErrorBody {
        kind: failure.kind(),
        message: failure.to_string(),
        lock: error.and_then(leasehold::Error::lock).or(lock),
        store: error.and_then(leasehold::Error::store),
        transient: failure.is_transient(),
        exit_code: failure.code(),
    };
    match to_line(&Error { error: body }) {
        Ok(line) => note!("{line}"),
        Err(_) => failure.report(),
    }
}

/// An object in one line.
pub(crate) fn to_line(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(unwritable)?;
    Ok(escaped(&text))
}

fn unwritable(error: serde_json::Error) -> Failure {
    Failure::own("the output cannot be written as JSON", error)
}

/// Writes invisible characters, which are in strings only, as `\u202e`: a reader gets them exactly, and a terminal
/// does not.
pub(crate) fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if c == '\n' || output::is_visible(c) {
            text.push(c);
        } else {
            let mut buffer = [0; 2];
            let units = c.encode_utf16(&mut buffer).iter();
            text.extend(units.map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_what_a_terminal_does_not() {
        let text = "a\u{1b}[31m\u{9b}\u{202e}\u{e0041}\n\u{7f}größe 🔒";
        let json = to_line(&text).unwrap();
        assert!(json.chars().all(output::is_visible), "{json}");
        assert!(json.ends_with("größe 🔒\""), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
