//! Who looks at all grants of one lock, and the resource that it protects.

use std::future::poll_fn;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Guard, Instant, Result, State};
use tokio::task::JoinHandle;

use super::causes::late_itself;
use crate::waiters::{SOON, soon};

/// Looks at all grants of one lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    holders: Vec<Weak<Guard>>,
    grants: usize,
    last: u64,
    /// The largest token that the resource has seen.
    seen: u64,
    /// Whether the store may grant what it has granted already.
    forgetful: bool,
}

/// A guard under the eyes of the judge.
#[derive(Debug)]
pub(super) struct Held {
    judge: Judge,
    guard: Option<Arc<Guard>>,
}

/// When a holder was told that its lease is lost.
pub(super) struct Told(JoinHandle<Instant>);

impl Judge {
    /// Takes in a grant. Whoever was granted the lock before must know that it is lost: two believe
    /// in one lock at the same instant only if the earlier still does when the later begins to.
    #[track_caller]
    pub(super) fn granted(&self, guard: Guard) -> Held {
        let guard = Arc::new(guard);
        let mut book = self.book();
        let token = guard.token().get();
        assert!(token > book.last, "{token} after {}", book.last);
        book.last = token;
        book.grants += 1;
        for other in book.holders.iter().filter_map(Weak::upgrade) {
            let state = other.state();
            assert!(
                state.is_lost() || book.forgetful || guard.state().is_lost(),
                "two holders: {other:?} and {guard:?}"
            );
        }
        book.holders.push(Arc::downgrade(&guard));
        Held {
            judge: self.clone(),
            guard: Some(guard),
        }
    }

    /// From now on the store has forgotten what it acknowledged: only the resource keeps two holders
    /// apart.
    pub(super) fn store_forgets(&self) {
        self.book().forgetful = true;
    }

    pub(super) fn grants(&self) -> usize {
        self.book().grants
    }

    /// A write to the resource. `false`: it was refused, for it comes with an old token.
    fn write(&self, token: u64) -> bool {
        let mut book = self.book();
        let accepted = token >= book.seen;
        book.seen = book.seen.max(token);
        accepted
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A test that failed in here has failed.
        self.0.lock().unwrap()
    }
}

impl Held {
    /// Writes to the resource. `false`: it was refused.
    pub(super) fn writes(&self) -> bool {
        self.judge.write(self.token().get())
    }

    /// Waits until the lease is as wanted, and answers how it is then.
    #[track_caller]
    pub(super) fn until(&self, wanted: impl Fn(&State) -> bool) -> impl Future<Output = State> {
        let caller = std::panic::Location::caller();
        async move {
            let mut states = self.states();
            let found = async {
                loop {
                    match states.next().await {
                        Some(state) if wanted(&state) => return state,
                        Some(_) => {}
                        None => panic!("{:?}, {caller}", self.state()),
                    }
                }
            };
            let found = tokio::time::timeout(SOON, found).await;
            found.unwrap_or_else(|_| panic!("{:?}, {caller}", self.state()))
        }
    }

    /// Waits until the lease is in jeopardy or lost, but for what a busy machine does.
    #[track_caller]
    pub(super) fn until_in_doubt(&self) -> impl Future<Output = State> {
        self.until(|state| !state.is_held() && !late_itself(*state))
    }

    /// Checks that the lease is not lost in this time, and that all is well with it after it. A busy
    /// machine may put it into jeopardy.
    #[track_caller]
    pub(super) fn stays_held(&self, span: Duration) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let lost = tokio::time::timeout(span, self.lost()).await;
            assert!(lost.is_err(), "{lost:?}, {caller}");
            self.until(State::is_held).await;
        }
    }

    /// Checks that the lease is held in all this time, whatever the machine does meanwhile.
    pub(super) async fn is_never_in_doubt(&self, span: Duration) {
        let mut states = self.states();
        let first = states.next().await.unwrap();
        assert!(first.is_held(), "{first:?}");
        let change = tokio::time::timeout(span, states.next()).await;
        assert!(change.is_err(), "{change:?}");
    }

    /// Notes when the holder is told that its lease is lost.
    pub(super) fn told(&self) -> Told {
        let lost = self.loss_signal();
        Told(tokio::spawn(async move {
            lost.lost().await;
            BootClock.now()
        }))
    }

    pub(super) async fn release(mut self) -> Result<()> {
        let guard = self.guard.take().unwrap();
        let mine = Arc::downgrade(&guard);
        let guard = {
            // Whoever looks at all holders has done with it.
            let mut book = self.judge.book();
            book.holders.retain(|other| !other.ptr_eq(&mine));
            Arc::try_unwrap(guard).unwrap()
        };
        guard.release().await
    }
}

/// As [`Held::stays_held`], of all at the same time.
pub(super) async fn all_stay_held(all: &[Held], span: Duration) {
    let mut staying: Vec<_> = all
        .iter()
        .map(|held| Box::pin(held.stays_held(span)))
        .collect();
    poll_fn(|context| {
        staying.retain_mut(|held| held.as_mut().poll(context).is_pending());
        match staying.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

impl Told {
    /// When that was. It must have been before `passed_on`, when another had the lock.
    #[track_caller]
    pub(super) fn before(self, passed_on: Instant) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let told = soon(self.0).await;
            assert!(told < passed_on, "told too late, {caller}");
            println!("told {:?} before it passed on", passed_on.since(told));
        }
    }
}

impl Deref for Held {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.guard.as_ref().unwrap()
    }
}
