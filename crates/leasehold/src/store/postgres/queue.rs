//! The queue of jobs, and the connections that run them.
//!
//! Each connection takes all jobs that wait, as far as they fit into one transaction, and none for a name that another one
//! has under way: so jobs for one name are run in their order, and a slow name delays no other.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use leasehold_core::ClientId;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::address::Address;
use super::commit::{self, LOCK, RECORDS, RELIED_ON};
use super::connection::Connection;
use super::error::{
    Fault, describe, has_ended, is, no_reply, not_replicated, refuses_writes, relied_on,
};
use super::gc::GarbageCollector;
use super::load::{Load, load};
use super::parameters::Columns;
use super::records::LoadedRecords;
use crate::Result;
use crate::store::api::{Key, Reply};
use crate::store::lock::lock;
use crate::store::tasks;
use crate::store::work::{Failure, Work};

/// How many connections run jobs at once.
const CONNECTIONS: usize = 4;

/// How many of them stay open without a job.
const IDLE_MAX: usize = 2;

/// How many observers read at once, each on a connection.
const OBSERVERS_MAX: usize = IDLE_MAX;

/// The number of operations of a transaction, so that the first does not wait long for the last, and few locks of the server
/// are taken. A larger batch is not split.
const OPS_MAX: usize = 256;

/// How long a commit may take before its connection is given up: far longer than anybody waits for the reply.
const COMMIT_MAX: Duration = Duration::from_secs(30);

/// The connections of a store, and its jobs.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) address: Address,
    /// How long a job may take until its commit is sent.
    limit: Duration,
    /// Begins a transaction that writes.
    pub(super) begin: String,
    /// The client that is notified for the observers of this store.
    pub(super) watcher: ClientId,
    state: Mutex<PoolState>,
    gc: Mutex<GarbageCollector>,
    /// A permit for each observer that reads.
    pub(super) observers: Semaphore,
    /// Whether other processes can notify the clients of this one.
    pub(super) can_wait: AtomicBool,
    pub(super) transactions: AtomicU64,
}

/// A batch of requests that waits or is under way.
#[derive(Debug)]
struct Job {
    work: Work,
    /// The caller of work that is left of others is gone.
    reply: Option<oneshot::Sender<Vec<Reply>>>,
    /// When nobody waits any longer.
    until: Instant,
    /// Whether it waits for transactions of users, and so is run alone.
    is_patient: bool,
}

#[derive(Debug, Default)]
struct PoolState {
    queue: VecDeque<Job>,
    /// The names that are under way.
    busy: HashSet<Key>,
    running: usize,
    idle: Vec<Connection>,
}

/// Jobs under way. Dropped, their names are free again.
struct Batch {
    pool: Arc<Pool>,
    jobs: Vec<Job>,
    /// Those that must wait for a transaction of a user.
    patient: Vec<Job>,
    keys: BTreeSet<Key>,
}

impl Job {
    fn fail(self, failure: &Failure) {
        let replies = self.work.fail(failure);
        let _ = self.reply.map(|reply| reply.send(replies));
    }
}

impl Pool {
    pub(super) fn new(address: Address, limit: Duration, watcher: ClientId) -> Self {
        let (commit, millis) = (&address.synchronous_commit, limit.as_millis());
        Self {
            begin: format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = pg_catalog; \
                 SET LOCAL client_min_messages = warning; SET LOCAL synchronous_commit = {commit}; \
                 SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {millis}; \
                 SET LOCAL idle_in_transaction_session_timeout = {millis}"
            ),
            address,
            limit,
            watcher,
            state: Mutex::default(),
            gc: Mutex::new(GarbageCollector::new()),
            observers: Semaphore::new(OBSERVERS_MAX),
            can_wait: AtomicBool::new(false),
            transactions: AtomicU64::new(0),
        }
    }

    /// Adds work, and runs it as soon as a connection is free.
    pub(super) fn add(self: &Arc<Self>, work: Work, reply: Option<oneshot::Sender<Vec<Reply>>>) {
        let job = Job {
            work,
            reply,
            until: Instant::now() + self.limit,
            is_patient: false,
        };
        lock(&self.state).queue.push_back(job);
        self.start();
    }

    /// A connection without a job, or a new one. It is given back by [`Pool::put_back`].
    pub(super) async fn connection(&self) -> Result<Connection> {
        loop {
            let idle = lock(&self.state).idle.pop();
            match idle {
                Some(idle) if idle.is_closed() => {}
                Some(idle) => return Ok(idle),
                None => {
                    let Address { tls, hosts, .. } = &self.address;
                    return Connection::open(tls, hosts, None).await;
                }
            }
        }
    }

    /// Keeps a connection on which no transaction is open.
    pub(super) fn put_back(&self, connection: Connection) {
        let mut state = lock(&self.state);
        if state.idle.len() < IDLE_MAX && !connection.is_closed() {
            state.idle.push(connection);
        }
    }

    /// Runs the jobs that wait, as far as connections are free.
    fn start(self: &Arc<Self>) {
        let mut late = Vec::new();
        while let Some(batch) = self.take(&mut late) {
            tasks::spawn(batch.run());
        }
        for job in late {
            job.fail(&Failure {
                error: no_reply(),
                is_certain: true,
                lost: None,
            });
        }
    }

    /// Takes the jobs of one transaction, and those that are too late for any: they would leave it no time.
    fn take(self: &Arc<Self>, late: &mut Vec<Job>) -> Option<Batch> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.running >= CONNECTIONS {
            return None;
        }
        let (mut jobs, mut keys) = (Vec::<Job>::new(), BTreeSet::new());
        let (mut passed, mut ops) = (HashSet::new(), 0);
        let now = Instant::now();
        for job in std::mem::take(&mut state.queue) {
            if job.until <= now {
                late.push(job);
                continue;
            }
            let requests = job.work.requests().iter();
            let names: Vec<_> = requests.map(|request| request.key.clone()).collect();
            let is_alone = job.is_patient || jobs.iter().any(|taken| taken.is_patient);
            let has_room = jobs.is_empty() || (!is_alone && ops + job.work.len() <= OPS_MAX);
            let is_taken = |key: &Key| state.busy.contains(key) || passed.contains(key);
            if has_room && !names.iter().any(is_taken) {
                ops += job.work.len();
                keys.extend(names);
                jobs.push(job);
            } else {
                passed.extend(names);
                state.queue.push_back(job);
            }
        }
        if jobs.is_empty() {
            return None;
        }
        state.busy.extend(keys.iter().cloned());
        state.running += 1;
        Some(Batch {
            pool: Arc::clone(self),
            jobs,
            patient: Vec::new(),
            keys,
        })
    }
}

