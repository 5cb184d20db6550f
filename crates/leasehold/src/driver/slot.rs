//! Where a waiting attempt hears from the store.

use leasehold_core::{Grant, Instant, LeaseId, Ttl, time};
use tokio::sync::Notify;

use super::primitives::{Mutex, MutexGuard, lock};
use crate::Error;

/// One attempt's ear. It keeps what was told until somebody asks.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: LeaseId,
    heard: Mutex<Heard>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Heard {
    grant: Option<Told>,
    ask_again: bool,
    /// When to ask again although the timer has not rung.
    ask_at: Option<Instant>,
    /// Whether the record was changed since the last question.
    changed: bool,
    /// Whether that is a reason to ask again.
    heeds_changes: bool,
    /// What the store answered last.
    last: Option<Answered>,
}

/// A grant, and when the message came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) grant: Grant,
    pub(crate) heard: Instant,
}

/// What the store said, if it did.
#[derive(Clone, Debug)]
pub(crate) enum Answered {
    Refused,
    Failed(Error),
}

/// What a waiter is woken with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum News {
    Granted(Told),
    AskAgain,
    /// The record was changed by somebody else.
    Changed,
    AskAt(Instant),
}

impl Slot {
    pub(crate) fn new(id: LeaseId) -> Self {
        Self {
            id,
            heard: Mutex::default(),
            news: Notify::new(),
        }
    }

    /// The store granted the lease.
    pub(crate) fn granted(&self, grant: Grant, heard: Instant) {
        self.lock().grant = Some(Told { grant, heard });
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
    pub(crate) async fn news(&self) -> News {
        loop {
            {
                let mut heard = self.lock();
                if let Some(told) = heard.grant.take() {
                    return News::Granted(told);
                }
                if std::mem::take(&mut heard.ask_again) {
                    return News::AskAgain;
                }
                if heard.heeds_changes && std::mem::take(&mut heard.changed) {
                    return News::Changed;
                }
                if let Some(at) = heard.ask_at.take() {
                    return News::AskAt(at);
                }
            }
            self.news.notified().await;
        }
    }

    pub(crate) fn answered(&self, last: Answered) {
        self.lock().last = Some(last);
    }

    pub(crate) fn last(&self) -> Option<Answered> {
        self.lock().last.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        lock(&self.heard)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use leasehold_core::ClientId;

    use super::*;

    fn slot() -> Slot {
        Slot::new(LeaseId {
            client: ClientId::from_random([1; 16]),
            number: 1,
        })
    }

    fn news(slot: &Slot) -> Poll<News> {
        pin!(slot.news()).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// The store told of the change right behind its answer, and before anybody has read that.
    #[test]
    fn a_change_between_a_refusal_and_its_reading_is_news() {
        let slot = slot();
        slot.asking();
        slot.changed();
        slot.heed_changes(true);
        assert!(matches!(news(&slot), Poll::Ready(News::Changed)));
        assert!(news(&slot).is_pending());
        // One from before the question is none, and who is told its grant needs none.
        slot.changed();
        slot.asking();
        slot.heed_changes(true);
        assert!(news(&slot).is_pending());
        slot.asking();
        slot.heed_changes(false);
        slot.changed();
        assert!(news(&slot).is_pending());
    }
}
