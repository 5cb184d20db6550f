//! A store with faults between it and the client.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::__private::store::{BoxFuture, ForwardingStore, MemoryStore, Reply, Request, Store};
use leasehold::clock::Clock;
use leasehold::{Error, ErrorKind};
use leasehold_core::Op;

/// How long the client waits for a reply.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

/// What happens to requests and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultMode {
    None,
    /// Requests do not reach the store, and the client gets an error.
    Unreachable,
    /// Requests are applied, but the reply is lost.
    ReplyLost,
    /// The client gives up after [`TIMEOUT`]; requests are not applied.
    TimesOut,
    /// Requests are in flight forever.
    Silent,
    /// Batches with a note are refused for good.
    RefusesNotes,
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<MemoryStore>,
    clock: Arc<dyn Clock>,
    fault_mode: Mutex<FaultMode>,
}

impl FaultyStore {
    pub(crate) fn new(inner: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        Self::around(Arc::new(inner), clock)
    }

    fn around(inner: Arc<MemoryStore>, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner,
            clock,
            fault_mode: Mutex::new(FaultMode::None),
        }
    }

    /// The same records without faults.
    pub(crate) fn without_faults(&self) -> Self {
        Self::around(Arc::clone(&self.inner), Arc::clone(&self.clock))
    }

    pub(crate) fn set(&self, fault_mode: FaultMode) {
        *self.fault_mode.lock().unwrap() = fault_mode;
    }
}

fn has_note(request: &Request) -> bool {
    matches!(
        request.op,
        Op::WriteNote { .. } | Op::Release { note: Some(_), .. }
    )
}

fn error(what: &str) -> Error {
    Error::new(ErrorKind::Unreachable, what)
}

impl ForwardingStore for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        // What a client says of itself is delayed by no fault.
        if matches!(
            batch[..],
            [Request {
                op: Op::Describe { .. },
                ..
            }]
        ) {
            return self.inner.apply(batch);
        }
        let fault_mode = *self.fault_mode.lock().unwrap();
        Box::pin(async move {
            let count = batch.len();
            let unknown = || vec![Reply::Unknown(error("no reply")); count];
            match fault_mode {
                FaultMode::None => self.inner.apply(batch).await,
                FaultMode::Unreachable => vec![Reply::Rejected(error("unreachable")); count],
                FaultMode::ReplyLost => {
                    self.inner.apply(batch).await;
                    unknown()
                }
                FaultMode::TimesOut => {
                    let end = self.clock.now().after(TIMEOUT);
                    self.clock.sleep_until(end).await;
                    unknown()
                }
                FaultMode::Silent => std::future::pending().await,
                FaultMode::RefusesNotes if batch.iter().any(has_note) => {
                    let error = Error::new(ErrorKind::Store, "no notes");
                    vec![Reply::Rejected(error); count]
                }
                FaultMode::RefusesNotes => self.inner.apply(batch).await,
            }
        })
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty:")
    }
}
