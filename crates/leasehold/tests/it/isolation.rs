//! Failures of some leases do not affect the others, on a clock that the tests move.

pub(crate) mod listeners;
mod shards;

use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{MemoryStore, Store};
use leasehold::clock::{Clock, ManualClock};
use leasehold::{Cause, Client, Guard, State, StateKind};

use self::listeners::{Logs, Metrics, ShakyClock};
use self::shards::{SLOW, ShardFault, Shards};
use crate::harness::{SECOND, TTL, settle};

const LEASES: usize = 40;
const STEP: Duration = Duration::from_millis(100);
/// No renewal is due later than this after the one before.
const INTERVAL: Duration = Duration::from_secs(10);

/// A client with leases on a good shard and on one whose fault the test sets.
struct Scenario {
    clock: ManualClock,
    shaky: Arc<ShakyClock>,
    store: Arc<Shards>,
    client: Client,
    good: Vec<Guard>,
    bad: Vec<Guard>,
}

impl Scenario {
    async fn new() -> Self {
        let clock = ManualClock::new();
        let shaky = Arc::new(ShakyClock::new(clock.clone()));
        let memory = MemoryStore::with_clock(Arc::new(clock.clone()));
        let store = Arc::new(Shards::new(memory, clock.clone()));
        let client = Client::builder()
            .ttl(TTL)
            .clock(Arc::clone(&shaky) as Arc<dyn Clock>)
            .build(Arc::clone(&store) as Arc<dyn Store>)
            .unwrap();
        let mut scenario = Self {
            clock,
            shaky,
            store,
            client,
            good: Vec::new(),
            bad: Vec::new(),
        };
        for index in 0..LEASES {
            let good = scenario.lock(&format!("good/{index}")).await;
            let bad = scenario.lock(&format!("bad/{index}")).await;
            scenario.good.push(good);
            scenario.bad.push(bad);
        }
        scenario
    }

    async fn lock(&self, name: &str) -> Guard {
        self.client.mutex(name).unwrap().lock().await.unwrap()
    }

    async fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
        settle().await;
    }

    /// Lets time go on. The good leases are held and renewed on time, whatever the others do.
    async fn advance_checked(&self, duration: Duration) {
        let end = self.clock.now().after(duration);
        while self.clock.now() < end {
            self.advance(STEP).await;
            self.good_are_well();
        }
    }

    fn good_are_well(&self) {
        let now = self.clock.now();
        let renewed = self.store.renewed();
        for guard in &self.good {
            assert!(guard.state().is_held(), "{:?}", guard.state());
            let last = renewed.get(&guard.lease_id());
            let last = last.copied().unwrap_or_default();
            assert!(now.since(last) <= INTERVAL + STEP * 2, "renewed too late");
        }
    }

    fn bad_are(&self, wanted: impl Fn(State) -> bool) {
        for guard in &self.bad {
            assert!(wanted(guard.state()), "{:?}", guard.state());
        }
    }

    /// The bad shard stays as it is: each of its leases is in jeopardy, then lost in time.
    async fn bad_are_lost_in_time(&self) {
        let begun = self.clock.now();
        let mut jeopardy = vec![None; LEASES];
        while self.clock.now().since(begun) < TTL * 2 / 3 {
            self.advance_checked(STEP).await;
            let now = self.clock.now();
            for (guard, jeopardy) in self.bad.iter().zip(&mut jeopardy) {
                if let State::Jeopardy { cause, .. } = guard.state() {
                    assert_eq!(cause, Cause::Unreachable);
                    jeopardy.get_or_insert(now);
                }
            }
        }
        assert!(jeopardy.iter().all(Option::is_some), "without jeopardy");
        self.bad_are(|state| state == State::Lost(Cause::Unreachable));
        // No other client can acquire them yet.
        let lock = self.client.mutex("bad/0").unwrap().inspect().await;
        assert!(lock.unwrap().unwrap().time_left >= TTL / 3 - SECOND);
    }

    /// The bad shard recovers while its leases are in jeopardy.
    async fn bad_recover(&self, fault: ShardFault) {
        self.advance_checked(SECOND * 5).await;
        self.store.set(fault);
        self.advance_checked(SECOND * 9).await;
        self.bad_are(|state| matches!(state, State::Jeopardy { .. }));
        self.store.set(ShardFault::None);
        self.advance_checked(SECOND * 2).await;
        self.bad_are(|state| state.is_held());
        self.advance_checked(TTL).await;
        self.bad_are(|state| state.is_held());
    }
}

#[tokio::test]
async fn a_silent_shard_delays_no_other() {
    let scenario = Scenario::new().await;
    scenario.store.set(ShardFault::Silent);
    scenario.bad_are_lost_in_time().await;
    scenario.advance_checked(TTL * 2).await;
    // Requests without a reply are given up, so the shard can be used again.
    scenario.store.set(ShardFault::None);
    let later = scenario.lock("bad/later").await;
    scenario.advance_checked(TTL * 2).await;
    assert!(later.state().is_held(), "{:?}", later.state());
    // And releases do not wait for it.
    for guard in scenario.bad {
        assert!(guard.release().await.is_err());
    }
}

