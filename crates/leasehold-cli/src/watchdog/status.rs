//! `leasehold watchdog status`: the clients of the node on this machine.

use std::time::Duration;

use comfy_table::presets;
use comfy_table::{CellAlignment, ContentArrangement, Table};
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
    let leases: u32 = clients.iter().map(|client| client.leases).sum();
    let (clients_in_all, leases) = (count(clients.len(), "client"), count(leases, "lease"));
    let node = output::printable(node.node());
    output::line(&format!("{node}: {clients_in_all}, {leases}"))?;
    if !clients.is_empty() {
        output::line(&table(&clients))?;
    }
    Ok(0)
}

fn count(number: impl TryInto<u64>, of: &str) -> String {
    match number.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {of}"),
        number => format!("{number} {of}s"),
    }
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
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header([
            "CLIENT",
            "LEASES",
            "KNOWN FOR",
            "SILENT FOR",
            "STATE",
            "STORE",
        ]);
    for client in clients {
        table.add_row([
            output::printable(&description(client)),
            client.leases.to_string(),
            ago(client.known_ms),
            ago(client.silent_ms),
            output::printable(&liveness(client)),
            output::printable(&client.store),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        if (1..4).contains(&column.index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

fn description(client: &ClientStatus) -> String {
    let mut text = format!("{} pid {} {}", client.host, client.pid, client.program);
    if !client.label.is_empty() {
        text.push_str(&format!(" ({})", client.label));
    }
    text
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
