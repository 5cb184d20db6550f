//! The requests of a batch for one name, and their attempts.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use leasehold_core::record::{Environment, Head, Note, Op, Whom};
use leasehold_core::{ClientId, Instant, Name, Notice, Outcome, Rows, Slot, StoreTime};
use tokio::sync::OwnedMutexGuard;

use super::cache::Entry;
use super::document_text::{Header, TEXT_MAX};
use super::documents::{Version, Write};
use super::ends::{self, Ends};
use crate::store::api::{Event, Key, Keyspace, Reply};
use crate::store::message;
use crate::store::records::{ListPart, Record, Records, Transaction};
use crate::store::rows::{Damage, DamagedText};
use crate::store::work::{Failure, Work};
use crate::{Error, ErrorKind};

/// The maximum length of a message.
const MESSAGE_MAX: usize = 32 * 1024;

/// How much longer a text may become without another line: renewals and grants to waiters change some digits.
const ROOM: usize = 64 * 1024;

/// The longest pause between two attempts, and how often it doubles.
const PAUSE_MAX: Duration = Duration::from_millis(500);
const DOUBLINGS_MAX: u32 = 3;

/// The requests of a batch for one name.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) key: Key,
    /// The positions of the requests in the batch.
    pub(super) positions: Vec<usize>,
    work: Work,
    /// How long the observers of this process are registered, if they are to be.
    pub(super) watches_for: Option<Duration>,
    /// Whether the document was read after the requests came in.
    pub(super) is_fresh: bool,
    /// Whether it must be.
    pub(super) needs_fresh: bool,
    /// The clients of other processes, as far as they were asked for.
    pub(super) alive: HashMap<ClientId, bool>,
    /// Those that the rule asks for.
    pub(super) asked: Vec<ClientId>,
    /// The document that is written, without its version.
    pub(super) written: Option<Entry>,
    /// How many of its writes were refused, because others have written.
    pub(super) conflicts: u32,
    /// Its turn, until it is finished.
    pub(super) turn: Option<OwnedMutexGuard<()>>,
}

/// What becomes of a batch: the replies to its requests, and the work that is left.
pub(super) struct Results {
    pub(super) replies: Vec<Reply>,
    pub(super) rest: Vec<Work>,
}

/// How an attempt went on.
pub(super) enum Run {
    /// The document is to be replaced.
    Written(Write),
    /// The document was replaced in an earlier attempt that was refused, and has this version.
    Replaced(Version),
    /// The document stays as it is.
    Unchanged,
    /// Something is to be read first.
    Again,
    /// The requests fail. Nothing is applied.
    Failed(Error),
}

impl Part {
    /// The parts of a batch.
    pub(super) fn of(work: Work) -> Vec<Self> {
        let parts = work.by_name().into_iter();
        parts
            .map(|(key, positions, work)| Self::new(key, positions, work))
            .collect()
    }

    pub(super) fn new(key: Key, positions: Vec<usize>, work: Work) -> Self {
        Self {
            key,
            positions,
            work,
            watches_for: None,
            is_fresh: false,
            needs_fresh: false,
            alive: HashMap::new(),
            asked: Vec::new(),
            written: None,
            conflicts: 0,
            turn: None,
        }
    }

