//! `leasehold elect`: the command of a leader.

use std::time::{Duration, Instant};

use leasehold_watchdog::HealthEndpoint;
use tokio::sync::watch;

use super::run_until;
use crate::args::{ElectCommand, StoreArgs};
use crate::exit::{self, Failure};
use crate::lock::plan::{FOLLOWING, Health, Plan};
use crate::signals::Signals;

/// The shortest time from the start of one campaign to that of the next, so that a command that fails immediately
/// leaves the leadership to others.
const CAMPAIGN_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn elect(command: &ElectCommand, store: &StoreArgs) -> Result<u8, Failure> {
    let mut signals = Signals::listen()?;
    let (health, reply) = watch::channel(FOLLOWING);
    let endpoint = match command.health {
        Some(address) => {
            let bound = HealthEndpoint::bind(address).await;
            Some(bound.map_err(|error| Failure::own(error.to_string(), error))?)
        }
        None => None,
    };
    let probes = async {
        if let Some(endpoint) = endpoint {
            endpoint.run(move || *reply.borrow()).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        ended = campaigns(command, store, &mut signals, &health) => ended,
        never = probes => never,
    }
}

/// Campaigns and runs the command, with `--again` until a signal requests an exit.
async fn campaigns(
    command: &ElectCommand,
    store: &StoreArgs,
    signals: &mut Signals,
    health: &Health,
) -> Result<u8, Failure> {
    let plan = Plan::Election(&command.value, health);
    loop {
        let begun = Instant::now();
        let ended = run_until(&command.run, &plan, store, signals).await;
        let goes_on = ended.as_ref().err().is_none_or(Failure::is_transient);
        if !command.again || !goes_on || signals.requested_exit().is_some() {
            return ended;
        }
        match &ended {
            _ if command.run.lock.quiet => {}
            Ok(code) => note!(
                "leasehold: {}: ended with exit code {code}; campaigning again",
                command.run.name
            ),
            Err(failure) => failure.report(),
        }
        let pause = CAMPAIGN_INTERVAL.saturating_sub(begun.elapsed());
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(exit::by_signal(signal)),
            () = tokio::time::sleep(pause) => {}
        }
    }
}
