//! `leasehold watchdog status`: the clients of the node on this machine.

use std::time::Duration;

use leasehold::watchdog::{ClientStatus, Observer, default_socket};
use serde_json::json;

use super::args::StatusArgs;
use crate::exit::Failure;
use crate::{duration, output};

/// The exit code if no watchdog replies.
const NONE: u8 = 1;

pub(super) fn show(args: &StatusArgs) -> Result<u8, Failure> {
    let socket = args.socket.clone().unwrap_or_else(default_socket);
    let mut node = match Observer::connect(&socket) {
        Ok(node) => node,
        Err(error) => {
            note!(
                "leasehold: no watchdog at unix:{}: {error}",
                socket.display()
            );
            return Ok(NONE);
        }
    };
    let failed = |error| Failure::own("the watchdog sent no status", error);
    let clients = node.status().map_err(failed)?;
    if args.json {
        let clients: Vec<_> = clients.iter().map(as_json).collect();
        output::json(&json!({ "node": node.node(), "clients": clients }))?;
        return Ok(0);
    }
    let leases = clients.iter().map(|client| client.leases as usize).sum();
    output::line(&format!(
        "{}: {}, {}",
        output::printable(node.node()),
        output::count(clients.len(), "client"),
        output::count(leases, "lease")
    ))?;
    if !clients.is_empty() {
        output::line(&table(&clients))?;
    }
    Ok(0)
}

fn as_json(client: &ClientStatus) -> serde_json::Value {
    json!({
        "client": format!("{:032x}", u128::from_be_bytes(client.client)),
        "host": client.host,
        "pid": client.pid,
        "program": client.program,
        "label": client.label,
        "store": client.store,
        "leases": client.leases,
        "processes": client.processes,
        "connected": client.connected,
        "known_ms": client.known_ms,
        "silent_ms": client.silent_ms,
        "state": client.liveness.as_str(),
        "reason": client.reason,
        "renewed": client.renewed,
    })
}

fn table(clients: &[ClientStatus]) -> String {
    let rows = clients.iter().map(|it| {
        [
            output::client(&it.host, it.pid, &it.program, &it.label),
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
    output::table(header, rows, 1..4)
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
    duration::show(Duration::from_millis(millis))
}
