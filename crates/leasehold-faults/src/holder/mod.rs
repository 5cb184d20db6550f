//! A holder process: acquires locks and records what it observes of them.

mod cycle;
mod elections;
mod fence;
mod hold;
mod keep;
mod permits;
mod stalls;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::__private::store;
use leasehold::clock::Clock;
use leasehold::watchdog::Watchdog;
use leasehold::{Cause, Client, ClientBuilder, ErrorKind, Guard, Instant, State};
use leasehold_testkit::helper::{self, Commands};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub(crate) use self::cycle::{CycleConfig, JOBS, SHARED_NAMES};
pub(crate) use self::elections::{CandidateConfig, ElectionsConfig};
pub(crate) use self::keep::KeepConfig;
pub(crate) use self::permits::{PermitsConfig, relying};
use crate::clock::{self, DriftingClock, Nanos};
use crate::history::{Event, HoldEvent, Journal, LeaseState, ObservationKind, file_of};

/// How long to wait before the next attempt to connect.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// How long the last releases of a process may take.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The orders of the campaign to a holder process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HolderConfig {
    /// The name of the process in the history, and the directory of that.
    pub(crate) process: String,
    pub(crate) directory: PathBuf,
    pub(crate) url: String,
    pub(crate) ttl_ms: u64,
    /// The number of threads that run its tasks.
    pub(crate) threads: usize,
    pub(crate) handoff: bool,
    /// The clock of the library, with a store of documents. `None`: that of the machine.
    pub(crate) clock: Option<DriftingClock>,
    pub(crate) nodes: Nodes,
    pub(crate) workload: Workload,
}

/// The nodes of the watchdog that watch a process. All of them, or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Nodes {
    pub(crate) addresses: Vec<String>,
    /// The certificate authority and the token, for nodes that are reached over TCP.
    pub(crate) tls: Option<(PathBuf, String)>,
}

/// What a holder process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// Acquires and releases a few locks again and again, in all ways.
    Cycle(CycleConfig),
    /// Keeps locks of its own until they are lost or it is requested to release them.
    Keep(KeepConfig),
    /// Observes elections, and perhaps campaigns in them.
    Elections(ElectionsConfig),
    /// Acquires and releases a permit of one semaphore again and again.
    Permits(PermitsConfig),
}

/// The state that all tasks of the process share.
struct Shared {
    config: HolderConfig,
    journal: Journal,
    /// Whether no holds are recorded.
    quiet: bool,
    holds: AtomicU64,
    /// The command `rest` or `work` was received.
    part: Arc<Notify>,
}

impl Shared {
    fn record_start(&self) {
        self.journal.record(&Event::Started {
            ttl_ms: self.config.ttl_ms,
            handoff: self.config.handoff,
        });
    }

    /// Records that an acquisition begins. Returns the number of its hold.
    fn request(&self, name: &str, fixed: bool, reenters: Option<u64>) -> u64 {
        let hold = self.holds.fetch_add(1, Ordering::Relaxed);
        let name = name.to_owned();
        let requested = HoldEvent::Requested {
            name,
            fixed,
            reenters,
        };
        self.record(hold, requested);
        hold
    }

    fn record(&self, hold: u64, event: HoldEvent) {
        if !self.quiet {
            self.journal.record_hold(hold, event);
        }
    }

    /// Records a state that was read after `before`.
    fn observe(&self, hold: u64, before: Nanos, state: State, kind: ObservationKind) {
        let state = self.lease_state(state);
        let event = HoldEvent::Observed {
            before,
            state,
            kind,
        };
        self.record(hold, event);
    }

    /// Records a release, before and after it.
    async fn release(&self, hold: u64, release: impl Future<Output = leasehold::Result<()>>) {
        self.record(hold, HoldEvent::Releasing);
        let outcome = outcome(&release.await);
        self.record(hold, HoldEvent::Released { outcome });
    }

    /// Connects, and returns what is cancelled when the commands have ended; until then, each is handled. `None`: they
    /// ended before there was a connection.
    async fn begin(
        &self,
        mut commands: Commands,
        handle: impl Fn(&str) + Send + 'static,
    ) -> Option<(Client, CancellationToken)> {
        let stop = CancellationToken::new();
        let (stopping, part) = (stop.clone(), Arc::clone(&self.part));
        tokio::spawn(async move {
            while let Some(command) = commands.next().await {
                match &*command {
                    "rest" | "work" => part.notify_one(),
                    command => handle(command),
                }
            }
            stopping.cancel();
        });
        let client = stop.run_until_cancelled(self.connect()).await?;
        Some((client, stop))
    }

