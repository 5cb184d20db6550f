//! `leasehold show`.

use leasehold::{Client, LockInfo};
use serde_json::json;

use crate::args::{ShowArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, output};

/// The lock is free.
const FREE: u8 = 1;

pub(crate) async fn show(args: &ShowArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let held = mutex.holder().await?;
    match (&held, args.json) {
        (Some(info), true) => {
            output::json(&json!({ "held": true, "lock": output::Lock::from(info) }))?;
        }
        (None, true) => {
            output::json(&json!({ "held": false, "lock": null, "name": args.name }))?;
        }
        (Some(info), false) => output::line(&block(info))?,
        (None, false) => output::line(&format!("{} is free", output::printable(&args.name)))?,
    }
    Ok(if held.is_some() { 0 } else { FREE })
}

fn block(info: &LockInfo) -> String {
    let since = info.since.map_or_else(
        || "unknown".to_owned(),
        |since| format!("{} ({} ago)", output::rfc3339(since), output::age(info)),
    );
    let rows = [
        ("name", output::printable(&info.name)),
        ("holder", output::holder(info)),
        ("since", since),
        ("time left", duration::show(info.time_left)),
        ("token", output::token(info)),
        ("count", info.count.to_string()),
        ("lease", info.lease.to_string()),
    ];
    let lines: Vec<_> = rows
        .iter()
        .map(|(what, value)| format!("{what:<10} {value}"))
        .collect();
    lines.join("\n")
}