    /// Applies the rule to a document at the local instant `started`. `must_write`: even if nothing changes, the document is
    /// replaced, so that a write without a reply is not applied any later.
    pub(super) fn run(
        &mut self,
        (entry, known_ends): (Entry, &Ends),
        started: Instant,
        wall: StoreTime,
        (watcher, can_wait): (ClientId, bool),
        must_write: bool,
    ) -> Run {
        if self.has_written(&entry) {
            return Run::Replaced(entry.version);
        }
        let environment = entry.environment(started, wall);
        let now = environment.now;
        let header = entry.header;
        let is_damaged = entry.rows.is_err();
        let before = match entry.rows {
            Ok(mut rows) => {
                known_ends.shorten((&mut rows, &header.stamps), now, started);
                rows
            }
            Err(_) if self.work.requests().first().is_some_and(is_repair) => Rows::default(),
            Err(found) => return Run::Failed(damaged(found)),
        };
        let mut transaction = DocumentTransaction {
            rows: before.clone(),
            environment,
            alive: &self.alive,
            asked: Vec::new(),
            watcher,
            watchers: header.watchers.clone(),
            can_wait,
            messages: BTreeMap::new(),
        };
        let Ok(()) = self.work.run(&mut transaction);
        if let Some(span) = self.watches_for {
            transaction.watchers.insert(watcher, now.after_span(span));
        }
        let (mut rows, mut watchers) = (transaction.rows, transaction.watchers);
        let (asked, messages) = (transaction.asked, transaction.messages);
        if !asked.is_empty() {
            self.asked = asked;
            return Run::Again;
        }
        watchers.retain(|client, until| now < *until && self.alive.get(client) != Some(&false));
        rows.remove_ended_notes(&environment);
        let is_same = !is_damaged && before == rows && header.watchers == watchers;
        // A client that counts from now has written now, so that nobody counts from an earlier write.
        let timed = self.work.timed_leases();
        let must_write = must_write || !timed.is_empty();
        if is_same && messages.is_empty() && !must_write {
            self.needs_fresh = true;
            return match self.is_fresh {
                true => Run::Unchanged,
                false => Run::Again,
            };
        }
        let next = Entry {
            version: entry.version,
            header: Header {
                time: now,
                commits: header.commits.wrapping_add(1),
                watchers,
                stamps: ends::next_stamps(&header, (&before, &rows), &timed),
            },
            rows: Ok(rows),
            received: started,
        };
        self.write(next, (&before, &header), messages)
    }

    /// Whether it has written this document. A proxy may send a write again, which is refused because of itself. Texts do not
    /// repeat.
    fn has_written(&self, entry: &Entry) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|written| written.to_text() == entry.to_text())
    }

    /// Returns the write that replaces a document with these rows and this header.
    fn write(&mut self, written: Entry, before: (&Rows, &Header), messages: Messages) -> Run {
        let text = written.to_text();
        if text.len() > TEXT_MAX {
            let lines =
                |(rows, header): (&Rows, &Header)| rows.parts().count() + header.watchers.len();
            let rows = written.rows.as_ref();
            let is_longer = rows.is_ok_and(|rows| lines((rows, &written.header)) > lines(before));
            // A holder renews and releases its lease however many wait.
            if is_longer || text.len() > TEXT_MAX + ROOM {
                return Run::Failed(too_long());
            }
        }
        let seen = written.version.clone();
        self.written = Some(written);
        let messages = messages.into_iter().flat_map(|((_, client), messages)| {
            messages.into_iter().map(move |message| (client, message))
        });
        Run::Written(Write {
            key: self.key.clone(),
            seen,
            text: Some(text),
            messages: messages.collect(),
        })
    }

    /// Adds the replies of requests that are applied, and the work that is left.
    pub(super) fn finish(self, results: &mut Results) {
        let (mut own, left) = self.work.finish();
        results.rest.extend(left);
        if own.is_empty() {
            // Observers are registered.
            own.push(Reply::Applied {
                outcome: Outcome::Served,
                now: None,
            });
        }
        results.put(&self.positions, own);
    }

    /// Adds the replies of requests that failed.
    pub(super) fn fail(self, error: Error, is_certain: bool, results: &mut Results) {
        let failure = Failure {
            error,
            is_certain,
            lost: None,
        };
        let mut own = self.work.fail(&failure);
        if own.is_empty() {
            // Of observers.
            own.push(Reply::Rejected(failure.error));
        }
        results.put(&self.positions, own);
    }

    /// The same for requests that no write has applied. One that was refused for the version may have been sent twice: then
    /// the first one was applied, and others may have written on top of it.
    pub(super) fn fail_open(self, error: Error, results: &mut Results) {
        let is_certain = self.conflicts == 0;
        self.fail(error, is_certain, results);
    }
}

