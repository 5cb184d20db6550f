//! Where a waiting acquisition hears from the store.

use leasehold_core::{Grant, Instant, LeaseId, Ttl, time};
use tokio::sync::Notify;

use super::sync::{Mutex, MutexGuard, lock};
use crate::Error;

/// One acquisition's ear. It keeps what was told until somebody asks.
#[derive(Debug)]
pub(crate) struct Wakeup {
    pub(crate) id: LeaseId,
    heard: Mutex<Pending>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    grant: Option<PushedGrant>,
    ask_again: bool,
    /// When to ask again although the timer has not rung.
    ask_at: Option<Instant>,
    /// Whether the record was changed since the last question.
    changed: bool,
    /// Whether that is a reason to ask again.
    heeds_changes: bool,
    /// What the store answered last.
    last: Option<LastReply>,
}

/// A grant, and when the message came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PushedGrant {
    pub(crate) grant: Grant,
    pub(crate) heard: Instant,
}

/// What the store said, if it did.
#[derive(Clone, Debug)]
pub(crate) enum LastReply {
    Refused,
    Failed(Error),
}

/// What a waiter is woken with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WakeupReason {
    Granted(PushedGrant),
    AskAgain,
    /// The record was changed by somebody else.
    Changed,
    AskAt(Instant),
}

impl Wakeup {
    pub(crate) fn new(id: LeaseId) -> Self {
        Self {
            id,
            heard: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// The store granted the lease.
    pub(crate) fn granted(&self, grant: Grant, heard: Instant) {
        self.lock().grant = Some(PushedGrant { grant, heard });
        self.news.notify_one();
    }

    /// Another was granted the lock, for `ttl` at first, and this lease is the next.
    pub(crate) fn next(&self, heard: Instant, ttl: Ttl) {
        let span = ttl.as_duration();
        self.lock().ask_at = Some(heard.after(span + time::drift(span)));
        self.news.notify_one();
    }

    /// The record was changed by somebody else.
    pub(crate) fn changed(&self) {
        let mut heard = self.lock();
        heard.changed = true;
        if heard.heeds_changes {
            self.news.notify_one();
        }
    }

    /// What the store knows of the lease is not sure any more.
    pub(crate) fn ask_again(&self) {
        self.lock().ask_again = true;
        self.news.notify_one();
    }

    /// Whether it was told so since the last question.
    pub(crate) fn is_unsure(&self) -> bool {
        let heard = self.lock();
        heard.ask_again || heard.changed && heard.heeds_changes
    }

    /// A refusal was read that was not the first. A grant that was told by now came before or after
    /// it; only the store's clock says which, and that may have been set back. So it is asked for.
    pub(crate) fn refused(&self) {
        let mut heard = self.lock();
        if heard.grant.take().is_some() {
            heard.ask_again = true;
        }
    }

    /// Whether changes of the record are of interest, from the last question on: one may have been
    /// told before its answer was read.
    pub(crate) fn heed_changes(&self, heed: bool) {
        let mut heard = self.lock();
        heard.heeds_changes = heed;
        if heed && heard.changed {
            self.news.notify_one();
        }
    }

    /// A question is about to be asked: earlier wishes for one are met.
    pub(crate) fn asking(&self) {
        let mut heard = self.lock();
        heard.ask_again = false;
        heard.ask_at = None;
        heard.changed = false;
    }

    /// Waits for news. Dropping it loses none.
    pub(crate) async fn news(&self) -> WakeupReason {
        loop {
            {
                let mut heard = self.lock();
                if let Some(told) = heard.grant.take() {
                    return WakeupReason::Granted(told);
                }
                if std::mem::take(&mut heard.ask_again) {
                    return WakeupReason::AskAgain;
                }
                if heard.heeds_changes && std::mem::take(&mut heard.changed) {
                    return WakeupReason::Changed;
                }
                if let Some(at) = heard.ask_at.take() {
                    return WakeupReason::AskAt(at);
                }
            }
            self.news.notified().await;
        }
    }

    pub(crate) fn answered(&self, last: LastReply) {
        self.lock().last = Some(last);
    }

    pub(crate) fn last(&self) -> Option<LastReply> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        lock(&self.heard)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use leasehold_core::ClientId;

    use super::*;

    fn wakeup() -> Wakeup {
        Wakeup::new(LeaseId {
            client: ClientId::from_random([1; 16]),
            number: 1,
        })
    }

    fn news(wakeup: &Wakeup) -> Poll<WakeupReason> {
        pin!(wakeup.news()).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The store told of the change right behind its answer, and before anybody has read that.
    #[test]
    fn a_change_between_a_refusal_and_its_reading_is_news() {
        let wakeup = wakeup();
        wakeup.asking();
        wakeup.changed();
        wakeup.heed_changes(true);
        assert!(matches!(news(&wakeup), Poll::Ready(WakeupReason::Changed)));
        assert!(news(&wakeup).is_pending());
        // One from before the question is none, and who is told its grant needs none.
        wakeup.changed();
        wakeup.asking();
        wakeup.heed_changes(true);
        assert!(news(&wakeup).is_pending());
        wakeup.asking();
        wakeup.heed_changes(false);
        wakeup.changed();
        assert!(news(&wakeup).is_pending());
    }
}
