//! Stores that compare and swap, without a clock and without transactions: each name is one document.
//!
//! The rule is applied in this process to a copy of the document, which then replaces the document if that has still the
//! version of the copy. A refused write is no refusal of the request: the document is read again, and the rule applied again.
//! From the third refusal on that is after a random pause, which grows with the time of an attempt, within the response
//! timeout.
//!
//! # Time
//!
//! A document has the store's time of its last run of the rule. A client that has received it adds the time since then by its
//! own clock; its own document it has received when it ran the rule. So no time passes faster for an observer than it has
//! passed since the run of the writer, and a lease ends by an observer's time only after its holder, which counts from before
//! its request, has given it up. Only the rates of clocks matter for that. A model in docs/model.md steps through it.
//!
//! That time stands still while clients write in turn which have not seen the documents of each other before. So a document
//! says of each holder from which write its client counts, and while that stays the same, the lease ends a ttl after this
//! process has seen it first ([`Ends`](ends::Ends)).
//!
//! While nobody holds or waits, the time follows the wall clock if that is ahead, because what outlives its clients, such as
//! a note, is kept by that time. Jobs count by the wall clock even while somebody does: a run may take longer than its period.
//! A wrong wall clock ends no lease early.
//!
//! A request that changes nothing is answered from a document that was read after it came in: another one proves nothing
//! about now. It is written anyway if a write of the same version has no reply, which would be applied behind it. So are a
//! renewal, a repeated grant and a place in the queue: their clients count from their requests, and others from a version that
//! is not older.

mod attempt;
mod cache;
mod document_text;
pub(super) mod documents;
mod ends;
mod gc;
mod loaded;
mod turns;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{ClientId, Instant, StoreTime};
use tokio::time::{Instant as Deadline, timeout_at};

use self::attempt::{Part, Results, Run};
use self::cache::{Cache, Entry};
use self::documents::{Document, Documents, Garbage, Replaced, Write};
use self::gc::GarbageCollector;
use self::turns::{Turns, Waiting};
use super::api::{Capabilities, Key, Keyspace, Page, Reply, WakeupMode};
use super::backend::{Backend, ListenChange};
use super::hub::Hub;
use super::lock::lock;
use super::options::OpenOptions;
use super::query::RunningQuery;
use super::tasks;
use super::work::Work;
use crate::clock::{BootClock, Clock};
use crate::{Error, ErrorKind, Result};

/// How many documents a call of the store reads or writes at most. Each call may take a whole response timeout, so that a long
/// batch needs no faster store than a short one.
const DOCUMENTS_MAX: usize = 64;

/// How long an observer is registered.
const WATCHED: Duration = Duration::from_secs(60);

/// How long a registration is not renewed. Observers read again before its end.
const REGISTERED: Duration = Duration::from_secs(15);

/// The records of a store of documents.
#[derive(Debug)]
pub struct Optimistic<D>(Arc<Records<D>>);

#[derive(Debug)]
struct Records<D> {
    documents: D,
    cache: Mutex<Cache>,
    turns: Turns,
    gc: Mutex<GarbageCollector>,
    /// The client that is notified for the observers of this process.
    watcher: ClientId,
    response_timeout: Duration,
    clock: Arc<dyn Clock>,
    /// A wall clock that runs as the other one, from a time at an instant. `None`: that of the machine.
    wall_clock: Option<(SystemTime, Instant)>,
}

impl<D: Documents> Optimistic<D> {
    /// The records of documents, whose observers in this process the hub notifies.
    pub(super) fn new(documents: D, hub: &Hub, options: &OpenOptions) -> Result<Self> {
        let clock = options.clock.clone();
        let wall_clock = clock.as_ref().map(|it| (SystemTime::now(), it.now()));
        let clock = clock.unwrap_or_else(|| Arc::new(BootClock));
        Self::with_clocks(documents, hub, options, clock, wall_clock)
    }