    /// Runs tasks, each time until the token that they are given is cancelled: by the end of the commands, or by `rest`.
    /// Then there are none, and nothing is held, until `work`. So a long history has parts that are checked alone.
    async fn run_in_parts(&self, stop: &CancellationToken, run: impl AsyncFn(CancellationToken)) {
        loop {
            let part = stop.child_token();
            let end_part = async {
                stop.run_until_cancelled(self.part.notified()).await;
                part.cancel();
            };
            tokio::join!(run(part.clone()), end_part);
            if !stop.is_cancelled() {
                helper::reply("rests");
                stop.run_until_cancelled(self.part.notified()).await;
            }
            if stop.is_cancelled() {
                return;
            }
            self.record_start();
        }
    }

    /// Connects, however long the store or the nodes are away.
    async fn connect(&self) -> Client {
        let config = &self.config;
        loop {
            let mut builder = Client::builder().ttl(Duration::from_millis(config.ttl_ms));
            if !config.handoff {
                builder = builder.handoff_max(0);
            }
            if let Some(watchdog) = config.nodes.watchdog() {
                builder = builder.watchdog(watchdog);
            }
            match self.try_connect(builder).await {
                Ok(client) => return client,
                Err(error) if error.kind() == ErrorKind::InvalidConfig => panic!("{error}"),
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
    }

    async fn try_connect(&self, builder: ClientBuilder) -> leasehold::Result<Client> {
        let url = &self.config.url;
        let Some(clock) = self.config.clock else {
            return builder.connect(url).await;
        };
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let options = builder.checked_options()?.clock(Arc::clone(&clock));
        let store = store::open_with(url, &options).await?;
        builder.clock(clock).connect(store).await
    }

    /// A state with its deadline by the shared clock.
    fn lease_state(&self, state: State) -> LeaseState {
        let is_watched = !self.config.nodes.addresses.is_empty();
        let shared = |until: Instant| match self.config.clock {
            Some(clock) => clock.shared_time(until),
            None => until.as_nanos(),
        };
        match state {
            State::Held { until } => LeaseState::Held(shared(until)),
            State::Jeopardy {
                until,
                cause: Cause::Paused,
            } if is_watched && shared(until) <= clock::now() => LeaseState::Paused,
            State::Jeopardy { until, cause } => {
                LeaseState::Jeopardy(shared(until), format!("{cause:?}"))
            }
            State::Lost(cause) => LeaseState::Lost(format!("{cause:?}")),
        }
    }
}

impl HolderConfig {
    /// The file of its events.
    pub(crate) fn history(&self) -> PathBuf {
        file_of(&self.directory, &self.process)
    }
}

impl Nodes {
    /// Required, so that a node watches the process before it holds a lock.
    fn watchdog(&self) -> Option<Watchdog> {
        let (first, others) = self.addresses.split_first()?;
        let mut watchdog = Watchdog::at(first).unwrap().required();
        for node in others {
            watchdog = watchdog.and(node).unwrap();
        }
        if let Some((ca, token)) = &self.tls {
            watchdog = watchdog.ca_file(ca).token(token.as_str());
        }
        Some(watchdog)
    }
}

/// Runs until its work is done or its commands end.
pub(crate) fn run(config: HolderConfig, commands: Commands) {
    let mut builder = match config.threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(config.threads).enable_all().build();
    let shared = Arc::new(Shared {
        journal: Journal::open(&config.history()),
        quiet: matches!(&config.workload, Workload::Keep(keep) if keep.quiet),
        config,
        holds: AtomicU64::new(0),
        part: Arc::default(),
    });
    shared.record_start();
    runtime.unwrap().block_on(async {
        match shared.config.workload.clone() {
            Workload::Cycle(config) => cycle::run(&shared, config, commands).await,
            Workload::Keep(config) => keep::run(&shared, &config, commands).await,
            Workload::Elections(config) => elections::run(&shared, config, commands).await,
            Workload::Permits(config) => permits::run(&shared, config, commands).await,
        }
    });
}

/// The event of a grant.
pub(crate) fn granted(guard: &Guard, ttl_ms: u64) -> HoldEvent {
    HoldEvent::Granted {
        lease: guard.lease_id().to_string(),
        token: guard.token().get(),
        ttl_ms,
    }
}

/// The outcome of a release. [`leasehold::Mutex::run`] does not return that of its own.
fn outcome(released: &Result<(), leasehold::Error>) -> String {
    match released {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    }
}
