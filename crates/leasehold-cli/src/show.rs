//! `leasehold show`.

use leasehold::{Client, LockInfo, WaiterInfo};
use serde::Serialize;

use crate::args::{ShowArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, json, misplaced, output};

/// The lock is free.
const FREE: u8 = 1;

/// The output of `show --json`.
#[derive(Debug, Serialize)]
struct Lock<'a> {
    store: String,
    name: &'a str,
    held: bool,
    lock: Option<&'a LockInfo>,
}

pub(crate) async fn show(args: &ShowArgs, store: &StoreArgs) -> Result<u8, Failure> {
    misplaced::note_pattern(&args.name);
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let held = mutex.inspect().await?;
    if held.is_none() {
        misplaced::refuse_text("the name of the lock", &args.name)?;
    }
    if args.json {
        json::print(&Lock {
            store: client.store().to_string(),
            name: &args.name,
            held: held.is_some(),
            lock: held.as_ref(),
        })?;
    } else {
        let text = held.as_ref().map(text);
        output::print_line(&text.unwrap_or_else(|| {
            let name = output::printable(&args.name);
            format!("{name} is free at {}", store.place(client.store()))
        }))?;
    }
    Ok(if held.is_some() { 0 } else { FREE })
}

/// The lock, and below it its queue.
fn text(info: &LockInfo) -> String {
    let since = info.since.and_then(output::rfc3339).map_or_else(
        || "unknown".to_owned(),
        |since| format!("{since} ({} ago)", output::age(info)),
    );
    let queue_length = match info.waiters.len() {
        0 => "empty".to_owned(),
        waiters => output::count(waiters, "waiter"),
    };
    let rows = [
        ("name", output::printable(&info.name)),
        ("holder", output::listed_holder(info)),
        ("since", since),
        ("time left", duration::format(info.time_left)),
        ("token", output::token(info)),
        ("count", info.count.to_string()),
        ("lease", info.lease.to_string()),
        ("queue", queue_length),
    ];
    match info.waiters.is_empty() {
        true => output::rows(&rows),
        false => format!("{}\n\n{}", output::rows(&rows), queue(&info.waiters)),
    }
}

fn queue(waiters: &[WaiterInfo]) -> String {
    let rows = waiters.iter().enumerate().map(|(before, waiter)| {
        let unknown = || "-".to_owned();
        let [label, host, pid, program, connected] = match &waiter.client {
            Some(it) => [
                it.label.clone(),
                it.host.clone(),
                it.pid.to_string(),
                it.program.clone(),
                duration::format(it.since.elapsed().unwrap_or_default()),
            ],
            None => [unknown(), unknown(), unknown(), unknown(), unknown()],
        };
        let label = if label.is_empty() { unknown() } else { label };
        let place = (before + 1).to_string();
        [place, label, host, pid, program, connected].map(|cell| output::printable(&cell))
    });
    let header = ["PLACE", "LABEL", "HOST", "PID", "PROGRAM", "CONNECTED FOR"];
    output::table(header, rows, ..1).trim_fmt()
}
