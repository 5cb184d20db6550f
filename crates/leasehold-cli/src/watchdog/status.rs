//! `leasehold watchdog status`: the clients of the node on this machine.

use std::time::Duration;

use leasehold::__private::observer::Observer;
use leasehold::__private::wire::ClientStatus;
use leasehold::watchdog::default_socket;
use leasehold::{ClientId, Error, ErrorKind};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::exit::{self, Failure};
use crate::lock::watchdog::start_command;
use crate::{duration, json, output};

/// A client of a node, as JSON has it.
fn monitored(client: &ClientStatus) -> impl Serialize {
    json::object! {
        id: ClientId::from_random(client.client).to_string(),
        host: &client.host,
        pid: client.pid,
        program: &client.program,
        label: &client.label,
        store: &client.store,
        leases: client.leases,
        processes: client.processes,
        connected: client.connected,
        known_ms: client.known_ms,
        silent_ms: client.silent_ms,
        state: client.liveness.as_str(),
        reason: Some(&client.reason).filter(|reason| !reason.is_empty()),
        renewed: &client.renewed,
    }
}

pub(crate) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let mut node = Observer::connect(&socket).map_err(|error| {
        let message = format!(
            "no watchdog replies at unix:{}: {error}; {}, or name its socket with --socket",
            socket.display(),
            start_command(Some(&socket))
        );
        Failure::from(Error::new(ErrorKind::Unreachable, message)).with_code(exit::NONE)
    })?;
    let failed = |error| Failure::own("the watchdog sent no status", error);
    let clients = node.status().map_err(failed)?;
    if args.json {
        json::print(&json::object! {
            node: node.node(),
            clients: clients.iter().map(monitored).collect::<Vec<_>>(),
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
    let reason = Some(&client.reason).filter(|reason| !reason.is_empty());
    let reason = output::optional(": ", reason);
    let more = usize::try_from(client.leases).unwrap_or(usize::MAX);
    let more = more.saturating_sub(client.renewed.len());
    let mut kept = client.renewed.join(", ");
    if more > 0 {
        kept.push_str(&format!(" and {more} more"));
    }
    let kept = (!client.renewed.is_empty()).then_some(kept);
    let kept = output::optional("; keeps ", kept);
    format!("{}{reason}{kept}", client.liveness.as_str())
}

fn ago(millis: u64) -> String {
    duration::format(Duration::from_millis(millis))
}
