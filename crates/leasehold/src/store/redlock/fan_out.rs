//! Calls all masters, and waits for the slowest of them only for a moment.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::Size;
use tokio::time::{Instant, sleep_until};

use crate::Result;

/// How long to wait for replies.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// For a majority, if limited.
    pub(super) majority: Option<Duration>,
    /// For the others, after a majority has succeeded.
    pub(super) others: Duration,
}

/// The result of each master. `None`: no reply in time.
pub(super) async fn fan_out<T, F>(
    calls: impl Iterator<Item = F>,
    size: Size,
    limits: WaitLimits,
) -> Vec<Option<Result<T>>>
where
    F: Future<Output = Result<T>>,
{
    let number = |(nth, call): (usize, F)| async move { (nth, call.await) };
    let mut calls: FuturesUnordered<_> = calls.enumerate().map(number).collect();
    let mut results: Vec<_> = (0..calls.len()).map(|_| None).collect();
    let mut succeeded = 0;
    let mut end = limits.majority.map(|limit| Instant::now() + limit);
    loop {
        tokio::select! {
            biased;
            result = calls.next() => {
                let Some((nth, result)) = result else { break };
                succeeded += usize::from(result.is_ok());
                if result.is_ok() && succeeded == size.majority() {
                    end = Some(Instant::now() + limits.others);
                }
                results[nth] = Some(result);
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => break,
        }
    }
    results
}