    fn with_clocks(
        documents: D,
        hub: &Hub,
        options: &OpenOptions,
        clock: Arc<dyn Clock>,
        wall_clock: Option<(SystemTime, Instant)>,
    ) -> Result<Self> {
        let watcher = hub.add_observers()?;
        documents.listen(ListenChange::Began(watcher));
        Ok(Self(Arc::new(Records {
            documents,
            cache: Mutex::default(),
            turns: Turns::default(),
            gc: Mutex::default(),
            watcher,
            // The result, which is certain, arrives before the caller gives up.
            response_timeout: options.response_timeout / 4 * 3,
            clock,
            wall_clock,
        })))
    }
}

impl<D: Documents> Backend for Optimistic<D> {
    fn capabilities(&self) -> Capabilities {
        self.0.documents.capabilities()
    }

    async fn transact(&self, work: Work) -> Result<Vec<Reply>> {
        let records = Arc::clone(&self.0);
        let garbage = lock(&records.gc).note(work.requests());
        // Before the task begins: otherwise a late acquisition could come behind the release of its lease.
        let waiting = records.turns.queue(Part::of(work));
        // A caller that gives up takes no notice away from others.
        let transacted = tasks::spawn(async move { records.transact(waiting, garbage).await });
        transacted.await.map_err(|_| no_reply())
    }

    async fn read(&self, mut query: RunningQuery) -> Result<Page> {
        let can_watch = self.0.documents.capabilities().wakeup == WakeupMode::Grants;
        let watched = query.watched().filter(|_| can_watch).cloned();
        if let Some(key) = &watched {
            self.0.watch(key).await?;
        }
        loop {
            let mut loaded = self.0.load(&query).await?;
            // A writer has found no client to notify, because the session had ended.
            if let Some(key) = watched.as_ref().filter(|_| !loaded.is_watched) {
                lock(&self.0.cache).watched.remove(key);
                self.0.watch(key).await?;
                loaded = self.0.load(&query).await?;
            }
            let Ok(more) = query.step(&mut loaded);
            if !more {
                return query.finish();
            }
        }
    }

    fn listen(&self, change: ListenChange) {
        self.0.documents.listen(change);
    }
}

impl<D: Documents> Records<D> {
    /// Applies a batch, and in a task of its own what is left of it.
    async fn transact(self: &Arc<Self>, waiting: Waiting, garbage: Option<Keyspace>) -> Vec<Reply> {
        let Results { replies, rest } = self.apply(waiting).await;
        if !rest.is_empty() || garbage.is_some() {
            let records = Arc::clone(self);
            tasks::spawn(records.finish(rest, garbage));
        }
        replies
    }

    /// Does what nobody waits for.
    async fn finish(self: Arc<Self>, mut rest: Vec<Work>, garbage: Option<Keyspace>) {
        while let Some(work) = rest.pop() {
            let waiting = self.turns.queue(Part::of(work));
            rest.append(&mut self.apply(waiting).await.rest);
        }
        if let Some(space) = garbage.filter(|_| self.documents.garbage() != Garbage::Nothing)
            && let Err(error) = self.collect_garbage(&space).await
        {
            tracing::debug!(store = %self.documents, %error, "old records are not removed now");
        }
    }

    /// Applies parts of one name each.
    async fn apply(&self, mut waiting: Waiting) -> Results {
        let calls = u32::try_from(waiting.len().div_ceil(DOCUMENTS_MAX)).unwrap_or(u32::MAX);
        let until = Deadline::now() + self.response_timeout.saturating_mul(calls);
        let mut results = Results {
            replies: vec![Reply::Unknown(no_reply()); waiting.requests()],
            rest: Vec::new(),
        };
        let (mut open, mut pause) = (Vec::<Part>::new(), Duration::ZERO);
        while !(open.is_empty() && waiting.is_empty()) {
            // A name whose turn has come does not wait for the others.
            let end = match open.is_empty() {
                true => until,
                false => until.min(Deadline::now() + pause),
            };
            // A timer takes a millisecond even for no time.
            let ready = match open.is_empty() || !pause.is_zero() {
                true => timeout_at(end, waiting.next()).await.unwrap_or_default(),
                false => waiting.ready(),
            };
            open.extend(ready);
            let begun = Deadline::now();
            self.attempt(&mut open, until, &mut results).await;
            if Deadline::now() >= until {
                for part in open.drain(..) {
                    part.fail_open(busy(), &mut results);
                }
                for part in waiting.give_up() {
                    part.fail(no_reply(), true, &mut results);
                }
            }
            pause = attempt::pause(&mut open, begun.elapsed());
        }
        results
    }

