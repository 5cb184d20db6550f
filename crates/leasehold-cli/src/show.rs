//! `leasehold show`.

use std::time::Duration;

use leasehold::{Access, Client, ClientInfo, LeaseKind, LockInfo, WaiterInfo};

use crate::args::{ShowArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::{self, Failure};
use crate::{duration, json, misplaced, output};

pub(crate) async fn show(args: &ShowArgs, store: &StoreArgs) -> Result<u8, Failure> {
    misplaced::note_pattern(&args.name);
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let held = mutex.inspect().await?;
    if held.is_none() {
        misplaced::refuse_text("the name of the lock", &args.name)?;
    }
    if args.json {
        json::print(&json::object! {
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
    Ok(if held.is_some() { 0 } else { exit::FREE })
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
    let mut rows = vec![
        ("name", output::printable(&info.name)),
        ("holder", output::listed_holder(info)),
        ("since", since),
        ("time left", duration::format(info.time_left)),
        ("token", output::or_dash(info.token)),
        ("count", info.count.to_string()),
        ("lease", info.lease.to_string()),
        ("queue", queue_length),
    ];
    if let Some(permits) = info.permits {
        rows.insert(1, ("permits", permits.to_string()));
    }
    let mut text = output::rows(&rows);
    let tables = [
        (info.kind != LeaseKind::Mutex).then(|| holders(info)),
        (!info.waiters.is_empty()).then(|| queue(&info.waiters)),
    ];
    for table in tables.into_iter().flatten() {
        text.push_str("\n\n");
        text.push_str(&table);
    }
    text
}

/// All holders of a semaphore or a read-write lock.
fn holders(info: &LockInfo) -> String {
    let row = |holds: String, client: Option<&ClientInfo>, time_left: Duration| {
        [holds, output::client(client), duration::format(time_left)]
    };
    let first = holds(info.weight, info.number, info.access);
    let first = row(first, info.client.as_ref(), info.time_left);
    let others = info.others.iter().map(|it| {
        let is_semaphore = info.kind == LeaseKind::Semaphore;
        let access = it.access().filter(|_| !is_semaphore);
        let holds = holds(is_semaphore.then_some(it.weight), it.number, access);
        row(holds, it.client.as_ref(), it.time_left)
    });
    let rows = [first].into_iter().chain(others);
    output::table(["HOLDS", "HOLDER", "TIME LEFT"], rows, 2..).trim_fmt()
}

/// What a holder has, such as `2 permits, number 3` or `write`.
fn holds(weight: Option<u64>, number: Option<u32>, access: Option<Access>) -> String {
    let access = access.map(|access| match access {
        Access::Read => "read".to_owned(),
        Access::Upgradable => "upgradable read".to_owned(),
        Access::Write => "write".to_owned(),
    });
    let weight = weight.map(|weight| {
        let weight = usize::try_from(weight).unwrap_or(usize::MAX);
        output::count(weight, "permit")
    });
    let number = number.map(|number| format!("number {number}"));
    let parts: Vec<_> = access.into_iter().chain(weight).chain(number).collect();
    parts.join(", ")
}

fn queue(waiters: &[WaiterInfo]) -> String {
    let rows = waiters.iter().enumerate().map(|(before, waiter)| {
        let [label, host, pid, program, connected] = match &waiter.client {
            Some(it) => [
                output::or_dash(Some(&it.label).filter(|label| !label.is_empty())),
                it.host.clone(),
                it.pid.to_string(),
                it.program.clone(),
                duration::format(it.since.elapsed().unwrap_or_default()),
            ],
            None => ["-"; 5].map(str::to_owned),
        };
        let place = (before + 1).to_string();
        [place, label, host, pid, program, connected].map(|cell| output::printable(&cell))
    });
    let header = ["PLACE", "LABEL", "HOST", "PID", "PROGRAM", "CONNECTED FOR"];
    output::table(header, rows, ..1).trim_fmt()
}
