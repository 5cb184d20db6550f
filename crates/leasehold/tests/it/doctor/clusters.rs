//! etcd clusters.

use leasehold::doctor::Severity::{self, Danger, Note, Warning};
use leasehold_testkit::EtcdCluster;

use super::{assert_found, diagnose, found};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_members_a_version_and_a_quota() {
    let slow = EtcdCluster::options().argument("--election-timeout=7000");
    let one = slow.start(1);
    let report = diagnose(&one.url()).await;
    for (check, severity) in [
        ("members", Warning),
        ("access", Warning),
        ("space", Severity::Ok),
        ("session", Note),
    ] {
        assert_eq!(found(&report, check).severity, severity, "{report:#?}");
    }
    assert_eq!(one.ctl(&["get", "leasehold/", "--prefix"]), "");
    let mut three = EtcdCluster::options().start(3);
    let report = diagnose(&three.url()).await;
    assert_eq!(found(&report, "members").severity, Severity::Ok);
    let named = format!("etcd://{}", three.host(2));
    assert_eq!(found(&diagnose(&named).await, "members").severity, Note);
    let two_clusters = format!("{named},{}", one.host(0));
    let report = diagnose(&two_clusters).await;
    assert_found(&report, "cluster", Danger, "etcd cluster", "one cluster");
    three.kill9(0);
    three.kill9(1);
    let report = diagnose(&three.url()).await;
    assert_eq!(report.findings[0].severity, Danger, "{report:#?}");
}
