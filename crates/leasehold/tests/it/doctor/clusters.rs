//! Clusters of etcd and of ZooKeeper.

use leasehold::doctor::Severity::{self, Danger, Note, Warning};
use leasehold::{Client, ErrorKind};
use leasehold_testkit::{EtcdCluster, Members, Program, ZookeeperServer};

use super::{assert_found, diagnose, found};

/// The URL of the first members of a cluster.
fn url<P: Program>(scheme: &str, members: &Members<P>, count: usize) -> String {
    let hosts = (0..count).map(|nth| format!("127.0.0.1:{}", members.port(nth)));
    format!("{scheme}://{}", hosts.collect::<Vec<_>>().join(","))
}

/// Diagnoses one member with long sessions, three of them, and three of which the URL names one.
async fn are_diagnosed<P: Program>(scheme: &str, one: &Members<P>, three: &Members<P>) {
    for (members, named, check, severity) in [
        (one, 1, "members", Warning),
        (one, 1, "access", Warning),
        (one, 1, "session", Note),
        (three, 3, "members", Severity::Ok),
        (three, 1, "members", Note),
    ] {
        let report = diagnose(&url(scheme, members, named)).await;
        assert_eq!(found(&report, check).severity, severity, "{report:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_etcd_and_their_space() {
    let slow = EtcdCluster::options().argument("--election-timeout=7000");
    let one = slow.start(1);
    let mut three = EtcdCluster::options().start(3);
    are_diagnosed("etcd", &one, &three).await;
    let report = diagnose(&one.url()).await;
    assert_eq!(found(&report, "space").severity, Severity::Ok);
    assert_eq!(one.ctl(&["get", "leasehold/", "--prefix"]), "");
    let two_clusters = format!("{},{}", url("etcd", &three, 1), one.host(0));
    let report = diagnose(&two_clusters).await;
    assert_found(&report, "cluster", Danger, "etcd cluster", "one cluster");
    three.kill9(0);
    three.kill9(1);
    let report = diagnose(&three.url()).await;
    assert_eq!(report.findings[0].severity, Danger, "{report:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_zookeeper() {
    let long_sessions = "minSessionTimeout=20000\nmaxSessionTimeout=20000";
    let one = ZookeeperServer::with(1, long_sessions);
    let mut three = ZookeeperServer::with(3, "");
    are_diagnosed("zookeeper", &one, &three).await;
    three.kill9(0);
    three.kill9(1);
    let failed = Client::builder().diagnose(&three.url()).await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Unreachable);
}
