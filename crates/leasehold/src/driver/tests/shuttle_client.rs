//! A client and its renewer under a model checker.
//!
//! Tasks acquire leases, keep them for a while, and release them, drop them, or leave before they have them, while
//! time goes on, the store hints that something has changed, and its replies fail or are lost. In every order, no
//! renewal of a lease is begun or in flight after its release has returned, and a lease that nobody ever held is
//! never renewed. A lease that is due or in doubt is renewed: otherwise its holder waits for ever, which the
//! checker reports as a deadlock.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::acquisition::GrantedLease;
use leasehold_core::{
    Cause, Claim, ClientId, Handoff, HoldId, Instant, Lease, LeaseId, Policy, RenewalOptions,
    State, Term, Token, TokenCount, Ttl,
};
use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use tokio::sync::Notify;

use super::super::acquire::{self, AcquireRequest, Acquired, Wait};
use super::super::active_lease::ActiveLease;
use super::super::context::AcquireOptions;
use super::super::hold::Hold;
use super::super::primitives::{Mutex, Runtime, lock};
use super::super::renew::Renewer;
use super::super::watchdog::WatchdogClient;
use super::super::{Context as DriverContext, Driver, shutdown};
use super::recording_store::RecordingStore;
use super::{a_while, ended, key, poll_times};
use crate::Durability;
use crate::clock::Clock;
use crate::store::{BoxFuture, ClientInfo, Event, EventScope, Listener, Parts, Store};

const RUNS: usize = 2_000;
const CLIENT_RUNS: usize = 400;
const TASKS: u8 = 3;
const TTL: Duration = Duration::from_secs(30);
const CLIENT: ClientId = ClientId::from_random([1; 16]);
const NO_HANDOFF: Handoff = Handoff {
    max: 0,
    time: Duration::ZERO,
};

/// A clock that the model moves. Nothing happens at the same instant as anything else.
#[derive(Debug, Default)]
pub(super) struct ModelClock {
    nanos: AtomicU64,
    moved: Notify,
}

impl ModelClock {
    pub(super) fn go_on(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap();
        self.nanos.fetch_add(nanos, Ordering::SeqCst);
        self.moved.notify_waiters();
    }
}

impl Clock for ModelClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.nanos.fetch_add(1, Ordering::SeqCst))
    }

    fn sleep_until(&self, instant: Instant) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let moved = self.moved.notified();
                if self.now() >= instant {
                    return;
                }
                moved.await;
            }
        })
    }
}

pub(super) fn policy() -> Policy {
    Policy::of(Ttl::checked(TTL).unwrap())
}

fn context(store: &Arc<RecordingStore>, clock: &Arc<ModelClock>) -> DriverContext {
    let store = Arc::clone(store) as Arc<dyn Store>;
    DriverContext::new(store, Arc::clone(clock) as Arc<dyn Clock>, Runtime)
}

/// A whole client on a store.
pub(super) fn driver(store: &Arc<RecordingStore>, clock: &Arc<ModelClock>) -> Arc<Driver> {
    Driver::start(
        context(store, clock),
        (CLIENT, key(0).space, ClientInfo::default()),
        NO_HANDOFF,
        WatchdogClient::default(),
    )
}

/// Ends the task of a renewer. The model checker would end it by a panic, which it survives.
pub(super) async fn stop(renewer: &Renewer) {
    let Some(task) = &renewer.task else { return };
    task.abort();
    while !task.is_finished() {
        yield_now().await;
    }
}

/// Acquires a lock, or leaves before that, as often as `leaves` says.
pub(super) async fn acquire(
    driver: &Arc<Driver>,
    name: u8,
    claim: Claim,
    leaves: f64,
) -> Option<Hold> {
    let lease = RenewalOptions {
        policy: policy(),
        fixed: None,
    };
    let request = AcquireRequest {
        key: key(name),
        options: AcquireOptions {
            lease,
            durability: Durability::None,
            claim,
            run: None,
        },
        wait: Wait::Forever,
        since: driver.context.clock.now(),
    };
    let mut acquiring = pin!(acquire::acquire(driver, &request));
    let acquired = match thread_rng().gen_bool(leaves) {
        true => {
            let polls = thread_rng().gen_range(0..12);
            poll_times(&mut acquiring, polls).await?
        }
        false => acquiring.await,
    };
    match acquired {
        Ok(Acquired::Held(hold, _)) => Some(hold),
        _ => None,
    }
}

/// A whole client.
struct World {
    clock: Arc<ModelClock>,
    store: Arc<RecordingStore>,
    driver: Arc<Driver>,
    /// The leases of holds that were dropped.
    dropped: Mutex<Vec<Arc<ActiveLease>>>,
}

