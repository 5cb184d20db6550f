//! Keeps the value of a leader in the store.
//!
//! The protocol is [`leasehold_core::value_writer`]. Here is its host: a task for each leader.

use std::fmt;
use std::sync::Arc;

use leasehold_core::value_writer::{WriteAction, WriteReply};
use leasehold_core::{HoldId, Loss, NewNote, ValueWriter};
use tokio::sync::{Notify, watch};

use super::Driver;
use super::active_lease::ActiveLease;
use super::hold::Hold;
use super::primitives::{AbortHandle, Mutex, lock, report};
use crate::fork::Process;
use crate::{Error, ErrorKind, Result};

/// A task that writes the value of a leader, and writes it again, until this is dropped.
pub(crate) struct Proclaimer {
    shared: Arc<Shared>,
    written: watch::Receiver<Written>,
    task: AbortHandle,
    process: Process,
}

/// What the task shares with its leader.
struct Shared {
    writer: Mutex<ValueWriter>,
    /// Wakes the task.
    replaced: Notify,
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
        let context = &hold.driver.context;
        let writer = ValueWriter::new(hold.token, value, context.clock.now());
        let shared = Arc::new(Shared {
            writer: Mutex::new(writer),
            replaced: Notify::new(),
        });
        let (result, written) = watch::channel(Written {
            number: 0,
            result: Ok(()),
        });
        let task = Task {
            driver: Arc::clone(&hold.driver),
            lease: Arc::clone(&hold.lease),
            hold: hold.id,
            shared: Arc::clone(&shared),
            written: result,
        };
        Self {
            shared,
            written,
            task: context.runtime.spawn(task.run()).abort_handle(),
            process: context.process,
        }
    }

    /// Replaces the value, and waits for the result of writing it.
    pub(crate) async fn proclaim(&self, value: Arc<str>) -> Result<()> {
        lock(&self.shared.writer).set(value);
        self.shared.replaced.notify_one();
        self.written().await
    }

    /// Waits for the result of writing the newest value, or a newer one.
    pub(crate) async fn written(&self) -> Result<()> {
        let number = lock(&self.shared.writer).newest();
        let mut written = self.written.clone();
        let found = written.wait_for(|written| written.number >= number).await;
        match found {
            Ok(written) => written.result.clone(),
            Err(_) => Err(Error::new(
                ErrorKind::ShutDown,
                "the value is no longer written",
            )),
        }
    }
}

impl fmt::Debug for Proclaimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proclaimer")
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
    shared: Arc<Shared>,
    written: watch::Sender<Written>,
}

impl Task {
    /// Writes until the hold is lost: a leader that gave up is not shown to observers.
    async fn run(self) {
        let clock = &self.driver.context.clock;
        let mut interruptions = self.driver.interruptions.subscribe();
        loop {
            let now = clock.now();
            let state = self.lease.state(self.hold, now);
            let (action, next) = {
                let mut writer = lock(&self.shared.writer);
                (writer.poll(state, now), writer.next_timeout())
            };
            match action {
                WriteAction::Write(note) => {
                    interruptions.mark_unchanged();
                    self.write(note).await;
                }
                WriteAction::Wait => tokio::select! {
                    () = self.shared.replaced.notified() => {}
                    Ok(()) = interruptions.changed() => lock(&self.shared.writer).interrupted(),
                    () = clock.sleep_until(next.unwrap_or(now)), if next.is_some() => {}
                },
                WriteAction::Lost => return,
            }
        }
    }

    async fn write(&self, note: NewNote) {
        let (context, key) = (&self.driver.context, &self.lease.key);
        let (reply, result) = match context.store.write_note(key, self.lease.id, note).await {
            Ok(Ok(())) => (WriteReply::Stored, Ok(())),
            Ok(Err(loss)) => {
                // A renewal confirms that.
                self.driver.renewer.check(&self.lease);
                let message = format!("the value was refused: {}", lost(loss));
                let error = Error::new(ErrorKind::Lost, message);
                (WriteReply::Lost, Err(context.name_error(error, key)))
            }
            Err(error) if error.is_transient() => (WriteReply::Transient, Err(error)),
            Err(error) => {
                let error = context.name_error(error, key);
                report(|| tracing::error!(%error, "observers do not see this leader"));
                (WriteReply::Permanent, Err(error))
            }
        };
        let written = lock(&self.shared.writer).handle_reply(reply, context.clock.now());
        if let Some(number) = written {
            self.written.send_replace(Written { number, result });
        }
    }
}

const fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::Free => "the store has no record of this lease",
        Loss::TakenOver => "another client holds the lock",
    }
}
