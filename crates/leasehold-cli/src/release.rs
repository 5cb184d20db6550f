//! `leasehold release --force`.

use std::time::SystemTime;

use leasehold::{Client, LockInfo};

use crate::args::{ReleaseArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::{self, Failure};
use crate::{duration, json, misplaced, output, shell};

pub(crate) async fn release(args: &ReleaseArgs, store: &StoreArgs) -> Result<u8, Failure> {
    misplaced::note_pattern(&args.name);
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let held = match args.force {
        true => mutex.revoke().await?,
        false => mutex.inspect().await?,
    };
    if held.is_none() {
        misplaced::refuse_text("the name of the lock", &args.name)?;
    }
    if let (Some(info), false) = (&held, args.force) {
        return Err(Failure::usage(refusal(&client, info, store)));
    }
    if args.json {
        json::print(&json::object! {
            store: client.store().to_string(),
            name: &args.name,
            released: held.is_some(),
            lock: held.as_ref(),
        })?;
    } else {
        let place = store.place(client.store());
        let name = output::printable(&args.name);
        output::print_line(&text(&name, &place, held.as_ref()))?;
    }
    Ok(if held.is_some() { 0 } else { exit::FREE })
}

/// The command that revokes a lock.
pub(crate) fn command(name: &str, store: &StoreArgs) -> String {
    let (name, store) = (shell::quote(name), store.options());
    format!("leasehold release --force {name}{store}")
}

/// Why a lock is not released without `--force`.
fn refusal(client: &Client, info: &LockInfo, args: &StoreArgs) -> String {
    let (name, store, holder) = (&info.name, client.store(), output::holder(info));
    if info.min_hold {
        let until = output::rfc3339(SystemTime::now() + info.time_left).unwrap_or_default();
        let time_left = duration::format(info.time_left);
        return format!(
            "{name} at {store} was released by {holder}; its --at-least or --retry-after keeps it taken until {until} \
             ({time_left}). This ends that: {}",
            command(name, args)
        );
    }
    format!(
        "{name} at {store} is held by {holder}, which alone releases it; --force revokes it although the holder may \
         still work. Check it with: leasehold show {}",
        shell::quote(name)
    )
}

fn text(name: &str, place: &str, held: Option<&LockInfo>) -> String {
    let Some(info) = held else {
        return format!("{name} was free already at {place}");
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
    format!("{name} was revoked\n{}", output::rows(&rows))
}