    /// Applies parts once. Those that are to be applied again stay open.
    async fn attempt(&self, open: &mut Vec<Part>, until: Deadline, results: &mut Results) {
        if let Err(error) = self.prepare(open, until).await {
            for part in open.drain(..) {
                part.fail_open(error.clone(), results);
            }
            return;
        }
        let (mut writes, mut writing) = (Vec::new(), Vec::new());
        for mut part in std::mem::take(open) {
            match self.run(&mut part) {
                Run::Written(write) => {
                    lock(&self.cache).sent(write.key.clone(), write.seen.clone());
                    writes.push(write);
                    writing.push(part);
                }
                Run::Replaced(version) => {
                    let replaced = Replaced::Done(version);
                    open.extend(self.handle_reply(part, replaced, results));
                }
                Run::Unchanged => part.finish(results),
                Run::Again => open.push(part),
                Run::Failed(error) => part.fail_open(error, results),
            }
        }
        let replaced = self.replace(writes, until).await;
        for (part, replaced) in writing.into_iter().zip(replaced) {
            open.extend(self.handle_reply(part, replaced, results));
        }
    }

    /// Replaces documents. Nothing is sent behind a call without a reply.
    async fn replace(&self, writes: Vec<Write>, until: Deadline) -> Vec<Replaced> {
        let mut replaced = Vec::with_capacity(writes.len());
        let (mut writes, mut is_silent) = (writes.into_iter(), false);
        loop {
            let call: Vec<_> = writes.by_ref().take(DOCUMENTS_MAX).collect();
            let count = call.len();
            if count == 0 {
                return replaced;
            }
            if is_silent {
                replaced.extend(vec![Replaced::Rejected(no_reply()); count]);
                continue;
            }
            match self.in_time(until, self.documents.replace(call)).await {
                Ok(replies) => replaced.extend(replies),
                Err(error) => {
                    is_silent = true;
                    replaced.extend(vec![Replaced::Unknown(error); count]);
                }
            }
        }
    }

    /// The output of one call for a batch that ends at this time.
    async fn in_time<T>(&self, until: Deadline, call: impl Future<Output = T>) -> Result<T> {
        let until = until.min(Deadline::now() + self.response_timeout);
        timeout_at(until, call).await.map_err(|_| no_reply())
    }

    /// Handles the reply to a write. Returns the part if it is to be applied again.
    fn handle_reply(&self, mut part: Part, reply: Replaced, results: &mut Results) -> Option<Part> {
        let key = part.key.clone();
        match reply {
            Replaced::Done(version) => {
                let written = part.written.take();
                let written = written.map(|entry| Entry { version, ..entry });
                lock(&self.cache).put(key, written);
                part.finish(results);
            }
            Replaced::Conflict(document) => {
                let received = self.clock.now();
                let entry = document.map(|document| Entry::new(document, received));
                part.is_fresh = entry.is_some();
                part.needs_fresh = true;
                part.conflicts += 1;
                // The client that has written may have been dead before.
                part.alive.clear();
                lock(&self.cache).put(key, entry);
                return Some(part);
            }
            Replaced::Unreachable(client) => {
                part.alive.insert(client, false);
                // Each attempt finds one, and other observers may have gone with it.
                let watchers = part.written.iter().flat_map(|it| it.header.watchers.keys());
                let others = watchers.filter(|it| **it != self.watcher);
                let unknown = others.filter(|it| !part.alive.contains_key(*it));
                part.asked = unknown.copied().collect();
                return Some(part);
            }
            Replaced::Rejected(error) => part.fail_open(error, results),
            // The version that is known stays: the next write replaces the same one, or finds another.
            Replaced::Unknown(error) => part.fail(error, false, results),
        }
        None
    }