#[tokio::test]
async fn a_slow_shard_delays_no_other() {
    let scenario = Scenario::new().await;
    scenario.store.set(ShardFault::Slow);
    for _ in 0..60 {
        scenario.advance_checked(SECOND).await;
        scenario.bad_are(|state| !state.is_lost());
    }
    let renewed = scenario.store.renewed();
    for guard in &scenario.bad {
        let last = renewed[&guard.lease_id()];
        assert!(scenario.clock.now().since(last) < INTERVAL + SLOW * 3);
    }
}

#[tokio::test]
async fn errors_and_panics_for_one_shard_affect_no_other() {
    for fault in [
        ShardFault::Fails,
        ShardFault::Panics,
        ShardFault::PanicsLater,
    ] {
        let scenario = Scenario::new().await;
        scenario.store.set(fault);
        scenario.bad_are_lost_in_time().await;
        Scenario::new().await.bad_recover(fault).await;
    }
}

/// The renewal is sent as one of another shard.
#[tokio::test]
async fn a_panic_in_the_choice_of_the_shard_affects_no_lease() {
    let scenario = Scenario::new().await;
    scenario.store.set(ShardFault::Nowhere);
    scenario.advance_checked(TTL * 2).await;
    scenario.bad_are(|state| state.is_held());
}

/// All leases of a shard are due together and renewed in one batch; one of them gets a bad reply.
#[tokio::test]
async fn a_bad_reply_affects_one_lease() {
    let jeopardy = StateKind::Jeopardy(Cause::Unreachable);
    let expected = [
        (ShardFault::Rejected, jeopardy),
        (ShardFault::Unknown, jeopardy),
        (ShardFault::Free, StateKind::Lost(Cause::Deleted)),
        (ShardFault::TakenOver, StateKind::Lost(Cause::TakenOver)),
        (ShardFault::Refused, StateKind::Lost(Cause::TakenOver)),
        (ShardFault::Granted, StateKind::Lost(Cause::Deleted)),
        (ShardFault::Exhausted, StateKind::Lost(Cause::Deleted)),
    ];
    for (fault, kind) in expected {
        let scenario = Scenario::new().await;
        scenario.store.set(fault);
        scenario.advance(INTERVAL).await;
        scenario.good_are_well();
        let (first, others) = scenario.bad.split_first().unwrap();
        assert_eq!(first.state().kind(), kind, "{fault:?}");
        assert!(others.iter().all(|guard| guard.state().is_held()));
        scenario.store.set(ShardFault::None);
        scenario.advance_checked(SECOND * 2).await;
        assert_eq!(first.state().is_held(), kind == jeopardy, "{fault:?}");
        assert!(others.iter().all(|guard| guard.state().is_held()));
    }
}

#[tokio::test]
async fn missing_replies_affect_their_leases_and_surplus_ones_none() {
    for (fault, replies) in [
        (ShardFault::Short(0), 0),
        (ShardFault::Short(1), 1),
        (ShardFault::Short(LEASES - 1), LEASES - 1),
        (ShardFault::TooMany, LEASES),
    ] {
        let scenario = Scenario::new().await;
        scenario.store.set(fault);
        scenario.advance(INTERVAL).await;
        scenario.good_are_well();
        let held = scenario.bad.iter().filter(|guard| guard.state().is_held());
        assert_eq!(held.count(), replies);
        scenario.store.set(ShardFault::None);
        scenario.advance_checked(SECOND * 2).await;
        scenario.bad_are(|state| state.is_held());
    }
}

#[tokio::test]
async fn panics_of_metric_and_log_sinks_affect_no_lease() {
    let _logs = tracing::subscriber::set_default(Logs(|event: &tracing::Event<'_>| {
        panic!("no event {event:?}")
    }));
    let panicking = Metrics::panicking();
    let _metrics = metrics::set_default_local_recorder(&panicking);
    let scenario = Scenario::new().await;
    scenario.bad_recover(ShardFault::Fails).await;
    for guard in scenario.good.into_iter().chain(scenario.bad) {
        guard.release().await.unwrap();
    }
    assert!(scenario.client.locks().await.unwrap().is_empty());
}

/// The clock panics at each of its calls in turn while all leases are due: in the renewer's task, in a
/// batch before it is sent and after its reply.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_clock_ends_no_renewal() {
    let mut restarts = 0;
    for call in 0..24 {
        let metrics = Metrics::default();
        let _metrics = metrics::set_default_local_recorder(&metrics);
        let scenario = Scenario::new().await;
        scenario.shaky.panic_at(call, 2);
        scenario.advance(INTERVAL).await;
        scenario.shaky.panic_at(0, 0);
        // The pause of the supervisor is the runtime's, not the clock's.
        tokio::time::sleep(SECOND).await;
        scenario.advance(SECOND).await;
        scenario.advance(SECOND).await;
        scenario.good_are_well();
        scenario.bad_are(|state| state.is_held());
        scenario.advance_checked(TTL).await;
        scenario.bad_are(|state| state.is_held());
        restarts += metrics.count("leasehold_renewer_restarts_total");
        for guard in scenario.good.into_iter().chain(scenario.bad) {
            guard.release().await.unwrap();
        }
    }
    // Some of the calls were the task's own.
    assert!(restarts > 0);
}
