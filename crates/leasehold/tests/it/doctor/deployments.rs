//! Sentinel sets, clusters and many masters.

use std::time::Duration;

use leasehold::doctor::Severity::{self, Danger, Note, Unknown, Warning};
use leasehold::{Client, ErrorKind};
use leasehold_testkit::{Cluster, RedisServer, SentinelSet};

use super::{assert_found, diagnose, diagnose_in_step, found, healthy, in_step, only, wrong};

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_set() {
    let servers = healthy().config("min-replicas-to-write 1");
    let mut set = SentinelSet::options()
        .servers(servers)
        .down_after(Duration::from_secs(5))
        .start();
    in_step(&set.servers()[set.master()], 2);
    let report = diagnose_in_step(&set.url()).await;
    // Only asynchronous replication remains.
    let finding = only(&report, "replicas", Warning, "", "");
    let master = format!("127.0.0.1:{}", set.servers()[set.master()].port());
    assert_eq!(finding.node.as_deref(), Some(&*master));
    let sentinels = "3 sentinels, quorum 2";
    assert_eq!(found(&report, "sentinels").observed, sentinels);
    assert_eq!(found(&report, "failover").severity, Severity::Ok);

    // With a shorter ttl the same failover takes too long.
    let short = Client::builder().ttl(Duration::from_secs(12));
    let report = short.diagnose(&set.url()).await.unwrap();
    let fix = "down-after-milliseconds 2000";
    assert_found(&report, "failover", Warning, "", fix);

    let all = set.url();
    let port = set.sentinels()[0].port();
    let report = diagnose(&format!("redis+sentinel://127.0.0.1:{port}/mymaster")).await;
    assert_found(&report, "sentinels", Note, "1 of 3", "");

    set.sentinel_mut(2).kill9();
    let report = diagnose(&all).await;
    let silent = "no server listens";
    assert_found(&report, "sentinels", Warning, silent, "");

    let master = set.master();
    set.server_mut((master + 1) % 3).kill9();
    let report = diagnose(&all).await;
    assert_found(&report, "node", Unknown, silent, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_by_the_url_of_a_server_and_the_reverse() {
    let set = SentinelSet::start();
    let sentinel = &set.sentinels()[0];
    let report = diagnose(&sentinel.url()).await;
    only(&report, "mode", Danger, "", "redis+sentinel://");

    let port = set.servers()[0].port();
    let url = format!("redis+sentinel://127.0.0.1:{port}/mymaster");
    let error = Client::builder().diagnose(&url).await.unwrap_err();
    assert!(error.to_string().contains("no sentinels"), "{error}");
    let url = set.url().replace("mymaster", "other");
    let error = Client::builder().diagnose(&url).await.unwrap_err();
    let words = "no master of the name";
    assert!(error.to_string().contains(words), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster() {
    let options = healthy().config("cluster-require-full-coverage no");
    let cluster = Cluster::start_with(&options);
    for node in cluster.nodes() {
        if node.cli(&["ROLE"]).starts_with("master") {
            in_step(node, 1);
        }
    }
    let report = diagnose_in_step(&cluster.url()).await;
    let ended: Vec<_> = wrong(&report).iter().map(|f| f.check).collect();
    assert_eq!(ended, ["replicas"], "{report:#?}");
    let covered = "state ok, 16384 of 16384";
    assert_found(&report, "cluster", Severity::Ok, covered, "");
    assert_eq!(found(&report, "failover").severity, Severity::Ok);
    assert_eq!(found(&report, "rights").severity, Severity::Ok);

    for node in cluster.nodes() {
        node.cli(&["CONFIG", "SET", "cluster-node-timeout", "15000"]);
    }
    let report = diagnose(&cluster.url()).await;
    let fix = "cluster-node-timeout 8000";
    assert_found(&report, "failover", Warning, "", fix);

    let single = RedisServer::start();
    let url = format!("redis+cluster://127.0.0.1:{}", single.port());
    let report = diagnose(&url).await;
    assert_found(&report, "cluster", Danger, "single server", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_masters() {
    let nodes: Vec<_> = (0..3).map(|_| healthy().start()).collect();
    let ports: Vec<_> = nodes.iter().map(RedisServer::port).collect();
    let [a, b, c] = ports[..] else {
        panic!("three nodes")
    };
    let url = format!("redlock://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}");
    let report = diagnose(&url).await;
    assert_eq!(report.severity(), Severity::Ok, "{report:#?}");
    assert_eq!(found(&report, "masters").observed, "3 nodes, 1 may be away");
    // Common findings are reported once.
    let evictions = report.findings.iter().filter(|f| f.check == "eviction");
    assert_eq!(evictions.count(), 1);

    nodes[1].cli(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let report = diagnose(&url).await;
    let finding = only(&report, "persistence", Note, "", "");
    assert_eq!(finding.node, Some(format!("127.0.0.1:{b}")));
    let locks = found(&report, "persistence").consequence.as_deref();
    assert!(locks.unwrap().contains("but no lock"), "{report:#?}");
    nodes[0].cli(&["CONFIG", "SET", "appendonly", "no"]);
    let report = diagnose(&url).await;
    assert_eq!(report.severity(), Warning, "{report:#?}");
    assert_found(&report, "persistence", Warning, "2 of 3 masters", "");

    let report = diagnose(&format!(
        "redlock://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:1"
    ))
    .await;
    assert_found(&report, "masters", Warning, "2 of 3 nodes reply", "");
    assert_found(&report, "node", Unknown, "not checked", "");
    let away = "127.0.0.1:1,127.0.0.1:2";
    let report = diagnose(&format!("redlock://127.0.0.1:{a},{away}")).await;
    assert_found(&report, "masters", Danger, "1 of 3 nodes reply", "");
    let error = Client::builder()
        .diagnose(&format!("redlock://{away},127.0.0.1:3"))
        .await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unreachable);

    let twice = format!("redlock://127.0.0.1:{a},127.0.0.1:{b},localhost:{a}");
    let report = diagnose(&twice).await;
    assert_found(&report, "masters", Danger, "one server", "");
}