    /// Reads what the parts need: documents, and which clients of other processes are alive.
    async fn prepare(&self, parts: &mut [Part], until: Deadline) -> Result<()> {
        let asked = parts.iter_mut().map(|part| std::mem::take(&mut part.asked));
        let asked: Vec<ClientId> = asked.flatten().collect();
        if !asked.is_empty() {
            let alive = self.documents.alive(asked.clone());
            let alive = self.in_time(until, alive).await??;
            for part in &mut *parts {
                part.alive
                    .extend(asked.iter().map(|client| (*client, alive.contains(client))));
            }
        }
        let is_guessed = self.documents.absent().is_some();
        let needs = |part: &&mut Part| {
            let is_known = is_guessed || lock(&self.cache).entries.contains_key(&part.key);
            !part.is_fresh && (part.needs_fresh || !is_known)
        };
        let keys: Vec<_> = parts
            .iter_mut()
            .filter(needs)
            .map(|part| {
                part.is_fresh = true;
                part.key.clone()
            })
            .collect();
        for keys in keys.chunks(DOCUMENTS_MAX) {
            let read = self.documents.read(keys.to_vec());
            let read = self.in_time(until, read).await??;
            let received = self.clock.now();
            let mut cache = lock(&self.cache);
            for (key, document) in keys.iter().zip(read) {
                cache.put(key.clone(), Some(Entry::new(document, received)));
            }
        }
        Ok(())
    }

    /// Applies the rule to a copy of the document.
    fn run(&self, part: &mut Part) -> Run {
        let known = lock(&self.cache).get(&part.key);
        let guess = || {
            let version = self.documents.absent()?;
            let document = Document {
                version,
                text: None,
                age: Duration::ZERO,
            };
            Some(Entry::new(document, self.clock.now()))
        };
        let Some(entry) = known.or_else(guess) else {
            part.is_fresh = false;
            return Run::Again;
        };
        let (started, wall) = (self.clock.now(), self.wall_time());
        let can_wait = self.documents.capabilities().wakeup == WakeupMode::Grants;
        let cache = lock(&self.cache);
        let ends = cache.ends(&part.key);
        let must_write = cache.pending.get(&part.key) == Some(&entry.version);
        drop(cache);
        part.run(
            (entry, &ends),
            started,
            wall,
            (self.watcher, can_wait),
            must_write,
        )
    }

    /// Registers the observers of this process for a name, unless they are.
    async fn watch(&self, key: &Key) -> Result<()> {
        let now = self.clock.now();
        let is_registered = |since: Instant| now.since(since) < REGISTERED;
        if lock(&self.cache).watched(key).is_some_and(is_registered) {
            return Ok(());
        }
        let mut part = Part::new(key.clone(), vec![0], Work::nothing());
        part.watches_for = Some(WATCHED);
        let mut applied = self.apply(self.turns.queue(vec![part])).await;
        match applied.replies.pop() {
            Some(Reply::Rejected(error) | Reply::Unknown(error)) => Err(error),
            _ => {
                lock(&self.cache).watch(key.clone(), now);
                Ok(())
            }
        }
    }

    fn wall_time(&self) -> StoreTime {
        let moved = |(start, at)| start + self.clock.now().since(at);
        let wall = self.wall_clock.map_or_else(SystemTime::now, moved);
        let wall = wall.duration_since(UNIX_EPOCH);
        StoreTime::default().after_span(wall.unwrap_or_default())
    }
}

impl<D: Documents> fmt::Display for Optimistic<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.documents, f)
    }
}

fn no_reply() -> Error {
    Error::new(ErrorKind::Unreachable, "no reply from the store in time")
}

fn busy() -> Error {
    Error::new(
        ErrorKind::Unreachable,
        "other clients have changed the record before each attempt to write it",
    )
}

#[cfg(test)]
mod tests;
