//! What a store reads: the state of a name, the names in a keyspace, a client.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::escape::Extent;
use leasehold_core::record::{Access, Body, Head, Kind, LeaseKind};
use leasehold_core::{
    Annotation, ClientId, Environment, Holder, LatchStatus, LeaseId, Mismatch, Name, Op, Slot,
    StoreTime, Token,
};
use tokio::sync::oneshot;

use super::key::{Key, Keyspace};
use super::request::Request;
use crate::Durability;

/// The version of the text of a client info.
const INFO_VERSION: &str = "1";

/// What is read. No query changes a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The state of one name: one view.
    Name {
        /// The name.
        key: Key,
        /// The parts of its state that are read.
        parts: Parts,
        /// Whether the next change of these parts is notified, if the store can do that. See [`Page::changed`].
        watch: bool,
    },
    /// The locks that are held in a keyspace with their waiters, ordered by name. This is not a snapshot: locks may be
    /// acquired and released meanwhile.
    Names(Keyspace),
    /// The annotations in a keyspace other than values of leaders, ordered by name and kind: one view for each.
    Completions(Keyspace),
    /// The client info of a client, whether it holds a lock or not.
    Client(Keyspace, ClientId),
    /// Nothing, but it fails if the store cannot provide a durability at this moment:
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if it never can,
    /// [`ErrorKind::NotReplicated`](crate::ErrorKind::NotReplicated) if it has too few replicas.
    Durability(Durability),
}

/// The parts of the state of a name. The others are empty in its [`View`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Parts {
    /// The holder and the last token.
    Lease,
    /// Also the client info of the holder.
    Holder,
    /// Also the waiters and their client info.
    Waiters,
    /// The holder and one annotation.
    Annotation(Slot),
    /// The holder, the time, the number of waiters, the last revocation and one annotation.
    State(Slot),
    /// The status of a latch.
    Latch,
}

/// The reply to a query.
#[derive(Debug, Default)]
pub struct Page {
    /// The states of the names.
    pub views: Vec<View>,
    /// The client info that was asked for. `None`: none is kept.
    pub client: Option<ClientInfo>,
    /// The next change of what was read. `None`: it was not asked for, or the store cannot push it, so the reader polls.
    pub changed: Option<Changed>,
}

/// Completes, or is dropped by the store, when what was read has changed or may have changed. It may be spurious.
///
/// What ends by time is not a change: a lease by its ttl, for which its reader has a timer, a queue or an annotation.
pub type Changed = oneshot::Receiver<()>;

/// The state of a name, as a store has read it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The name.
    pub key: Key,
    /// The store's time of the reading. `None`: it was not read.
    pub now: Option<StoreTime>,
    /// The time of the calendar, by which runs are decided. `None`: that is `now`, or it was not read.
    pub(crate) calendar: Option<StoreTime>,
    /// The lease that holds the lock, or the first of those that do. `None`: it is free.
    pub holder: Option<HolderInfo>,
    /// The other leases that hold it at the same time.
    pub others: Vec<HolderInfo>,
    /// What the name is used as, and how many of its permits are taken. `None`: it is not used, or that was not read.
    pub usage: Option<Usage>,
    /// The last token of this name. `None` if the counter was lost.
    pub token: Option<Token>,
    /// How many leases wait in the queue of the store.
    pub queue_length: usize,
    /// These leases, the head first, of which at most the first [`WAITERS_MAX`](Self::WAITERS_MAX) are read. Empty if the
    /// user may not read the queue.
    pub waiters: Vec<WaiterInfo>,
    /// The lease that was revoked last, unless that is longer ago than
    /// [`REVOCATION_RETENTION`](leasehold_core::lock_event::REVOCATION_RETENTION).
    pub revoked: Option<LeaseId>,
    /// Its annotations that were read.
    pub annotations: Vec<(Slot, Annotation)>,
    /// The slot of a listing whose value is not an annotation.
    pub unreadable: Option<Slot>,
    /// The status of a latch. `None`: it has no record.
    pub latch: Option<LatchStatus>,
}

impl View {
    /// How many waiters of a lock are read at most.
    pub const WAITERS_MAX: usize = 1_000;

