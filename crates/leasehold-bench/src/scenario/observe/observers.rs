//! The observers of one process.

use std::time::Duration;

use leasehold::{Leaders, LockEvent, LockEvents};
use leasehold_core::LeaseId;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::NAME;
use crate::clock::Moment;
use crate::options::Settings;
use crate::scenario::part_of;
use crate::target::Session;
use crate::worker::{Orders, reply};
use crate::workers::Job;
use crate::{Failure, Result, failed};

/// The longest time in which an observer must be notified. Where the store pushes nothing, it polls.
const NOTIFIED_MAX: Duration = Duration::from_secs(60);

/// Observers that share a client, each with a task of its own.
pub(super) struct Observers {
    count: usize,
    /// Each lease that an observer was notified of, and when.
    notified: mpsc::UnboundedReceiver<(LeaseId, Moment)>,
    tasks: JoinSet<Result<()>>,
}

enum Observer {
    Lock(Box<LockEvents>),
    Election(Box<Leaders>),
}

/// Takes part as a worker: an order is the lease that all observers are to be notified of.
pub(crate) async fn serve(job: &Job, orders: &mut Orders) -> Result<()> {
    let session = job.target.open().await?;
    let Settings {
        observers,
        processes,
        ..
    } = job.settings;
    let count = part_of(job.number, observers, processes);
    let mut observers = Observers::start(&session, &job.settings, count).await?;
    reply(&())?;
    while let Some(lease) = orders.next::<String>().await? {
        let lease = lease.parse().map_err(failed("the lease of an order"))?;
        reply(&observers.notified(lease).await?)?;
    }
    Ok(())
}

impl Observers {
    /// Starts observers, and waits until each of them has been notified of the present state.
    pub(super) async fn start(session: &Session, settings: &Settings, count: u16) -> Result<Self> {
        let (sender, notified) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let mut observer = match settings.election {
                false => Observer::Lock(Box::new(session.mutex(NAME)?.events())),
                true => Observer::Election(Box::new(session.election(NAME)?.observe())),
            };
            observer.next_holder().await?;
            tasks.spawn(observer.observe(sender.clone()));
        }
        Ok(Self {
            count: count.into(),
            notified,
            tasks,
        })
    }

    /// Waits until all have been notified of this lease, and returns when.
    pub(super) async fn notified(&mut self, lease: LeaseId) -> Result<Vec<Moment>> {
        let mut moments = Vec::with_capacity(self.count);
        let collect = async {
            while moments.len() < self.count {
                tokio::select! {
                    biased;
                    notified = self.notified.recv() => {
                        let notified = notified.filter(|(notified, _)| *notified == lease);
                        moments.extend(notified.map(|(_, moment)| moment));
                    }
                    Some(ended) = self.tasks.join_next() => {
                        ended.map_err(failed("a task of the bench"))??;
                    }
                }
            }
            Ok::<_, Failure>(())
        };
        match timeout(NOTIFIED_MAX, collect).await {
            Ok(collected) => collected.map(|()| moments),
            Err(_) => Err(format!(
                "of {} observers {} were notified of a holder in {} s",
                self.count,
                moments.len(),
                NOTIFIED_MAX.as_secs()
            )
            .into()),
        }
    }
}

impl Observer {
    async fn observe(mut self, notified: mpsc::UnboundedSender<(LeaseId, Moment)>) -> Result<()> {
        loop {
            if let Some(lease) = self.next_holder().await? {
                let _ = notified.send((lease, Moment::now()));
            }
        }
    }

    /// Waits for the next event. Returns the holder or leader that it names.
    async fn next_holder(&mut self) -> Result<Option<LeaseId>> {
        Ok(match self {
            Self::Lock(events) => match events.next().await? {
                LockEvent::Held(lease) | LockEvent::Granted(lease) => Some(lease),
                _ => None,
            },
            Self::Election(leaders) => leaders.next().await?.map(|leader| leader.lease),
        })
    }
}
