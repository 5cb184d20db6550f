//! Clusters and sentinel sets over TLS, for users with the rights that `doctor` names and no others: these suffice,
//! and every later connection is as safe as the first. On a single server the whole conformance suite runs for such a
//! user: `conformance::allowed`.

use std::time::Duration;

use leasehold::{Client, Guard};
use leasehold_testkit::{Cluster, RedisServer, SentinelSet, eventually_async};

use super::rights::{PASSWORD, allow_line, line, line_for_doctor};
use super::*;
use crate::waiters::{soon, spawn_waiter};

/// What a failover may take on a slow machine.
const LONG: Duration = Duration::from_secs(60);

/// Each failover is over long before a lease of this ttl is given up.
const TTL: Duration = Duration::from_secs(60);

async fn client(url: &str) -> Client {
    let builder = Client::builder().ttl(TTL).response_timeout(PATIENCE);
    builder.connect(url).await.unwrap()
}

/// A lock that one client holds and another waits for.
struct Scenario {
    guard: Guard,
    waiter: tokio::task::JoinHandle<Guard>,
}

impl Scenario {
    async fn new([a, b]: &[Client; 2], name: &str) -> Self {
        let guard = a.mutex(name).unwrap().lock().await.unwrap();
        let waiter = spawn_waiter(&b.mutex(name).unwrap());
        Self { guard, waiter }
    }

    /// The lease is confirmed and inspected, and the lock passes to the waiter, whose lease is revoked.
    async fn ends(self, [a, b]: &[Client; 2]) {
        let Self { guard, waiter } = self;
        let before = guard.deadline();
        eventually_async(LONG, async || {
            guard.ensure(TTL * 3 / 5).await.is_ok() && guard.deadline() > before
        })
        .await;
        let held = a.locks().await.unwrap();
        assert!(held.iter().any(|lock| lock.lease == guard.lease_id()));
        let mutex = a.mutex(guard.name()).unwrap();
        guard.release().await.unwrap();
        let guard = soon(waiter).await;
        let holder = mutex.inspect().await.unwrap().unwrap();
        assert_eq!(holder.lease, guard.lease_id());
        mutex.revoke().await.unwrap();
        tokio::time::timeout(LONG, guard.lost()).await.unwrap();
        let again = b.mutex(guard.name()).unwrap().try_lock().await.unwrap();
        again.unwrap().release().await.unwrap();
    }
}

/// Checks that no command was refused.
fn is_enough<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) {
    for server in servers {
        assert_eq!(server.cli(&["ACL", "LOG"]), "");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_for_a_cluster_are_enough() {
    let cluster = Cluster::start_with(&healthy().tls());
    let line = line(&cluster.url());
    allow_line(cluster.nodes(), &line);
    let url = cluster.url_of("leasehold", PASSWORD);
    assert!(url.starts_with("rediss+cluster://"), "{url}");
    let report = diagnose(&url).await;
    let rights = found(&report, "rights").severity;
    assert_eq!(rights, Severity::Ok, "{report:#?}");
    assert_eq!(report.severity(), Severity::Unknown, "{report:#?}");
    let missing = &found(&report, "diagnosis").observed;
    assert!(missing.contains("CLUSTER INFO"), "{missing}");
    allow_line(cluster.nodes(), &line_for_doctor(&report));
    let observed = diagnose(&cluster.url_of("leasehold-doctor", PASSWORD)).await;
    let unknown = |it: &Finding| it.severity == Severity::Unknown;
    assert!(!observed.findings.iter().any(unknown), "{observed:#?}");
    assert!(found(&observed, "cluster").severity < Severity::Unknown);
    is_enough(cluster.nodes());
    for right in ["cluster|myid", "asking"] {
        for (sign, severity) in [("-", Severity::Danger), ("+", Severity::Ok)] {
            cluster.nodes()[0].cli(&["ACL", "SETUSER", "leasehold", &format!("{sign}{right}")]);
            let report = diagnose(&url).await;
            assert_eq!(found(&report, "rights").severity, severity, "{sign}{right}");
        }
    }
    allow_line(cluster.nodes(), &line);

    let clients = [client(&url).await, client(&url).await];
    for at in 0..6 {
        let scenario = Scenario::new(&clients, &format!("allowed/{at}")).await;
        scenario.ends(&clients).await;
    }
    let slot = |name: &str| cluster.slot_of(&format!("leasehold:{{default:{name}}}"));
    // All its keys have moved, and the owner redirects requests: behind ASKING.
    let scenario = Scenario::new(&clients, "moves").await;
    let moves = slot("moves");
    let moving = cluster.begin_to_move(moves, (cluster.master_of(moves) + 1) % 3);
    while moving.move_keys(1) > 0 {}
    let mutex = clients[0].mutex("moves").unwrap();
    assert!(mutex.inspect().await.unwrap().is_some());
    tokio::task::block_in_place(|| moving.end());
    scenario.ends(&clients).await;

    let scenario = Scenario::new(&clients, "fails over").await;
    let master = cluster.master_of(slot("fails over"));
    tokio::task::block_in_place(|| {
        cluster.fail_over(cluster.replica_of(master));
        cluster.settled();
    });
    scenario.ends(&clients).await;
    is_enough(cluster.nodes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_for_a_set_are_enough() {
    let set = SentinelSet::options().servers(healthy().tls()).start();
    allow_line(set.servers(), &line(&set.url()));
    let url = set.url_of("leasehold", PASSWORD);
    assert!(url.starts_with("rediss+sentinel://"), "{url}");
    let report = diagnose(&url).await;
    let rights = found(&report, "rights").severity;
    assert_eq!(rights, Severity::Ok, "{report:#?}");
    allow_line(set.servers(), &line(&set.url()));

    let clients = [client(&url).await, client(&url).await];
    let scenario = Scenario::new(&clients, "before").await;
    scenario.ends(&clients).await;
    let scenario = Scenario::new(&clients, "over").await;
    set.until_in_sync();
    let old = set.order_failover();
    set.master_after(old);
    scenario.ends(&clients).await;
    is_enough(set.servers());
}
