//! `leasehold release --force`.

use leasehold::{Client, LockInfo};

use crate::args::{ReleaseArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{json, output, shell};

/// The lock was free already.
const FREE: u8 = 1;

pub(crate) async fn release(args: &ReleaseArgs, store: &StoreArgs) -> Result<u8, Failure> {
    if !args.force {
        let (name, quoted) = (&args.name, shell::quote(&args.name));
        return Err(Failure::usage(format!(
            "{name} is released by its holder only; --force frees it although the holder may still \
             work. Check it with: leasehold show {quoted}"
        )));
    }
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let held = mutex.force_release().await?;
    if args.json {
        json::print(&json::Release::new(&client, &args.name, held.as_ref()))?;
    } else {
        output::print_line(&text(&output::printable(&args.name), held.as_ref()))?;
    }
    Ok(if held.is_some() { 0 } else { FREE })
}

fn text(name: &str, held: Option<&LockInfo>) -> String {
    let Some(info) = held else {
        return format!("{name} was free already");
    };
    let mut rows = vec![
        ("cut off", output::listed_holder(info)),
        ("held for", output::age(info)),
        ("lease", info.lease.to_string()),
    ];
    if !info.waiters.is_empty() {
        let waiters = output::count(info.waiters.len(), "waiter");
        let next = format!("{waiters}; the lock passes to the first one that can be notified");
        rows.push(("queue", next));
    }
    format!("{name} was released by force\n{}", output::rows(&rows))
}
