//! `leasehold watchdog`: a node of the watchdog, and its status.

mod serve;
mod status;

use crate::args::{StoreArgs, WatchdogArgs, WatchdogCommand};
use crate::exit::Failure;

pub(crate) fn watchdog(args: &WatchdogArgs, store: &StoreArgs) -> Result<u8, Failure> {
    match &args.command {
        Some(WatchdogCommand::Status(status)) => status::status(status),
        None => serve::serve(&args.serve, store),
    }
}