    /// The state of a name of which nothing is known.
    #[must_use]
    pub const fn of(key: Key) -> Self {
        Self {
            key,
            now: None,
            calendar: None,
            holder: None,
            others: Vec::new(),
            usage: None,
            token: None,
            queue_length: 0,
            waiters: Vec::new(),
            revoked: None,
            annotations: Vec::new(),
            unreadable: None,
            latch: None,
        }
    }

    /// What the head of a record shows, with its holders that have not ended.
    ///
    /// # Errors
    ///
    /// [`Mismatch`] if the name is used otherwise.
    pub(super) fn of_head(
        key: Key,
        head: &Head,
        holders: &[Holder],
        parts: &Parts,
        environment: &Environment,
    ) -> Result<Self, Mismatch> {
        let now = environment.now;
        let queue_length = match now < head.queue.until {
            true => usize::try_from(head.queue.len).unwrap_or(usize::MAX),
            false => 0,
        };
        let mut view = Self::of(key);
        match (head.body, *parts == Parts::Latch) {
            (Body::Latch(latch), is_latch) if now < latch.until => {
                if !is_latch {
                    return Err(Mismatch::Kind(Kind::Latch));
                }
                view.latch = Some(latch.status());
            }
            (Body::Leases(leases), true)
                if !holders.is_empty() || queue_length > 0 || leases.is_set(now) =>
            {
                return Err(Mismatch::Kind(Kind::Leases(leases.kind)));
            }
            (_, true) => {}
            (_, false) => {
                view.now = Some(now);
                view.calendar = Some(environment.calendar);
                view.token = head.counter;
                view.queue_length = queue_length;
                let mut holders = holders.iter().map(|holder| HolderInfo::of(holder, now));
                view.holder = holders.next();
                view.others = holders.collect();
                if let Body::Leases(leases) = head.body
                    && (view.holder.is_some() || queue_length > 0 || leases.is_set(now))
                {
                    let used = view.holder.iter().chain(&view.others);
                    view.usage = Some(Usage {
                        kind: leases.kind,
                        permits: leases.limit,
                        used: used.map(|holder| holder.weight).sum(),
                    });
                }
                let revoked = head.revoked.filter(|(_, until)| now < *until);
                view.revoked = revoked.map(|(lease, _)| lease);
            }
        }
        Ok(view)
    }

    /// The lease that holds the lock, and the time until it expires unless it is renewed.
    #[must_use]
    pub fn lease(&self) -> Option<(LeaseId, Duration)> {
        let holder = self.holder.as_ref();
        let holder = holder.filter(|holder| !holder.is_reserved);
        holder.map(|holder| (holder.lease, holder.time_left))
    }

    /// All leases that hold the lock, as [`lease`](Self::lease).
    pub(crate) fn leases(&self) -> impl Iterator<Item = (LeaseId, Duration)> {
        let holders = self.holder.iter().chain(&self.others);
        let holders = holders.filter(|holder| !holder.is_reserved);
        holders.map(|holder| (holder.lease, holder.time_left))
    }

    /// The only annotation that was read. `None`: none is kept.
    #[must_use]
    pub fn annotation(&self) -> Option<&Annotation> {
        self.annotations.first().map(|(_, annotation)| annotation)
    }
}

impl Page {
    /// The state of one name.
    pub(crate) fn of(view: View, changed: Option<Changed>) -> Self {
        Self {
            views: vec![view],
            changed,
            ..Self::default()
        }
    }

    /// The states of many names.
    #[cfg(feature = "redis")]
    pub(crate) fn listed(views: Vec<View>) -> Self {
        Self {
            views,
            ..Self::default()
        }
    }
}

/// A lease that holds a lock, alone or with others, or keeps it taken for its minimum hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The lease.
    pub lease: LeaseId,
    /// Whether it has been released, and keeps the lock taken for its minimum hold.
    pub is_reserved: bool,
    /// The number of holds on it: 1, unless it holds a mutex.
    #[doc(hidden)]
    pub count: u32,
    /// How many permits it has: 1 of a mutex. See [`access`](Self::access) for a read-write lock.
    pub weight: u64,
    /// Its number among the holders of a semaphore, if it has one.
    pub number: Option<u32>,
    /// The time until it expires, unless it is renewed or released.
    pub time_left: Duration,
    /// The client that holds it. `None` if its client info is not written yet, or has expired.
    pub client: Option<ClientInfo>,
}

