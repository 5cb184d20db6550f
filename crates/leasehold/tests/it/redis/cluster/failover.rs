//! A shard fails over while locks are held.

use std::time::Instant;

use leasehold_core::StateKind;
use leasehold_testkit::{Restart, eventually_async};

use super::*;

const TTL: Duration = Duration::from_secs(12);

/// How often each way of failing over is gone: more by `LEASEHOLD_TEST_ROUNDS`.
fn rounds() -> usize {
    let rounds = std::env::var("LEASEHOLD_TEST_ROUNDS").ok();
    rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(2)
}

/// Locks that are held, on which master each, and what their holders were told.
struct Scenario {
    guards: Vec<(usize, Arc<Guard>)>,
    told: Vec<tokio::task::JoinHandle<Vec<StateKind>>>,
}

impl Scenario {
    async fn new(client: &Client, names: &[(usize, String)]) -> Self {
        let mut guards = Vec::new();
        for (master, name) in names {
            guards.push((*master, Arc::new(lock(client, name).await)));
        }
        let told = guards.iter().map(|(_, guard)| {
            let guard = Arc::clone(guard);
            tokio::spawn(async move {
                let mut told = Vec::new();
                let mut states = guard.states();
                while let Some(state) = states.next().await {
                    told.push(state.kind());
                }
                told
            })
        });
        let told = told.collect();
        Self { guards, told }
    }

    /// The last deadline of all. What is confirmed from now on is so for longer.
    fn last(&self) -> leasehold_core::Instant {
        let deadlines = self.guards.iter().map(|(_, guard)| guard.deadline());
        deadlines.max().unwrap()
    }

    /// Every lease of the shard is held, by the store's word, or lost; and those of others were never in
    /// doubt.
    async fn is_clear(&self, client: &Client, shard: usize, since: leasehold_core::Instant) {
        let clear = |guard: &Guard| match guard.state() {
            State::Lost(_) => true,
            State::Held { .. } => guard.deadline() > since,
            State::Jeopardy { .. } => false,
        };
        eventually_async(TTL * 2, async || {
            let mut concerned = self.guards.iter().filter(|(master, _)| *master == shard);
            concerned.all(|(_, guard)| clear(guard))
        })
        .await;
        for (master, guard) in &self.guards {
            if guard.state().is_lost() {
                assert_eq!(*master, shard, "{}", guard.name());
                continue;
            }
            let holder = client.mutex(guard.name()).unwrap().holder().await.unwrap();
            assert_eq!(holder.unwrap().lease, guard.lease_id(), "{}", guard.name());
        }
    }

    /// Ends all of it, and answers how many were lost.
    async fn end(self, shard: usize) -> usize {
        let mut lost = 0;
        for ((master, guard), told) in self.guards.into_iter().zip(self.told) {
            lost += usize::from(guard.state().is_lost());
            told.abort();
            if let Ok(told) = told.await {
                assert_eq!(master, shard, "{}: {told:?}", guard.name());
            }
            if let Ok(guard) = Arc::try_unwrap(guard) {
                let _ = guard.release().await;
            }
        }
        lost
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_leases_outlive_a_failover_by_command() {
    let cluster = Cluster::start();
    let names = names_on_each(&cluster, 17);
    let client = client(&cluster, TTL).await;
    let scenario = Scenario::new(&client, &names).await;
    for round in 0..rounds() {
        let shard = round % 3;
        let slot = cluster.slot_of(&record(
            &names.iter().find(|(at, _)| *at == shard).unwrap().1,
        ));
        let replica = cluster.replica_of(cluster.master_of(slot));
        tokio::task::block_in_place(|| cluster.fail_over(replica));
        let since = scenario.last();
        scenario.is_clear(&client, shard, since).await;
        // A master that consents hands over everything.
        assert!(
            scenario
                .guards
                .iter()
                .all(|(_, guard)| !guard.state().is_lost())
        );
        tokio::task::block_in_place(|| cluster.settled());
    }
    scenario.end(usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_costs_no_other_shard_anything() {
    let mut cluster = Cluster::start();
    let names = names_on_each(&cluster, 17);
    let client = client(&cluster, TTL).await;
    for round in 0..rounds() {
        let scenario = Scenario::new(&client, &names).await;
        let shard = round % 3;
        let slot = cluster.slot_of(&record(
            &names.iter().find(|(at, _)| *at == shard).unwrap().1,
        ));
        let master = cluster.master_of(slot);
        let since = scenario.last();
        let killed = Instant::now();
        tokio::task::block_in_place(|| cluster.node_mut(master).kill9());
        scenario.is_clear(&client, shard, since).await;
        let took = killed.elapsed();
        let lost = scenario.end(shard).await;
        println!("round {round}: clear after {took:?}, {lost} lost");
        tokio::task::block_in_place(|| {
            cluster.node_mut(master).restart(Restart::Kept);
            cluster.settled();
        });
    }
}

/// A master that answers nothing keeps its connections, and nobody else waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_master_delays_no_other_shard() {
    let cluster = Cluster::start();
    let names = names_on_each(&cluster, 17);
    let client = client(&cluster, TTL).await;
    let scenario = Scenario::new(&client, &names).await;
    let stopped = names[0].0;
    let since = scenario.last();
    let mut more = names_on_each(&cluster, 40);
    more.retain(|name| !names.contains(name));
    cluster.nodes()[stopped].stop();
    // Many who want something of it.
    let [of_it, others] = [true, false].map(|it| {
        let more = more
            .iter()
            .filter(move |(master, _)| (*master == stopped) == it);
        more.map(|(_, name)| client.mutex(name).unwrap())
            .collect::<Vec<_>>()
    });
    let asking: Vec<_> = of_it
        .into_iter()
        .map(|mutex| tokio::spawn(async move { drop(mutex.lock().await) }))
        .collect();
    for mutex in others {
        let asked = Instant::now();
        mutex.lock().await.unwrap().release().await.unwrap();
        let took = asked.elapsed();
        // Long before the stopped one is given up.
        assert!(took < TTL / 12, "{}: {took:?}", mutex.name());
    }
    scenario.is_clear(&client, stopped, since).await;
    for task in asking {
        tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    }
    cluster.nodes()[stopped].cont();
    tokio::task::block_in_place(|| cluster.settled());
    // It has heard that it is a replica now. Whoever asks it is sent on.
    for (_, guard) in &scenario.guards {
        let found = client.mutex(guard.name()).unwrap().holder().await.unwrap();
        let held = found.is_some_and(|holder| holder.lease == guard.lease_id());
        assert!(held || guard.state().is_lost(), "{}", guard.name());
    }
    scenario.end(stopped).await;
}
