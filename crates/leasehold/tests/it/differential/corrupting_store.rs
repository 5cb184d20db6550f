//! A store that follows the rule except in one point.

use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::Result;
use leasehold::store::{
    BoxFuture, Entry, Event, ForwardingStore, Key, Keyspace, Listener, MemoryStore, Reply, Request,
    Store,
};
use leasehold_core::{ClientId, LeaseId, Notice, Op, Outcome, Token, Ttl};

/// What a [`CorruptingStore`] does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lie {
    /// Tokens are one too large.
    Token,
    /// The time left is ten milliseconds too long.
    Left,
    /// Releases that leave a hold are answered and not done.
    Count,
    /// Renewals are answered and not done.
    Renewal,
    /// Revocations are answered and not done.
    Revocation,
    /// The second operation of a batch is done first.
    Order,
    /// The last operation of a larger batch is not answered.
    Reply,
    /// One hold too many is shown.
    Shown,
    /// Nobody waits in a queue.
    Wait,
    /// One too many is said to wait before somebody.
    Place,
    /// Some cannot be told what they are granted.
    Deaf,
    /// Grants are not told.
    Silence,
    /// Grants are told twice.
    Echo,
    /// Grants are told with a token of one more.
    ToldToken,
    /// Grants are told for longer than they are for.
    ToldTtl,
    /// The next in the queue is not told so.
    Next,
}

/// A memory store that lies.
#[derive(Debug)]
pub(super) struct CorruptingStore {
    store: MemoryStore,
    lie: Lie,
    tongues: Mutex<Vec<Arc<Tongue>>>,
}

/// Tells a listener what is not so.
#[derive(Debug)]
struct Tongue {
    listener: Weak<dyn Listener>,
    lie: Lie,
}

impl Listener for Tongue {
    fn notify(&self, event: Event) {
        let Some(listener) = self.listener.upgrade() else {
            return;
        };
        let mut event = event;
        match (self.lie, &mut event) {
            (Lie::Silence, Event::Notice(_, Notice::Granted(_)))
            | (Lie::Next, Event::Notice(_, Notice::Next { .. })) => return,
            (Lie::Echo, Event::Notice(_, Notice::Granted(_))) => listener.notify(event.clone()),
            (Lie::ToldToken, Event::Notice(_, Notice::Granted(grant))) => {
                grant.first = one_more(grant.first);
            }
            (Lie::ToldTtl, Event::Notice(_, Notice::Granted(grant))) => grant.ttl = Ttl::MAX,
            _ => {}
        }
        listener.notify(event);
    }
}

impl Lie {
    pub(super) const ALL: [Self; 16] = [
        Self::Token,
        Self::Left,
        Self::Count,
        Self::Renewal,
        Self::Revocation,
        Self::Order,
        Self::Reply,
        Self::Shown,
        Self::Wait,
        Self::Place,
        Self::Deaf,
        Self::Silence,
        Self::Echo,
        Self::ToldToken,
        Self::ToldTtl,
        Self::Next,
    ];

    fn twist(self, mut batch: Vec<Request>) -> Vec<Request> {
        if self == Self::Order && batch.len() > 1 {
            batch.swap(0, 1);
        }
        for request in &mut batch {
            if let (Self::Wait, Op::Acquire { wait, .. }) = (self, &mut request.op) {
                *wait = false;
            }
        }
        batch
    }

    /// Puts an operation that does nothing in the place of one of the holder's, and gives the answer
    /// that belongs to that one.
    fn skip(self, op: &mut Op, holder: LeaseId) -> Option<Outcome> {
        let answer = match *op {
            Op::Release { lease, count, .. } if lease == holder && count > 0 => {
                (self == Self::Count).then_some(Outcome::Released { count })
            }
            Op::Renew { lease, .. } if lease == holder => {
                (self == Self::Renewal).then_some(Outcome::Renewed)
            }
            Op::Revoke => (self == Self::Revocation).then_some(Outcome::Revoked {
                cut_off: Some(holder),
            }),
            _ => None,
        }?;
        *op = Op::Renew {
            lease: LeaseId {
                number: holder.number.wrapping_add(1_000),
                ..holder
            },
            ttl: Ttl::MAX,
        };
        Some(answer)
    }

    fn answer(self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Granted { first } if self == Self::Token => Outcome::Granted {
                first: one_more(first),
            },
            Outcome::Refused { left, place } if self == Self::Left => Outcome::Refused {
                left: left + Duration::from_millis(10),
                place,
            },
            Outcome::Refused { left, place } if self == Self::Place => Outcome::Refused {
                left,
                place: place.map(|place| place + 1),
            },
            _ => outcome,
        }
    }
}

fn one_more(token: Token) -> Token {
    Token::new(token.get() + 1).unwrap()
}

impl CorruptingStore {
    pub(super) fn new(store: MemoryStore, lie: Lie) -> Self {
        Self {
            store,
            lie,
            tongues: Mutex::default(),
        }
    }
}

impl ForwardingStore for CorruptingStore {
    fn inner(&self) -> &dyn Store {
        &self.store
    }

    fn apply(&self, batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(async move {
            let lie = self.lie;
            let mut replies = Vec::new();
            for mut request in lie.twist(batch) {
                let held = self.store.inspect(&request.key).await.unwrap();
                let skipped = held.and_then(|held| lie.skip(&mut request.op, held.lease));
                let mut reply = self.store.apply(vec![request]).await.remove(0);
                if let Reply::Applied { outcome, .. } = &mut reply {
                    *outcome = lie.answer(skipped.unwrap_or(*outcome));
                }
                replies.push(reply);
            }
            if lie == Lie::Reply && replies.len() > 2 {
                replies.pop();
            }
            replies
        })
    }

    fn listen(&self, space: &Keyspace, client: ClientId, listener: Weak<dyn Listener>) {
        let mut tongues = self.tongues.lock().unwrap();
        let lie = self.lie;
        if lie == Lie::Deaf && tongues.len() % 2 == 1 {
            return;
        }
        let tongue = Arc::new(Tongue { listener, lie });
        let told = Arc::downgrade(&tongue) as Weak<dyn Listener>;
        tongues.push(tongue);
        self.store.listen(space, client, told);
    }

    fn inspect<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move {
            let mut entry = self.store.inspect(key).await?;
            if let (Lie::Shown, Some(entry)) = (self.lie, &mut entry) {
                entry.count = entry.count.wrapping_add(1);
            }
            Ok(entry)
        })
    }
}

impl fmt::Display for CorruptingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "liar:{:?}", self.lie)
    }
}
