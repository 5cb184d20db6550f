//! `leasehold watchdog status`: the clients of the node on this machine.

use std::time::Duration;

use leasehold::__private::observer::Observer;
use leasehold::__private::wire::ClientStatus;
use leasehold::watchdog::default_socket;
use leasehold::{ClientId, Error, ErrorKind};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::args::StatusArgs;
use crate::exit::Failure;
use crate::lock::watchdog::start_command;
use crate::{duration, json, output};

/// The exit code if no watchdog replies.
const NONE: u8 = 1;

/// The output of `watchdog status --json`.
#[derive(Debug, Serialize)]
struct Status<'a> {
    node: &'a str,
    clients: Vec<MonitoredClient<'a>>,
}

/// A client of a node.
#[derive(Debug)]
struct MonitoredClient<'a>(&'a ClientStatus);

impl Serialize for MonitoredClient<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(status) = self;
        let id = ClientId::from_random(status.client).to_string();
        let reason = Some(&status.reason).filter(|reason| !reason.is_empty());
        let mut fields = serializer.serialize_struct("MonitoredClient", 14)?;
        fields.serialize_field("id", &id)?;
        fields.serialize_field("host", &status.host)?;
        fields.serialize_field("pid", &status.pid)?;
        fields.serialize_field("program", &status.program)?;
        fields.serialize_field("label", &status.label)?;
        fields.serialize_field("store", &status.store)?;
        fields.serialize_field("leases", &status.leases)?;
        fields.serialize_field("processes", &status.processes)?;
        fields.serialize_field("connected", &status.connected)?;
        fields.serialize_field("known_ms", &status.known_ms)?;
        fields.serialize_field("silent_ms", &status.silent_ms)?;
        fields.serialize_field("state", status.liveness.as_str())?;
        fields.serialize_field("reason", &reason)?;
        fields.serialize_field("renewed", &status.renewed)?;
        fields.end()
    }
}

pub(super) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let mut node = Observer::connect(&socket).map_err(|error| {
        let message = format!(
            "no watchdog replies at unix:{}: {error}; {}, or name its socket with --socket",
            socket.display(),
            start_command(Some(&socket))
        );
        Failure::from(Error::new(ErrorKind::Unreachable, message)).with_code(NONE)
    })?;
    let failed = |error| Failure::own("the watchdog sent no status", error);
    let clients = node.status().map_err(failed)?;
    if args.json {
        json::print(&Status {
            node: node.node(),
            clients: clients.iter().map(MonitoredClient).collect(),
        })?;
        return Ok(0);
    }
    let leases = clients.iter().map(|client| client.leases as usize).sum();
    output::print_line(&format!(
        "{}: {}, {}",
        output::printable(node.node()),
        output::count(clients.len(), "client"),
        output::count(leases, "lease")
    ))?;
    if !clients.is_empty() {
        output::print_line(&table(&clients))?;
    }
    Ok(0)
}

fn table(clients: &[ClientStatus]) -> String {
    let rows = clients.iter().map(|it| {
        [
            output::process(&it.host, it.pid, &it.program, &it.label),
            it.leases.to_string(),
            ago(it.known_ms),
            ago(it.silent_ms),
            output::printable(&liveness(it)),
            output::printable(&it.store),
        ]
    });
    let header = [
        "CLIENT",
        "LEASES",
        "KNOWN FOR",
        "SILENT FOR",
        "STATE",
        "STORE",
    ];
    output::table(header, rows, 1..4).trim_fmt()
}

/// The liveness of a client, the reason, and the locks that are renewed for it.
fn liveness(client: &ClientStatus) -> String {
    let mut text = client.liveness.as_str().to_owned();
    if !client.reason.is_empty() {
        text.push_str(": ");
        text.push_str(&client.reason);
    }
    if !client.renewed.is_empty() {
        text.push_str("; keeps ");
        text.push_str(&client.renewed.join(", "));
        let more = usize::try_from(client.leases).unwrap_or(usize::MAX);
        let more = more.saturating_sub(client.renewed.len());
        if more > 0 {
            text.push_str(&format!(" and {more} more"));
        }
    }
    text
}

fn ago(millis: u64) -> String {
    duration::format(Duration::from_millis(millis))
}
