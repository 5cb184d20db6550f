//! The variants on the watchdog.

use super::{Extent, Row, Variant};
use crate::model::watchdog::{
    DeathProof, Nodes, ReleaseCondition, Renewal, Restart, Setup, Watchdog,
};

impl Setup {
    fn row(self, what: &'static str) -> Row {
        Watchdog::new(self).row(what)
    }
}

/// A program that runs once and acquires once. [`Setup::RULE`] does both twice.
fn once() -> Setup {
    Setup::RULE.with(|setup| (setup.acquisitions, setup.runs) = (1, 1))
}

/// Actions fail, and come late nevertheless.
fn late(setup: Setup) -> Setup {
    setup.with(|setup| (setup.failed_actions, setup.late_actions) = (1, 1))
}

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = shipped();
    rows.extend(released_wrongly());
    rows.extend(renewed_wrongly());
    if extent == Extent::Full {
        rows.extend(larger());
    }
    rows
}

/// The rules that ship.
fn shipped() -> Vec<Row> {
    let (once, twice) = (once(), Setup::RULE);
    table! {
        "a node on the host; the program runs twice": twice;
        "the program runs once, and a connection ends twice": once, lost_connections = 2;
        "and the client abandons leases that it cannot release":
            once, lost_connections = 2, abandons_leases = true;
        "the node restarts without its data": once, node_restarts = 1;
        "the node may be slow, without a limit": once, slow_nodes = 1;
        "actions fail and come late": once, failed_actions = 2, late_actions = 2;
        "the program dies before its child": once, child = true;
        "the lease may be renewed for three ticks": once, max_hold = Some(3);
        "a remote node; the program runs twice": twice, nodes = Nodes::Remote;
    }
}

/// Released without a proof of the death, without a guard, or not at all.
fn released_wrongly() -> Vec<Row> {
    let once = once();
    let unproven =
        once.with(|it| (it.lost_connections, it.death_proof) = (1, DeathProof::Connection));
    let twice = late(Setup::RULE);
    table! {
        "a node releases when a connection ends, whatever the holder":
            unproven, release_condition = ReleaseCondition::Nothing;
        "if a lease of this client holds it": unproven, release_condition = ReleaseCondition::Client;
        "if this lease holds it": unproven;
        "a remote node does the same": unproven, nodes = Nodes::Remote;
        "a client counts as dead when its first process is":
            once, child = true, death_proof = DeathProof::MainProcess;
        "a node notices no death": once, death_proof = DeathProof::Nothing;
        "a node releases for a dead client, whatever the holder":
            late(once), release_condition = ReleaseCondition::Nothing;
        "if a lease of this client holds it; the next run keeps the client id":
            twice, restart = Restart::SameClient, release_condition = ReleaseCondition::Client;
        "the next run keeps the client id and counts from one": twice, restart = Restart::SameLease;
    }
}

/// Renewed or relied on wrongly.
fn renewed_wrongly() -> Vec<Row> {
    let once = once();
    table! {
        "nodes renew leases that their client has released": once, unregisters = false;
        "a renewal acquires a free lock": once, renewal = Renewal::Creates;
        "a renewal renews any lease, and nodes renew leases that their client has released":
            once, renewal = Renewal::Anything, unregisters = false;
        "a remote node renews the leases of a silent client for ever": once, nodes = Nodes::Remote, max_pause = None;
        "nodes wait for a ttl before they renew": once, renews_late = true;
        "a node counts the ttl from the arrival of the reply": once, slow_nodes = 1, from_reply = true;
        "a holder goes on after a pause without a renewal": once, skips_check = true;
        "a client that cannot renew sends heartbeats nevertheless": once, claims_health = true;
        "a new connection does not report leases that were abandoned before":
            once, lost_connections = 2, abandons_leases = true, registers_current_only = true;
    }
}

fn larger() -> Vec<Row> {
    let (once, twice) = (once(), Setup::RULE);
    let both = once.with(|setup| setup.nodes = Nodes::Both);
    table! {
        "a node on the host and a remote one": both;
        "and a connection ends": both, lost_connections = 1;
        "and a node restarts without its data": both, node_restarts = 1;
        "and a node may be slow: stopped or disconnected": both, slow_nodes = 1;
        "a node on the host, actions come late, the program runs twice": late(twice);
        "without late actions; a connection ends, and the node restarts without its data":
            twice, lost_connections = 1, node_restarts = 1;
        "the program acquires twice in one run, and the node may be slow": twice, runs = 1, slow_nodes = 1;
        "actions come late; the next run keeps the client id and counts on":
            late(twice), restart = Restart::SameClient;
        "a ttl of six ticks, and an action fails": late(once), ttl = 6;
    }
}