/// How long these parts wait for their next attempt, after one that took so long. Clients whose writes were refused three
/// times do not go on together, because only one of them would succeed.
pub(super) fn pause(parts: &mut [Part], attempt: Duration) -> Duration {
    let conflicts = parts.iter().map(|part| part.conflicts).max();
    let Some(doublings) = conflicts.unwrap_or_default().checked_sub(3) else {
        return Duration::ZERO;
    };
    // Others write meanwhile.
    for part in parts {
        part.is_fresh &= !part.needs_fresh;
    }
    let longest = attempt.saturating_mul(1_u32 << doublings.min(DOUBLINGS_MAX));
    longest.min(PAUSE_MAX).mul_f64(fastrand::f64())
}

impl Results {
    fn put(&mut self, positions: &[usize], replies: Vec<Reply>) {
        for (position, reply) in positions.iter().zip(replies) {
            if let Some(place) = self.replies.get_mut(*position) {
                *place = reply;
            }
        }
    }
}

/// Whether a request of an operator replaces a damaged document. Its tokens grow by the clock then.
fn is_repair(request: &crate::store::api::Request) -> bool {
    matches!(request.op, Op::Revoke(Whom::All))
}

/// The error of a damaged document. Whatever is damaged there, only a revocation replaces it.
pub(super) fn damaged(DamagedText(_, word): DamagedText) -> Error {
    DamagedText(Damage::Lock, word).into()
}

fn too_long() -> Error {
    let message = format!(
        "the record would be longer than {} KiB: too many clients wait for this name or have arrived, or it has too many \
         completions; nothing was applied",
        TEXT_MAX / 1024
    );
    Error::new(ErrorKind::Store, message)
}

/// The messages to each client, with whether it stands for observers: a store that sends some of them after the write sends
/// those last.
type Messages = BTreeMap<(bool, ClientId), Vec<String>>;

/// A document in a run of the rule.
struct DocumentTransaction<'a> {
    rows: Rows,
    environment: Environment,
    alive: &'a HashMap<ClientId, bool>,
    asked: Vec<ClientId>,
    watcher: ClientId,
    watchers: BTreeMap<ClientId, StoreTime>,
    can_wait: bool,
    messages: Messages,
}

impl DocumentTransaction<'_> {
    /// Adds an event for a client of another process, unless that is known to be gone.
    fn add(&mut self, client: ClientId, event: &Event) {
        if self.alive.get(&client) == Some(&false) {
            return;
        }
        let is_observer = matches!(event, Event::Changed(_));
        let messages = self.messages.entry((is_observer, client)).or_default();
        message::write(messages, event, MESSAGE_MAX);
    }
}

impl Records for DocumentTransaction<'_> {
    type Error = Infallible;

    fn environment(&self, _: &Key) -> Environment {
        self.environment
    }

    fn record<'a, F>(
        &'a mut self,
        _: &'a Key,
        mut reaches: F,
    ) -> impl Record<Error = Infallible> + 'a
    where
        F: FnMut(ClientId) -> Option<bool> + 'a,
    {
        let (alive, asked) = (self.alive, &mut self.asked);
        self.rows.source_mut(move |client| {
            let known = reaches(client).or_else(|| alive.get(&client).copied());
            known.unwrap_or_else(|| {
                asked.push(client);
                true
            })
        })
    }

    fn heads(&mut self, _: &Keyspace, _: &str) -> Result<ListPart<(Name, Head)>, Infallible> {
        Ok(ListPart::from_iter([]))
    }

    fn completions(
        &mut self,
        _: &Keyspace,
        _: (&str, &str),
    ) -> Result<ListPart<(Name, Slot, Note)>, Infallible> {
        Ok(ListPart::from_iter([]))
    }
}

impl Transaction for DocumentTransaction<'_> {
    fn can_wait(&self) -> bool {
        self.can_wait
    }

    fn notify(&mut self, key: &Key, notice: Notice) {
        self.add(notice.lease().client, &Event::Notice(key.clone(), notice));
    }

    fn changed(&mut self, key: &Key) -> Result<(), Infallible> {
        let others = self.watchers.iter();
        let others = others.filter(|(client, until)| {
            **client != self.watcher
                && self.environment.now < **until
                && self.alive.get(client) != Some(&false)
        });
        let others: Vec<_> = others.map(|(client, _)| *client).collect();
        for client in others {
            self.add(client, &Event::Changed(key.clone()));
        }
        Ok(())
    }
}
