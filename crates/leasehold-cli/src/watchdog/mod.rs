//! `leasehold watchdog`: a node of the watchdog, and its status.

mod args;
mod serve;
mod status;

use self::args::WatchdogCommand;
pub(crate) use self::args::{LogFormat, WatchdogArgs};
use crate::args::StoreArgs;
use crate::exit::Failure;

pub(crate) fn watchdog(args: &WatchdogArgs, store: &StoreArgs) -> Result<u8, Failure> {
    match &args.command {
        Some(WatchdogCommand::Status(status)) => status::status(status),
        None => serve::serve(&args.serve, store),
    }
}
