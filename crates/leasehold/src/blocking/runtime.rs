//! The threads under a blocking client.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::fork::Process;
use crate::{Error, ErrorKind, Owner, Result};

thread_local! {
    /// The owner that stands for this thread.
    static THREAD_OWNER: Owner = Owner::new();
}

/// Threads that run between calls, unlike a current-thread runtime, on which no lease would be renewed
/// while the caller works.
#[derive(Clone, Debug)]
pub(crate) struct Threads(Arc<Owned>);

/// The runtime and the client on it.
#[derive(Debug)]
struct Owned {
    runtime: Option<Runtime>,
    client: OnceLock<crate::Client>,
    process: Process,
}

/// How long the drop of the last handle waits for releases in flight: a program that returns from `main`
/// leaves nothing held.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Threads {
    pub(crate) fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("leasehold")
            .enable_all()
            .build()
            .map_err(|error| {
                let message = "the threads of a blocking client could not be started";
                Error::new(ErrorKind::Unsupported, message).with_source(error)
            })?;
        Ok(Self(Arc::new(Owned {
            runtime: Some(runtime),
            client: OnceLock::new(),
            process: Process::current(),
        })))
    }

    /// Names the client whose releases are finished before the threads end.
    pub(crate) fn serve(&self, client: &crate::Client) {
        self.0.client.get_or_init(|| client.clone());
    }

    /// Waits for a future on this thread, which owns the locks that it acquires.
    pub(crate) fn block_on<T, E: From<Error>>(
        &self,
        future: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let runtime = self.checked_runtime()?;
        let owner = THREAD_OWNER.with(Owner::clone);
        runtime.block_on(owner.scope(future))
    }

    fn checked_runtime(&self) -> Result<&Runtime> {
        // A fork has none of the threads.
        self.0.process.check()?;
        if Handle::try_current().is_ok() {
            return Err(Error::new(
                ErrorKind::InvalidConfig,
                "leasehold::blocking was called inside an async runtime, which it would block; \
                 use leasehold::Client there, or spawn_blocking",
            ));
        }
        let ended = || Error::new(ErrorKind::Unsupported, "the client has ended");
        self.0.runtime.as_ref().ok_or_else(ended)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let (Some(runtime), client) = (self.runtime.take(), self.client.take()) else {
            return;
        };
        if !self.process.is_current() {
            // The end of the runtime would wait for the threads, which live in the other process.
            return std::mem::forget((runtime, client));
        }
        let (sender, done) = mpsc::channel();
        // On a thread of its own: a runtime must not end inside another.
        let finish = std::thread::Builder::new().name("leasehold-end".into());
        let spawned = finish.spawn(move || {
            if let Some(client) = client
                && let Err(error) = runtime.block_on(client.shutdown(FLUSH_TIMEOUT))
            {
                warn_cut_off(&error);
            }
            let _ = sender.send(());
            runtime.shutdown_background();
        });
        match spawned {
            Ok(_) => drop(done.recv_timeout(FLUSH_TIMEOUT * 2)),
            Err(error) => warn_cut_off(&error),
        }
    }
}

fn warn_cut_off(error: &dyn fmt::Display) {
    tracing::warn!(%error, "releases were cut off; the locks are free when their leases expire");
}
