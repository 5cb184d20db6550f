//! Observes a name: its holder, its queue and an annotation, and their changes.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AnnotationKind, Instant};

use super::Driver;
use crate::Result;
use crate::store::{Changed, Key, Observation};

/// The interval between two readings where the store cannot push changes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The first and the longest interval between two readings of a store that does not reply.
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The observations of one name.
pub(crate) struct Observer {
    driver: Arc<Driver>,
    key: Key,
    kind: AnnotationKind,
    next: Option<Next>,
}

/// When the next observation is due.
struct Next {
    changed: Option<Changed>,
    at: Option<Instant>,
}

impl Observer {
    pub(crate) fn new(driver: Arc<Driver>, key: Key, kind: AnnotationKind) -> Self {
        Self {
            driver,
            key,
            kind,
            next: None,
        }
    }

    /// An observer whose first observation was made by its caller. It returns those after it.
    pub(crate) fn after(
        driver: Arc<Driver>,
        key: Key,
        kind: AnnotationKind,
        mut first: Observation,
    ) -> Self {
        let mut observer = Self::new(driver, key, kind);
        observer.note(&mut first);
        observer
    }

    /// The next observation: at once the first time, then after each change, and after the end of the holder's lease.
    ///
    /// Transient errors are waited for. Dropping the future loses no change.
    pub(crate) async fn next(&mut self) -> Result<Observation> {
        if let Some(next) = &mut self.next {
            let clock = &self.driver.context.clock;
            let timer = async {
                match next.at {
                    Some(at) => clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            match &mut next.changed {
                Some(changed) => tokio::select! {
                    _ = changed => {}
                    () = timer => {}
                },
                None => timer.await,
            }
            self.next = None;
        }
        let mut observation = self.read().await?;
        self.note(&mut observation);
        Ok(observation)
    }

    async fn read(&self) -> Result<Observation> {
        let context = &self.driver.context;
        let mut interval = RETRY_MIN;
        loop {
            match context.store.observe(&self.key, &self.kind).await {
                Err(error) if error.is_transient() => {
                    let next = context.clock.now().after(interval);
                    context.clock.sleep_until(next).await;
                    interval = (interval * 2).min(RETRY_MAX);
                }
                Err(error) => return Err(context.name_error(error, &self.key)),
                observed => return observed,
            }
        }
    }

    fn note(&mut self, observation: &mut Observation) {
        let now = self.driver.context.clock.now();
        let changed = observation.changed.take();
        let poll = changed.is_none().then(|| now.after(POLL_INTERVAL));
        let end = observation.holder.map(|(_, left)| now.after(left));
        self.next = Some(Next {
            changed,
            at: poll.into_iter().chain(end).min(),
        });
    }
}
