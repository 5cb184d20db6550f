//! A store that follows the rule except in one point.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::__private::store::{
    BoxFuture, Claim, Event, ForwardingStore, Keyspace, Listener, Listening, MemoryStore, Page,
    Query, Reply, Request, Store,
};
use leasehold::Result;
use leasehold_core::{
    Access, Acquire, Annotation, ArrivalId, ClientId, LeaseId, Notice, Op, Outcome, Token, Ttl,
};

use crate::store_ext::StoreExt as _;

/// The point in which a [`CorruptingStore`] breaks the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Corruption {
    /// Tokens are one too large.
    Token,
    /// The time left is ten milliseconds too long.
    Left,
    /// Renewals that set the hold count are confirmed, but not applied.
    Count,
    /// Other renewals are confirmed, but not applied.
    Renewal,
    /// A minimum hold frees the lock immediately.
    MinHold,
    /// Revocations are confirmed, but not applied.
    Revocation,
    /// The second operation of a batch is applied first.
    Order,
    /// The last operation of a larger batch has no reply.
    Reply,
    /// An inspection returns one hold too many.
    Inspection,
    /// No client joins a queue.
    Wait,
    /// A refusal returns a queue position that is one too large.
    QueuePosition,
    /// Some clients cannot be notified of grants.
    Unreachable,
    /// Grants are not notified.
    NoNotice,
    /// Grants are notified twice.
    DuplicateNotice,
    /// The token in a notice is one too large.
    NoticeToken,
    /// The ttl in a notice is too long.
    NoticeTtl,
    /// The head of the queue is not notified.
    Next,
    /// Notes are confirmed whatever lease holds the lock.
    UnheldNote,
    /// Completions are confirmed whatever lease holds the lock.
    UnheldCompletion,
    /// A release writes its note when its lease has ended.
    NoteBehindRelease,
    /// Notes have no number.
    NoNumber,
    /// A holder whose run is complete does not get its grant again.
    UnlessBeforeGrant,
    /// A run counts as asked for a microsecond later.
    RequestTime,
    /// Waiters are not told that their run is complete.
    NotTold,
    /// Each arrival at a latch counts, also a repeated one.
    RepeatedArrival,
    /// A semaphore counts its holders, and not their permits.
    Weight,
    /// A semaphore has one permit more.
    Limit,
    /// An upgradable reader is one of many.
    Upgradable,
    /// No conversion waits.
    Conversion,
    /// A limit is set whatever its version.
    SetLimit,
    /// The numbers of permits are one too large.
    Number,
    /// The floor is the own token.
    Floor,
}

/// A memory store with one corruption.
#[derive(Debug)]
pub(crate) struct CorruptingStore {
    store: MemoryStore,
    corruption: Corruption,
    listeners: Mutex<Vec<Arc<CorruptingListener>>>,
}

/// Corrupts the events of a listener.
#[derive(Debug)]
struct CorruptingListener {
    listener: Weak<dyn Listener>,
    corruption: Corruption,
}

impl Listener for CorruptingListener {
    fn notify(&self, event: Event) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        let mut event = event;
        match (self.corruption, &mut event) {
            (Corruption::NoNotice, Event::Notice(_, Notice::Granted(_)))
            | (Corruption::Next, Event::Notice(_, Notice::Next { .. }))
            | (Corruption::NotTold, Event::Notice(_, Notice::Complete { .. })) => return,
            (Corruption::DuplicateNotice, Event::Notice(_, Notice::Granted(_))) => {
                listener.notify(event.clone());
            }
            (Corruption::NoticeToken, Event::Notice(_, Notice::Granted(grant))) => {
                grant.first = one_more(grant.first);
            }
            (Corruption::NoticeTtl, Event::Notice(_, Notice::Granted(grant))) => {
                grant.ttl = Ttl::MAX;
            }
            _ => {}
        }
        listener.notify(event);
    }
}

impl Corruption {
    pub(super) const ALL: [Self; 32] = [
        Self::Token,
        Self::Left,
        Self::Count,
        Self::Renewal,
        Self::MinHold,
        Self::Revocation,
        Self::Order,
        Self::Reply,
        Self::Inspection,
        Self::Wait,
        Self::QueuePosition,
        Self::Unreachable,
        Self::NoNotice,
        Self::DuplicateNotice,
        Self::NoticeToken,
        Self::NoticeTtl,
        Self::Next,
        Self::UnheldNote,
        Self::UnheldCompletion,
        Self::NoteBehindRelease,
        Self::NoNumber,
        Self::UnlessBeforeGrant,
        Self::RequestTime,
        Self::NotTold,
        Self::RepeatedArrival,
        Self::Weight,
        Self::Limit,
        Self::Upgradable,
        Self::Conversion,
        Self::SetLimit,
        Self::Number,
        Self::Floor,
    ];

    fn corrupt_batch(self, mut batch: Vec<Request>) -> Vec<Request> {
        if self == Self::Order && batch.len() > 1 {
            batch.swap(0, 1);
        }
        for request in &mut batch {
            match (self, &mut request.op) {
                (Self::Wait, Op::Acquire(acquire)) => acquire.wait = false,
                (Self::Weight | Self::Limit | Self::Upgradable, Op::Acquire(acquire)) => {
                    acquire.claim = self.corrupt_claim(acquire.claim);
                }
                (Self::RepeatedArrival, Op::Arrive { id, .. }) => {
                    *id = ArrivalId::parse(&fastrand::u64(..).to_string()).unwrap();
                }
                (Self::Conversion, Op::Convert { wait, .. }) => *wait = false,
                (Self::SetLimit, Op::SetLimit { if_version, .. }) => *if_version = None,
                (Self::MinHold, Op::Release { rest, .. }) => *rest = None,
                (Self::NoteBehindRelease, Op::Release { note, .. }) => *note = None,
                (
                    Self::NoNumber,
                    Op::WriteNote { note, .. }
                    | Op::Release {
                        note: Some(note), ..
                    },
                ) => note.number = 0,
                _ => {}
            }
        }
        batch
    }

