//! Keeps the value of a leader in the store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{HoldId, Instant, Loss, NewNote, Proclamation, Slot, Token, contention};
use tokio::sync::watch;

use super::Driver;
use super::active_lease::ActiveLease;
use super::hold::Hold;
use super::primitives::{AbortHandle, report};
use crate::fork::Process;
use crate::store::BoxFuture;
use crate::{Error, ErrorKind, Result};

/// How long the store keeps a value. A value outlives its leader, and means nothing then.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// How often a value is written again. A failover can lose it; a broken connection, which comes with most failovers,
/// has it written at once.
const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// A task that writes the value of a leader, and writes it again, until this is dropped.
pub(crate) struct Proclaimer {
    value: watch::Sender<Proclamation>,
    written: watch::Receiver<Written>,
    task: AbortHandle,
    process: Process,
}

/// The result of the last write.
#[derive(Clone)]
struct Written {
    /// The value that it was. 0: none has a result.
    number: u64,
    result: Result<()>,
}

impl Proclaimer {
    /// Begins to write a value under a hold, which has its lease for itself.
    pub(crate) fn start(hold: &Hold, value: Arc<str>) -> Self {
        let (value, proclaimed) = watch::channel(Proclamation { number: 1, value });
        let (result, written) = watch::channel(Written {
            number: 0,
            result: Ok(()),
        });
        let context = &hold.driver.context;
        let task = Task {
            driver: Arc::clone(&hold.driver),
            lease: Arc::clone(&hold.lease),
            hold: hold.id,
            token: hold.token,
            proclaimed,
            written: result,
        };
        Self {
            value,
            written,
            task: context.runtime.spawn(task.run()).abort_handle(),
            process: context.process,
        }
    }

    /// Replaces the value, and waits for the result of writing it.
    pub(crate) async fn proclaim(&self, value: Arc<str>) -> Result<()> {
        self.value.send_modify(|last| {
            last.number += 1;
            last.value = value;
        });
        self.written().await
    }

    /// Waits for the result of writing the newest value, or a newer one.
    pub(crate) async fn written(&self) -> Result<()> {
        let number = self.value.borrow().number;
        let mut written = self.written.clone();
        let found = written.wait_for(|written| written.number >= number).await;
        match found {
            Ok(written) => written.result.clone(),
            Err(_) => Err(Error::new(
                ErrorKind::ShutDown,
                "the value is not written any more",
            )),
        }
    }
}

impl Drop for Proclaimer {
    fn drop(&mut self) {
        // A fork has no tasks.
        if self.process.is_current() {
            self.task.abort();
        }
    }
}

struct Task {
    driver: Arc<Driver>,
    lease: Arc<ActiveLease>,
    hold: HoldId,
    token: Token,
    proclaimed: watch::Receiver<Proclamation>,
    written: watch::Sender<Written>,
}

impl Task {
    /// Writes each value, one at a time, until the hold is lost: a leader that gave up is not shown to observers.
    async fn run(mut self) {
        let driver = Arc::clone(&self.driver);
        let clock = &driver.context.clock;
        let (mut failing, mut late_until) = (None, None);
        while !self.is_lost(clock.now()) {
            // Subscribed before the write: it may be lost with a connection that breaks meanwhile.
            let interrupted = driver.interrupted();
            let proclamation = self.proclaimed.borrow_and_update().clone();
            let write = self.write(&proclamation).await;
            let number = proclamation.number;
            let now = clock.now();
            let next = match write {
                Ok(Ok(())) => {
                    self.report(number, Ok(()));
                    failing = None;
                    let late_until = late_until.filter(|until| now < *until);
                    late_until.unwrap_or_else(|| now.after(INTERVAL))
                }
                Ok(Err(loss)) => {
                    let error = Error::new(
                        ErrorKind::Lost,
                        format!("the value was refused: {}", lost(loss)),
                    );
                    self.report(number, Err(error));
                    // A renewal confirms that.
                    driver.renewer.check(&self.lease);
                    now.after(INTERVAL)
                }
                Err(error) if error.is_transient() => {
                    let since = *failing.get_or_insert(now);
                    // A write without a reply may still be applied, and would bring its value back.
                    late_until = Some(now.after(self.lease.lock().lease.ttl(now).as_duration()));
                    now.after(contention::retry_after(now.since(since)))
                }
                Err(error) => {
                    let named = driver.context.name_error(error.clone(), &self.lease.key);
                    report(|| tracing::error!(error = %named, "observers do not see this leader"));
                    self.report(number, Err(error));
                    now.after(INTERVAL)
                }
            };
            tokio::select! {
                changed = self.proclaimed.changed() => if changed.is_err() {
                    return;
                },
                () = interrupted => {}
                () = clock.sleep_until(next) => {}
            }
        }
    }

    fn is_lost(&self, now: Instant) -> bool {
        self.lease.state(self.hold, now).is_lost()
    }

    fn write(&self, proclamation: &Proclamation) -> BoxFuture<'_, Result<Result<(), Loss>>> {
        let note = NewNote {
            slot: Slot::Value,
            token: self.token,
            number: 0,
            text: proclamation.to_text().into(),
            keep: RETENTION,
        };
        Box::pin(async move {
            let (store, key) = (&self.driver.context.store, &self.lease.key);
            store.write_note(key, self.lease.id, note).await
        })
    }

    fn report(&self, number: u64, result: Result<()>) {
        let key = &self.lease.key;
        let result = result.map_err(|error| self.driver.context.name_error(error, key));
        self.written.send_replace(Written { number, result });
    }
}

const fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::Free => "the store has no record of this lease",
        Loss::TakenOver => "another client holds the lock",
    }
}