impl World {
    fn new(faults: bool) -> Arc<Self> {
        let clock = Arc::new(ModelClock::default());
        let store = RecordingStore::new(Arc::clone(&clock) as Arc<dyn Clock>, faults);
        let driver = driver(&store, &clock);
        Arc::new(Self {
            clock,
            store,
            driver,
            dropped: Mutex::default(),
        })
    }

    /// One task: acquires a lock, perhaps leaves early, and releases it in one way or the other.
    async fn visit(self: Arc<Self>, name: u8) {
        a_while().await;
        let Some(hold) = acquire(&self.driver, name, Claim::Mutex, 0.4).await else {
            return;
        };
        let lease = hold.lease.id;
        self.store.in_hand(lease);
        a_while().await;
        if thread_rng().gen_bool(0.3) {
            return self.drop_hold(hold);
        }
        // Lost or not, and confirmed or not: the hold has ended.
        drop(hold.release().await);
        self.store.released(lease);
    }

    fn drop_hold(&self, hold: Hold) {
        lock(&self.dropped).push(Arc::clone(&hold.lease));
        drop(hold);
    }

    async fn disturb(self: Arc<Self>) {
        for _ in 0..2 {
            a_while().await;
            self.driver.notify(match thread_rng().gen_range(0..3) {
                0 => Event::Interrupted(EventScope::Store),
                _ => Event::Changed(key(thread_rng().gen_range(0..2))),
            });
        }
    }

    async fn go_on(self: Arc<Self>) {
        loop {
            let millis = [100, 1_000, 5_000][thread_rng().gen_range(0..3)];
            self.clock.go_on(Duration::from_millis(millis));
            yield_now().await;
        }
    }
}

/// Returns the number of renewals.
fn run_client(faults: bool) -> u64 {
    let world = World::new(faults);
    let time = spawn(Arc::clone(&world).go_on());
    let hints = spawn(Arc::clone(&world).disturb());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let name = thread_rng().gen_range(0..2);
            spawn(Arc::clone(&world).visit(name))
        })
        .collect();
    block_on(async {
        ended(tasks).await;
        hints.await.unwrap();
        // One that is held still when the client is shut down, unless it is lost before.
        let kept = acquire(&world.driver, TASKS, Claim::Mutex, 0.4).await;
        if let Some(kept) = &kept {
            world.store.in_hand(kept.lease.id);
        }
        a_while().await;
        shutdown::shut_down(&world.driver).await;
        if let Some(kept) = &kept
            && kept.state() == State::Lost(Cause::Released)
        {
            world.store.released(kept.lease.id);
        }
        // One that was lost before is released by its drop, as long as time goes on.
        if let Some(kept) = kept {
            world.drop_hold(kept);
        }
        shutdown::shut_down(&world.driver).await;
        // A drop does not wait for the renewal that is under way.
        let dropped = std::mem::take(&mut *lock(&world.dropped));
        for lease in dropped {
            lease.no_renewal().await;
        }
        world.store.all_given_back();
        a_while().await;
        time.abort();
        stop(&world.driver.renewer).await;
    });
    world.store.check()
}

#[test]
fn no_renewal_is_begun_or_under_way_after_a_release() {
    let renewals = Arc::new(AtomicU64::new(0));
    for faults in [false, true] {
        let count = Arc::clone(&renewals);
        let run = move || {
            count.fetch_add(run_client(faults), Ordering::Relaxed);
        };
        check_random(run.clone(), CLIENT_RUNS);
        check_pct(run, CLIENT_RUNS, 3);
    }
    // If there were hardly any, the model would say nothing.
    let renewals = renewals.load(Ordering::Relaxed);
    assert!(renewals > 200, "{renewals} renewals");
}

/// The client is shut down while tasks release their leases, or drop them.
fn run_shutdown() {
    let world = World::new(false);
    block_on(async {
        let mut tasks = Vec::new();
        for name in 0..TASKS {
            let hold = acquire(&world.driver, name, Claim::Mutex, 0.0).await;
            let hold = hold.unwrap();
            tasks.push(spawn(async move {
                match thread_rng().gen_bool(0.5) {
                    true => drop(hold),
                    false => drop(hold.release().await),
                }
            }));
        }
        a_while().await;
        shutdown::shut_down(&world.driver).await;
        for name in 0..TASKS {
            let store = &world.driver.context.store;
            let view = store.view(&key(name), Parts::Lease).await.unwrap();
            assert!(view.holder.is_none(), "{name} is held after the shutdown");
        }
        ended(tasks).await;
        stop(&world.driver.renewer).await;
    });
}

#[test]
fn a_shutdown_waits_for_all_releases_that_have_begun() {
    check_random(run_shutdown, RUNS);
    check_pct(run_shutdown, RUNS, 3);
}

/// A part of a release that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutation {
    None,
    /// Renewals in flight are not waited for.
    DoesNotWait,
    /// The hold stays in the lease: a renewal that waits for its permit does not see the release.
    StaysCounted,
}

