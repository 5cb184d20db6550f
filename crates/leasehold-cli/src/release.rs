//! `leasehold release --force`.

use leasehold::Client;
use serde_json::json;

use crate::args::{ReleaseArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::output;

/// The lock was free already.
const FREE: u8 = 1;

pub(crate) async fn release(args: &ReleaseArgs, store: &StoreArgs) -> Result<u8, Failure> {
    if !args.force {
        return Err(Failure::usage(
            "a lock is released by its holder; --force cuts the holder off, who may still be at \
             work: see `leasehold show`, then decide",
        ));
    }
    let client = connect(store, Client::builder()).await?;
    let mutex = client.mutex(&args.name)?;
    let cut_off = mutex.force_release().await?;
    let name = output::printable(&args.name);
    match (&cut_off, args.json) {
        (Some(info), true) => {
            output::json(&json!({ "released": true, "cut_off": output::Lock::from(info) }))?;
        }
        (None, true) => {
            output::json(&json!({ "released": false, "cut_off": null, "name": args.name }))?;
        }
        (Some(info), false) => output::line(&format!(
            "{name} is free now; cut off: {}, held for {}, lease {}",
            output::holder(info),
            output::age(info),
            info.lease
        ))?,
        (None, false) => output::line(&format!("{name} was free already"))?,
    }
    Ok(if cut_off.is_some() { 0 } else { FREE })
}
