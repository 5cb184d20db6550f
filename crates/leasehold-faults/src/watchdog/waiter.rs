//! Somebody who waits for a lock, in the campaign's own process.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::world::World;
use crate::clock::{self, Nanos};

/// Somebody who waits for a lock, notes when he has it, and gives it back.
pub(super) struct Waiter {
    served: Receiver<Nanos>,
    task: JoinHandle<()>,
}

impl Waiter {
    pub(super) fn start(world: &World, name: &str) -> Result<Self, String> {
        let mutex = world.client.mutex(name);
        let mutex = mutex.map_err(|error| error.to_string())?;
        let (tell, served) = channel();
        let task = world.runtime.spawn(async move {
            if let Ok(guard) = mutex.lock().await {
                let _ = tell.send(clock::now());
                let _ = guard.release().await;
            }
        });
        Ok(Self { served, task })
    }

    /// When he had it. `None`: not in time.
    pub(super) fn served_within(&self, patience: Duration) -> Result<Option<Nanos>, String> {
        match self.served.recv_timeout(patience) {
            Ok(at) => Ok(Some(at)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("whoever waited gave up".into()),
        }
    }

    /// Whether he has it by now.
    pub(super) fn is_served(&self) -> Result<Option<Nanos>, String> {
        self.served_within(Duration::ZERO)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Dropped while it waits, it leaves the queue. While it releases, the guard does that.
        self.task.abort();
    }
}