/// The renewer of a client, and leases that nobody acquired.
impl World {
    fn lease(&self, name: u8) -> (Arc<ActiveLease>, HoldId) {
        let id = LeaseId {
            client: CLIENT,
            number: u64::from(name),
        };
        let sent = self.clock.now();
        let first = Token::new(1).unwrap();
        let (lease, hold) = Lease::granted(policy(), policy().ttl, Term::Renewed, sent);
        let granted = GrantedLease {
            id,
            lease,
            hold,
            first,
            tokens: TokenCount::MIN,
            late_release: None,
            run: None,
        };
        let held = ActiveLease::new(
            key(name),
            granted,
            Durability::None,
            NO_HANDOFF,
            Arc::default(),
            sent,
        );
        self.store.grant(&held);
        self.store.in_hand(id);
        (Arc::new(held), hold)
    }

    /// One task. Alone, it releases its lease while a renewal is under way; among others, at any moment.
    async fn release(self: Arc<Self>, name: u8, mutation: Mutation, alone: bool) {
        let (held, hold) = self.lease(name);
        self.driver.renewer.insert(&held, self.clock.now());
        a_while().await;
        self.clock.go_on(TTL / 3);
        match alone {
            true => self.store.renewed_after(held.id, Instant::default()).await,
            false => a_while().await,
        }
        if mutation != Mutation::StaysCounted {
            held.lock().lease.holds_mut().leave(hold);
        }
        self.driver.renewer.remove(&held);
        self.store
            .apply(vec![held.second_release().request(Instant::default())])
            .await;
        if mutation != Mutation::DoesNotWait {
            held.no_renewal().await;
        }
        self.store.released(held.id);
        a_while().await;
    }
}

fn run_releases(mutation: Mutation, tasks: u8) {
    // A store that panics beside the panic that is expected would abort the process.
    let world = World::new(mutation == Mutation::None);
    let tasks: Vec<_> = (0..tasks)
        .map(|name| spawn(Arc::clone(&world).release(name, mutation, tasks == 1)))
        .collect();
    block_on(async {
        ended(tasks).await;
        stop(&world.driver.renewer).await;
    });
    world.store.check();
}

pub(super) fn check_random(run: impl Fn() + Send + Sync + 'static, runs: usize) {
    let scheduler = shuttle::scheduler::RandomScheduler::new(runs);
    shuttle::Runner::new(scheduler, roomy()).run(run);
}

pub(super) fn check_pct(run: impl Fn() + Send + Sync + 'static, runs: usize, depth: usize) {
    let scheduler = shuttle::scheduler::PctScheduler::new(depth, runs);
    shuttle::Runner::new(scheduler, roomy()).run(run);
}

/// Stacks that the futures of a whole client fit on, unoptimised.
fn roomy() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config
}

#[test]
fn a_release_is_the_end_of_renewals() {
    check_random(|| run_releases(Mutation::None, TASKS), RUNS);
    check_random(|| run_releases(Mutation::None, 1), RUNS);
}

#[test]
#[should_panic(expected = "after its release")]
fn a_release_that_does_not_wait_for_renewals_is_noticed() {
    check_random(|| run_releases(Mutation::DoesNotWait, 1), RUNS);
}

#[test]
#[should_panic(expected = "after its release")]
fn a_release_that_a_waiting_renewal_does_not_see_is_noticed() {
    check_random(|| run_releases(Mutation::StaysCounted, TASKS), RUNS);
}

/// Time goes on once and then stands still; a hint comes once, perhaps while a renewal is in flight. A forgotten
/// lease is waited for for ever.
fn run_due_and_doubted() {
    let world = World::new(false);
    let tasks: Vec<_> = (0..2)
        .map(|name| {
            let (world, held) = (Arc::clone(&world), world.lease(name).0);
            world.driver.renewer.insert(&held, world.clock.now());
            spawn(async move {
                a_while().await;
                let since = world.clock.now();
                let hint = thread_rng().gen_range(0..4);
                match hint {
                    0 => world.driver.renewer.check(&held),
                    1 => world.driver.renewer.interrupted(EventScope::Store),
                    2 => world.driver.renewer.revisit(&held),
                    _ => {}
                }
                if hint < 2 {
                    world.store.renewed_after(held.id, since).await;
                }
                let due = Instant::default().after(TTL / 4);
                world.store.renewed_after(held.id, due).await;
            })
        })
        .collect();
    block_on(async {
        a_while().await;
        world.clock.go_on(TTL / 3);
        ended(tasks).await;
        stop(&world.driver.renewer).await;
    });
    world.store.check();
}

#[test]
fn a_lease_that_is_due_or_in_doubt_is_renewed() {
    check_random(run_due_and_doubted, RUNS);
    check_pct(run_due_and_doubted, RUNS, 3);
}