    fn corrupt_claim(self, claim: Claim) -> Claim {
        match claim {
            Claim::Permits {
                limit, numbered, ..
            } if self == Self::Weight => Claim::Permits {
                weight: NonZeroU32::MIN,
                limit,
                numbered,
            },
            Claim::Permits {
                weight,
                limit,
                numbered,
            } if self == Self::Limit => Claim::Permits {
                weight,
                limit: limit.saturating_add(1),
                numbered,
            },
            Claim::Access(Access::Upgradable) if self == Self::Upgradable => {
                Claim::Access(Access::Read)
            }
            claim => claim,
        }
    }

    /// Replaces an operation of the holder with one that has no effect, and returns the outcome of the original.
    fn skip(self, op: &mut Op, holder: LeaseId) -> Option<Outcome> {
        let outcome = match *op {
            Op::Renew { lease, count, .. } if lease == holder => {
                let skipped = count.map_or(Self::Renewal, |_| Self::Count);
                (self == skipped).then_some(Outcome::Kept)
            }
            Op::Revoke(_) => (self == Self::Revocation).then(|| Outcome::Revoked(vec![holder])),
            _ => None,
        }?;
        let another = LeaseId {
            number: holder.number.wrapping_add(1_000),
            ..holder
        };
        *op = Op::renew(another, Ttl::MAX);
        Some(outcome)
    }

    fn corrupt_outcome(self, mut outcome: Outcome, op: &Op) -> Outcome {
        match (self, &mut outcome) {
            (
                Self::Number,
                Outcome::Granted {
                    number: Some(number),
                    ..
                },
            ) => *number += 1,
            (
                Self::Floor,
                Outcome::Granted {
                    first,
                    floor: Some(floor),
                    ..
                },
            ) => *floor = *first,
            (Self::Token, Outcome::Granted { first, .. }) => *first = one_more(*first),
            (
                Self::Left,
                Outcome::Refused {
                    time_left: Some(time_left),
                    ..
                },
            ) => {
                *time_left += Duration::from_millis(10);
            }
            (
                Self::QueuePosition,
                Outcome::Refused {
                    queue_position: Some(position),
                    ..
                },
            ) => *position += 1,
            (Self::UnheldNote, Outcome::Lost(_)) if matches!(op, Op::WriteNote { .. }) => {
                outcome = Outcome::Stored;
            }
            (Self::UnheldCompletion, Outcome::Lost(_))
                if matches!(op, Op::Release { note: Some(_), .. }) =>
            {
                outcome = Outcome::Released;
            }
            (
                Self::UnlessBeforeGrant,
                Outcome::Granted {
                    first, run: None, ..
                },
            ) => {
                if let Op::Acquire(Acquire {
                    unless: Some(_),
                    lease,
                    ..
                }) = op
                {
                    outcome = Outcome::Complete(Annotation {
                        lease: *lease,
                        token: *first,
                        text: "complete".into(),
                    });
                }
            }
            (Self::RequestTime, Outcome::Granted { run: Some(run), .. }) => {
                run.requested_at = run.requested_at.after_span(Duration::from_micros(1));
            }
            _ => {}
        }
        outcome
    }
}

fn one_more(token: Token) -> Token {
    Token::new(token.get() + 1).unwrap()
}

impl CorruptingStore {
    pub(crate) fn new(store: MemoryStore, corruption: Corruption) -> Self {
        Self {
            store,
            corruption,
            listeners: Mutex::default(),
        }
    }
}

impl ForwardingStore for CorruptingStore {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(async move {
            let corruption = self.corruption;
            let mut replies = Vec::new();
            for mut request in corruption.corrupt_batch(batch) {
                // An error: the name is used as a latch.
                let held = self.store.inspect(&request.key).await.unwrap_or_default();
                let skipped = held.and_then(|held| corruption.skip(&mut request.op, held.lease));
                let op = request.op.clone();
                let mut reply = self.store.apply(vec![request]).await.remove(0);
                if let Reply::Applied { outcome, .. } = &mut reply {
                    let original = skipped.unwrap_or_else(|| outcome.clone());
                    *outcome = corruption.corrupt_outcome(original, &op);
                }
                replies.push(reply);
            }
            if corruption == Corruption::Reply && replies.len() > 2 {
                replies.pop();
            }
            replies
        })
    }

    fn listen(
        &self,
        space: &Keyspace,
        client: ClientId,
        listener: Weak<dyn Listener>,
    ) -> Listening {
        let mut listeners = self.listeners.lock().unwrap();
        let corruption = self.corruption;
        if corruption == Corruption::Unreachable && listeners.len() % 2 == 1 {
            return Listening::new(|| ());
        }
        let corrupting = Arc::new(CorruptingListener {
            listener,
            corruption,
        });
        let weak = Arc::downgrade(&corrupting) as Weak<dyn Listener>;
        listeners.push(corrupting);
        self.store.listen(space, client, weak)
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<Page>> {
        Box::pin(async move {
            let mut page = self.store.read(query).await?;
            let holders = page
                .views
                .iter_mut()
                .filter_map(|view| view.holder.as_mut());
            for holder in holders.filter(|_| self.corruption == Corruption::Inspection) {
                holder.count = holder.count.wrapping_add(1);
            }
            Ok(page)
        })
    }
}

impl fmt::Display for CorruptingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupting:{:?}", self.corruption)
    }
}
