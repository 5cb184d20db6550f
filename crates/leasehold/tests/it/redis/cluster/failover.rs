//! A shard fails over while locks are held.

use std::time::Instant;

use leasehold_testkit::Restart;
use tokio::task::JoinHandle;

use super::*;

/// Outlasts a failover by command that times out at first: the master refuses writes for five seconds.
const TTL: Duration = Duration::from_secs(24);

/// Locks that a client holds on each shard, by the first masters of the shards.
struct Scenario {
    cluster: Cluster,
    client: Client,
    names: Vec<(usize, String)>,
    guards: Vec<(usize, Guard)>,
}

impl Scenario {
    async fn start() -> Self {
        let cluster = Cluster::start();
        let mut scenario = Self {
            client: client_at(&cluster.url(), TTL).await,
            names: names_on_each(&cluster, 60),
            guards: Vec::new(),
            cluster,
        };
        scenario.lock_all().await;
        scenario
    }

    async fn lock_all(&mut self) {
        for (shard, name) in &self.names {
            self.guards.push((*shard, lock(&self.client, name).await));
        }
    }

    /// The master of a shard at this moment.
    fn master_of(&self, shard: usize) -> usize {
        let (_, name) = self.names.iter().find(|(at, _)| *at == shard).unwrap();
        self.cluster.master_of(self.cluster.slot_of(&record(name)))
    }

    /// The last deadline. A lease that is confirmed from now on has a later one.
    fn last_deadline(&self) -> leasehold_core::Instant {
        let deadlines = self.guards.iter().map(|(_, guard)| guard.deadline());
        deadlines.max().unwrap()
    }

    /// Waits until every lease of a shard is confirmed or lost. No lease of another shard is lost. Returns the number
    /// of lost ones.
    async fn settles(&self, shard: usize, since: leasehold_core::Instant) -> usize {
        let settled = |guard: &Guard| match guard.state() {
            State::Lost(_) => true,
            State::Held { .. } => guard.deadline() > since,
            State::Jeopardy { .. } => false,
        };
        eventually_async(TTL * 2, async || {
            let mut affected = self.guards.iter().filter(|(at, _)| *at == shard);
            affected.all(|(_, guard)| settled(guard))
        })
        .await;
        let mut lost = 0;
        for (at, guard) in &self.guards {
            if guard.state().is_lost() {
                assert_eq!(*at, shard, "{}", guard.name());
                lost += 1;
                continue;
            }
            let mutex = self.client.mutex(guard.name()).unwrap();
            // A machine that stalls may delay a reply for longer than a client waits.
            let mut read = mutex.inspect().await;
            while read.as_ref().is_err_and(Error::is_transient) {
                read = mutex.inspect().await;
            }
            let holder = read.unwrap().unwrap();
            assert_eq!(holder.lease, guard.lease_id(), "{}", guard.name());
        }
        lost
    }

    async fn release_all(&mut self) {
        for (_, guard) in self.guards.drain(..) {
            let _ = guard.release().await;
        }
    }
}

/// A master that consents hands over everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_leases_outlive_a_failover_by_command() {
    let scenario = Scenario::start().await;
    for shard in (0..failovers()).map(|round| round % 3) {
        let cluster = &scenario.cluster;
        let replica = cluster.replica_of(scenario.master_of(shard));
        tokio::task::block_in_place(|| cluster.fail_over(replica));
        let since = scenario.last_deadline();
        assert_eq!(scenario.settles(shard, since).await, 0);
        tokio::task::block_in_place(|| cluster.settled());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_affects_no_other_shard() {
    let mut scenario = Scenario::start().await;
    for shard in (0..failovers()).map(|round| round % 3) {
        let master = scenario.master_of(shard);
        let since = scenario.last_deadline();
        let killed = Instant::now();
        tokio::task::block_in_place(|| scenario.cluster.node_mut(master).kill9());
        scenario.settles(shard, since).await;
        println!("settled after {:?}", killed.elapsed());
        tokio::task::block_in_place(|| {
            scenario.cluster.node_mut(master).restart(Restart::Kept);
            scenario.cluster.settled();
        });
        scenario.release_all().await;
        scenario.lock_all().await;
    }
}

/// It keeps its connections, and delays requests to itself only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_master_delays_no_other_shard() {
    let scenario = Scenario::start().await;
    let (cluster, client) = (&scenario.cluster, &scenario.client);
    let stopped = scenario.names[0].0;
    let since = scenario.last_deadline();
    let mut more = names_on_each(cluster, 83);
    more.retain(|name| !scenario.names.contains(name));
    cluster.nodes()[stopped].stop();
    // Many requests to it.
    let (to_it, to_others): (Vec<_>, Vec<_>) =
        more.into_iter().partition(|(master, _)| *master == stopped);
    let requests: Vec<_> = to_it
        .into_iter()
        .map(|(_, name)| {
            let mutex = client.mutex(name).unwrap();
            tokio::spawn(async move { drop(mutex.lock().await) })
        })
        .collect();
    // Requests to the others that have a reply before the first one to the stopped one is given up.
    let mut served = 0;
    for (_, name) in to_others {
        let mutex = client.mutex(name).unwrap();
        let request = async { mutex.lock().await?.release().await };
        match request.await {
            Ok(()) if !requests.iter().any(JoinHandle::is_finished) => served += 1,
            Ok(()) => break,
            // The cluster has noticed the failure, and is down until the replica is the master.
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                break;
            }
        }
    }
    // Behind a request to the stopped one, each would take as long as that.
    assert!(served > 3, "{served}");
    scenario.settles(stopped, since).await;
    for request in requests {
        tokio::time::timeout(LONG, request).await.unwrap().unwrap();
    }
    cluster.nodes()[stopped].cont();
    tokio::task::block_in_place(|| cluster.settled());
    // It is a replica now, and redirects requests.
    for (_, guard) in &scenario.guards {
        let mutex = client.mutex(guard.name()).unwrap();
        // It may still be synchronizing.
        let read = async || loop {
            match mutex.inspect().await {
                Err(error) if error.is_transient() => {}
                found => return found.unwrap(),
            }
        };
        let found = tokio::time::timeout(LONG, read()).await.unwrap();
        let held = found.is_some_and(|holder| holder.lease == guard.lease_id());
        assert!(held || guard.state().is_lost(), "{}", guard.name());
    }
}