impl Batch {
    async fn run(mut self) {
        let until = self.jobs.iter().map(|job| job.until).min();
        let until = until.unwrap_or_else(Instant::now);
        match self.commit(until).await {
            Ok(connection) => {
                self.pool.transactions.fetch_add(1, Ordering::Relaxed);
                let ops = self.jobs.iter().map(|job| job.work.len()).sum();
                for job in self.jobs.drain(..) {
                    let (replies, rest) = job.work.finish();
                    let _ = job.reply.map(|reply| reply.send(replies));
                    if let Some(rest) = rest {
                        self.pool.add(rest, None);
                    }
                }
                self.collect_garbage(connection, ops).await;
            }
            Err(failure) => {
                for job in self.jobs.drain(..).chain(self.patient.drain(..)) {
                    job.fail(&failure);
                }
            }
        }
        let pool = Arc::clone(&self.pool);
        drop(self);
        pool.start();
    }

    /// Commits the jobs.
    async fn commit(&mut self, until: Instant) -> Result<Connection, Failure> {
        let failure = |error, is_certain| Failure {
            error,
            is_certain,
            lost: None,
        };
        let prepared = self.prepare(until).await;
        let (connection, records) = prepared.map_err(|error| failure(error, true))?;
        self.requeue();
        let unreplicated = connection.unreplicated.load(Ordering::Acquire);
        let commit = commit::commit(&connection.client, &records);
        match timeout(COMMIT_MAX, commit).await {
            Ok(Ok(Ok(()))) if connection.unreplicated.load(Ordering::Acquire) == unreplicated => {
                Ok(connection)
            }
            // It did not wait for the standby. What is repeated and granted or confirmed is written, and waits.
            Ok(Ok(Ok(()))) => Err(failure(not_replicated(), false)),
            // The server has undone it.
            Ok(Ok(Err(error))) => {
                self.pool.put_back(connection);
                Err(failure(describe(error), true))
            }
            Ok(Err(error)) => Err(failure(describe(error), false)),
            Err(_) => Err(failure(no_reply(), false)),
        }
    }