impl HolderInfo {
    /// Whether it reads or writes, if it holds a read-write lock.
    #[must_use]
    pub const fn access(&self) -> Option<Access> {
        Access::of_weight(self.weight)
    }

    /// A lease of weight 1. A hold count of 0 is a minimum hold.
    #[cfg(feature = "redis")]
    pub(crate) fn new(lease: LeaseId, count: u32, time_left: Duration) -> Self {
        Self {
            lease,
            is_reserved: count == 0,
            count: count.max(1),
            weight: 1,
            number: None,
            time_left,
            client: None,
        }
    }

    fn of(holder: &Holder, now: StoreTime) -> Self {
        Self {
            lease: holder.lease,
            is_reserved: holder.is_reserved,
            count: holder.count.get(),
            weight: holder.weight,
            number: holder.number,
            time_left: Environment::at(now).time_left(holder.end),
            client: None,
        }
    }
}

/// What a name is used as, and how many of its permits are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The kind of the lock.
    pub kind: LeaseKind,
    /// How many permits there are.
    pub permits: u64,
    /// How many of them are taken.
    pub used: u64,
}

/// A lease that waits for a lock in the queue of the store. The tasks of a client share one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// The lease that waits.
    pub lease: LeaseId,
    /// The client of that lease. `None` if its client info is not written yet, or has expired.
    pub client: Option<ClientInfo>,
}

/// A client as it describes itself. Made by [`Client::client_info`](crate::Client::client_info), which has an example.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientInfo {
    /// The name of its machine.
    pub host: String,
    /// Its process id on that machine.
    pub pid: u32,
    /// Its program: the name of its executable, or of the command that `leasehold run` has started.
    pub program: String,
    /// Its label, which may be empty: [`ClientBuilder::label`](crate::ClientBuilder::label).
    pub label: String,
    /// When it connected, by its own clock, to the millisecond.
    pub since: SystemTime,
}

impl ClientInfo {
    /// The text that stores keep: a version, and five words of which the last three are escaped.
    pub(crate) fn to_text(&self) -> String {
        let since = self.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut text = format!("{INFO_VERSION} {} {}", self.pid, since.as_millis());
        for word in [&self.host, &self.program, &self.label] {
            text.push(' ');
            Extent::Word.escape(word, &mut text);
        }
        text
    }

    /// Reads the text of a client info. `None`: it is not one of this version, and no rule depends on it.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split(' ').collect();
        let [INFO_VERSION, pid, since, host, program, label] = words[..] else {
            return None;
        };
        let word = |word| Extent::Word.unescape(word).map(Cow::into_owned);
        let since = Duration::from_millis(since.parse().ok()?);
        Some(Self {
            host: word(host)?,
            pid: pid.parse().ok()?,
            program: word(program)?,
            label: word(label)?,
            since: UNIX_EPOCH.checked_add(since)?,
        })
    }

    /// The operation that stores the client info for a while, and its record.
    #[doc(hidden)]
    #[must_use]
    pub fn describe(&self, space: &Keyspace, client: ClientId, keep: Duration) -> Request {
        let text = self.to_text().into();
        Request::new(
            space.key(Name::of_client(client)),
            Op::Describe { text, keep },
        )
    }
}

/// For tests.
#[doc(hidden)]
impl Default for ClientInfo {
    fn default() -> Self {
        Self {
            host: String::new(),
            pid: 0,
            program: String::new(),
            label: String::new(),
            since: UNIX_EPOCH,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_info_has_one_text() {
        let info = ClientInfo {
            host: "web 1".to_owned(),
            pid: 4711,
            program: "nightly%".to_owned(),
            label: String::new(),
            since: UNIX_EPOCH + Duration::from_millis(1_763_776_800_123),
        };
        assert_eq!(info.to_text(), "1 4711 1763776800123 web%201 nightly%25 ");
        for info in [info, ClientInfo::default()] {
            assert_eq!(ClientInfo::from_text(&info.to_text()), Some(info));
        }
        for other in [
            "",
            "2 1 1 h p l",
            "1 1 1 h p",
            "1 1 1 h p l x",
            "1 x 1 h p l",
        ] {
            assert_eq!(ClientInfo::from_text(other), None, "{other}");
        }
    }
}
