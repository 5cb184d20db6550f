//! `leasehold ls`.

mod glob;
mod refresh;

use std::cmp::Ordering;
use std::time::SystemTime;

use comfy_table::Table;
use leasehold::{Client, LockInfo};
use serde::Serialize;

use crate::args::{LsArgs, Sort, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, json, output};

/// The column that is cut to the width of the terminal.
const HOLDER: usize = 1;

/// The output of `ls --json`. Its time is by the clock of this machine.
fn listing(client: &Client, locks: &[LockInfo]) -> impl Serialize {
    json::object! {
        store: client.store().to_string(),
        time: output::rfc3339(SystemTime::now()),
        locks: locks,
    }
}

pub(crate) async fn ls(args: &LsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    if let Some(interval) = args.watch {
        return refresh::refresh(args, &client, interval).await;
    }
    let locks = list(args, &client).await?;
    if args.json {
        json::print(&listing(&client, &locks))?;
    } else if locks.is_empty() {
        note!("{}", nothing(args, store, &client));
    } else {
        output::print_line(&table(&locks).trim_fmt())?;
    }
    Ok(0)
}

/// The held locks that the filter matches, in order.
async fn list(args: &LsArgs, client: &Client) -> Result<Vec<LockInfo>, Failure> {
    let mut locks = client.locks().await?;
    if let Some(filter) = &args.filter {
        locks.retain(|info| glob::matches(filter, &info.name));
    }
    locks.sort_by(|a, b| {
        let order = match args.sort {
            // Without a time they are the last.
            Sort::Age => (a.since.is_none(), a.since).cmp(&(b.since.is_none(), b.since)),
            Sort::Name => Ordering::Equal,
            Sort::TimeLeft => a.time_left.cmp(&b.time_left),
        };
        order.then_with(|| a.name.cmp(&b.name))
    });
    Ok(locks)
}

/// A table of the locks. At a terminal each lock has one line.
fn table(locks: &[LockInfo]) -> Table {
    let rows = locks.iter().map(|info| {
        [
            output::printable(&info.name),
            output::listed_holder(info),
            output::age(info),
            duration::format(info.time_left),
            info.waiters.len().to_string(),
        ]
    });
    let header = ["NAME", "HOLDER", "HELD FOR", "TIME LEFT", "WAITERS"];
    let mut table = output::table(header, rows, 2..);
    output::cut_to_lines(&mut table, HOLDER);
    table
}

fn nothing(args: &LsArgs, store: &StoreArgs, client: &Client) -> String {
    let scope = store.full_place(client.store());
    match &args.filter {
        None => format!("no locks are held in {scope}"),
        Some(filter) if glob::is_pattern(filter) => {
            format!("no held lock matches {filter:?} in {scope}")
        }
        Some(filter) => format!(
            "no held lock matches {filter:?} in {scope}; the whole name is compared, and * stands for any text, \
             as in {:?}",
            format!("*{filter}*")
        ),
    }
}