    /// Does all that comes before the commit. A connection that the server has ended meanwhile fails at its first request,
    /// with nothing applied; then it tries another one.
    async fn prepare(&mut self, until: Instant) -> Result<(Connection, LoadedRecords)> {
        for _ in 0..=IDLE_MAX {
            match timeout_at(until, self.begin()).await {
                Ok(Ok(Some(begun))) => return Ok(begun),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) if self.is_patient() => return Err(relied_on()),
                Err(_) => return Err(no_reply()),
            }
        }
        Err(no_reply())
    }

    fn is_patient(&self) -> bool {
        self.jobs.iter().any(|job| job.is_patient)
    }

    /// Begins the transaction, and runs the jobs in it. `None`: the connection had ended.
    async fn begin(&mut self) -> Result<Option<(Connection, LoadedRecords)>> {
        let connection = self.pool.connection().await?;
        self.jobs.append(&mut self.patient);
        match self.run_jobs(&connection.client).await {
            Ok(records) => Ok(Some((connection, records))),
            Err(Fault::Reply(error)) if has_ended(&error) => Ok(None),
            Err(fault) => {
                // The next connection finds the server that can be written.
                let is_standby = matches!(&fault, Fault::Reply(error) if refuses_writes(error));
                if !is_standby && connection.client.batch_execute("ROLLBACK").await.is_ok() {
                    self.pool.put_back(connection);
                }
                Err(match fault {
                    // A lock was not free in time.
                    Fault::Reply(error) if self.is_patient() && is(&error, "55P03") => relied_on(),
                    fault => fault.into(),
                })
            }
        }
    }

    /// The first round trip: the locks of the names, and their records. Then it runs the jobs, and returns the records with
    /// their changes. Those that must wait for a transaction of a user become `patient`.
    async fn run_jobs(&mut self, client: &Client) -> Result<LoadedRecords, Fault> {
        let mut records = LoadedRecords {
            can_wait: self.pool.can_wait.load(Ordering::Relaxed),
            watcher: Some(self.pool.watcher),
            ..LoadedRecords::default()
        };
        let keys: Vec<_> = self.keys.iter().cloned().collect();
        let columns = Columns::of(keys.iter());
        let names = columns.parameters();
        let lock = |seed: &'static i64| {
            let mut parameters = names.to_vec();
            parameters.push((seed, Type::INT8));
            async move { client.query_typed(LOCK, &parameters).await.map(drop) }
        };
        let mut sent: Vec<BoxFuture<'_, Result<(), Error>>> =
            vec![client.batch_execute(&self.pool.begin).boxed()];
        if self.is_patient() {
            sent.push(lock(&RELIED_ON).boxed());
        }
        sent.push(lock(&RECORDS).boxed());
        let requests = self.jobs.iter().flat_map(|job| job.work.requests());
        let parts = Load::of_requests(keys.clone(), requests);
        let (sent, loaded) = tokio::join!(biased; join_all(sent), parts.run(client, &mut records));
        sent.into_iter().collect::<Result<(), _>>()?;
        loaded?;
        loop {
            let mut changed = records.clone();
            let mut jobs = self.jobs.iter_mut().enumerate();
            let failed = jobs.find_map(|(index, job)| {
                let fault = job.work.run(&mut changed).err()?;
                Some((index, fault))
            });
            match failed {
                None => {
                    for key in self.jobs.iter().flat_map(|job| job.work.confirmed()) {
                        changed.write_head(key);
                    }
                    return Ok(changed);
                }
                Some((_, Fault::Missing(need))) => load(client, need, &mut records).await?,
                Some((index, Fault::ReliedOn)) => self.patient.push(self.jobs.remove(index)),
                Some((_, fault)) => return Err(fault),
            }
        }
    }

    /// Lets jobs wait for transactions of users, before those that came after them.
    fn requeue(&mut self) {
        let mut state = lock(&self.pool.state);
        for mut job in self.patient.drain(..).rev() {
            job.is_patient = true;
            job.until = Instant::now() + self.pool.limit;
            state.queue.push_front(job);
        }
    }

    /// Removes what has ended, if it is time for that.
    async fn collect_garbage(&self, connection: Connection, ops: usize) {
        let run = lock(&self.pool.gc).count_writes(ops);
        if let Some(run) = run {
            match timeout(COMMIT_MAX, run.run(&connection.client)).await {
                Ok(Ok(next)) => lock(&self.pool.gc).go_on(next),
                Ok(Err(error)) => tracing::debug!(%error, "what has ended could not be removed"),
                Err(_) => return,
            }
        }
        self.pool.put_back(connection);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut state = lock(&self.pool.state);
        for key in &self.keys {
            state.busy.remove(key);
        }
        state.running = state.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Op;

    use super::*;
    use crate::store::api::Request;
    use crate::store::api::fixture::key;
    use crate::store::options::OpenOptions;

    /// Jobs are late if commits on all connections had no reply.
    #[tokio::test]
    async fn a_job_that_is_late_leaves_the_others_their_time() {
        let address = Address::parse("postgres://u@h/d", &OpenOptions::default()).unwrap();
        let watcher = ClientId::from_random([0; 16]);
        let pool = Arc::new(Pool::new(address, Duration::ZERO, watcher));
        let now = Instant::now();
        for (name, until) in [("late", now), ("new", now + Duration::from_secs(60))] {
            let requests = vec![Request::new(key(name), Op::Serve)];
            lock(&pool.state).queue.push_back(Job {
                work: Work::new(&Arc::default(), requests),
                reply: None,
                until,
                is_patient: false,
            });
        }
        let mut late = Vec::new();
        let batch = pool.take(&mut late).unwrap();
        let names = |jobs: &[Job]| -> Vec<_> {
            let requests = jobs.iter().flat_map(|job| job.work.requests());
            requests.map(|request| request.key.clone()).collect()
        };
        assert_eq!(
            (names(&late), names(&batch.jobs)),
            (vec![key("late")], vec![key("new")])
        );
    }
}
