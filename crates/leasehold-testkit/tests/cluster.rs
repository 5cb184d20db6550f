//! The cluster does what tests build on.

use std::time::{Duration, Instant};

use leasehold_testkit::{Cluster, Restart, eventually};

const SOON: Duration = Duration::from_secs(30);

/// One after the other: the machine may be small.
#[test]
fn a_cluster_moves_slots_and_fails_over() {
    let start = Instant::now();
    let mut cluster = Cluster::start();
    println!("up after {:?}", start.elapsed());
    let slot = cluster.slot_of("{a}");
    let (from, to) = (cluster.master_of(slot), (cluster.master_of(slot) + 1) % 3);
    for nth in 0..25 {
        cluster.nodes()[from].cli(&["SET", &format!("{{a}}{nth}"), "1"]);
    }
    let moving = cluster.begin_to_move(slot, to);
    let missing = cluster.nodes()[from].try_cli(&["GET", "{a}"]);
    assert!(missing.is_err_and(|error| error.starts_with("ASK")));
    assert_eq!(moving.move_keys(10), 10);
    while moving.move_keys(10) > 0 {}
    moving.end();
    cluster.move_slot(slot, from);
    assert_eq!(cluster.master_of(slot), from);
    let replica = cluster.replica_of(from);
    cluster.fail_over(replica);
    eventually(SOON, || cluster.master_of(slot) == replica);
    cluster.settled();
    let killed = Instant::now();
    cluster.node_mut(replica).kill9();
    eventually(SOON, || cluster.master_of(slot) == from);
    cluster.settled();
    println!("failed over after {:?}", killed.elapsed());
    cluster.node_mut(replica).restart(Restart::Kept);
    cluster.settled();
    assert_eq!(cluster.replica_of(from), replica);
}
