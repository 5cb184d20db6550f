//! Asks all masters something, and waits for the last of them only for a moment.

use std::future::Future;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::quorum::Size;
use tokio::time::{Instant, sleep_until};

use crate::Result;

/// How long is waited for answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a majority of them, if there is a bound.
    pub(super) majority: Option<Duration>,
    /// For the others, when a majority has answered well.
    pub(super) others: Duration,
}

/// What each of the masters answered. `None`: nothing in time.
pub(super) async fn fan_out<T, F>(
    asked: impl Iterator<Item = F>,
    size: Size,
    patience: Patience,
) -> Vec<Option<Result<T>>>
where
    F: Future<Output = Result<T>>,
{
    let number = |(nth, asked): (usize, F)| async move { (nth, asked.await) };
    let mut calls: FuturesUnordered<_> = asked.enumerate().map(number).collect();
    let mut answers: Vec<_> = (0..calls.len()).map(|_| None).collect();
    let mut well = 0;
    let mut end = patience.majority.map(|span| Instant::now() + span);
    loop {
        tokio::select! {
            biased;
            answer = calls.next() => {
                let Some((nth, answer)) = answer else { break };
                well += usize::from(answer.is_ok());
                if answer.is_ok() && well == size.majority() {
                    end = Some(Instant::now() + patience.others);
                }
                answers[nth] = Some(answer);
            }
            () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => break,
        }
    }
    answers
}
