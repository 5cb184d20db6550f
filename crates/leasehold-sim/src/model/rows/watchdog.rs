//! The variants on the watchdog.

use super::{Extent, Row, Variant};
use crate::model::watchdog::{
    DeathProof, Milestone, Nodes, ReleaseCondition, Renewal, Restart, Setup, Watchdog,
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
    vec![
        twice
            .row("watchdog on the host; the program runs twice")
            .reaches(&[Milestone::WentOn, Milestone::Released, Milestone::Abandoned]),
        once.with(|setup| setup.lost_connections = 2)
            .row("the same, the program runs once, and a connection ends twice"),
        once.with(|setup| (setup.lost_connections, setup.abandons_leases) = (2, true))
            .row("the same, and the client gives up leases that it cannot release"),
        once.with(|setup| setup.node_restarts = 1)
            .row("the node is restarted without its data"),
        once.with(|setup| setup.slow_nodes = 1)
            .row("the node may be slow, without a limit"),
        once.with(|setup| (setup.failed_actions, setup.late_actions) = (2, 2))
            .row("actions fail and come late")
            .reaches(&[Milestone::LateWithoutEffect]),
        once.with(|setup| setup.child = true)
            .row("the program dies before its child")
            .reaches(&[Milestone::KeptForChild, Milestone::Released]),
        once.with(|setup| setup.max_hold = Some(3))
            .row("the lease may be renewed for three ticks"),
        twice
            .with(|setup| setup.nodes = Nodes::Remote)
            .row("a remote node; the program runs twice")
            .reaches(&[Milestone::WentOn, Milestone::Abandoned]),
    ]
}

/// Released without a proof of the death, or without a guard.
fn released_wrongly() -> Vec<Row> {
    let once = once();
    let lost = |proof, condition| {
        once.with(|setup| {
            setup.lost_connections = 1;
            setup.death_proof = proof;
            setup.release_condition = condition;
        })
    };
    let restarted = |restart| late(Setup::RULE).with(|setup| setup.restart = restart);
    vec![
        lost(DeathProof::Connection, ReleaseCondition::Nothing)
            .row("a node releases when a connection ends, whatever lease holds the lock"),
        lost(DeathProof::Connection, ReleaseCondition::Client)
            .row("the same, if a lease of this client holds it"),
        lost(DeathProof::Connection, ReleaseCondition::Lease)
            .row("the same, if this lease holds it"),
        lost(DeathProof::Connection, ReleaseCondition::Lease)
            .with(|setup| setup.nodes = Nodes::Remote)
            .row("a remote node does the same"),
        once.with(|setup| (setup.child, setup.death_proof) = (true, DeathProof::MainProcess))
            .row("a client counts as dead when its first process is"),
        late(once)
            .with(|setup| setup.release_condition = ReleaseCondition::Nothing)
            .row("a node releases for a dead client, whatever lease holds the lock"),
        restarted(Restart::SameClient)
            .with(|setup| setup.release_condition = ReleaseCondition::Client)
            .row("the same, if a lease of this client holds it; the next run keeps the client id"),
        restarted(Restart::SameLease).row("the next run keeps the client id and counts from one"),
    ]
}

/// Renewed or relied on wrongly.
fn renewed_wrongly() -> Vec<Row> {
    let once = once();
    let renews = |renewal| once.with(|setup| setup.renewal = renewal);
    vec![
        once.with(|setup| setup.unregisters = false)
            .row("nodes renew leases that their client has released"),
        renews(Renewal::Creates).row("a renewal acquires a free lock"),
        renews(Renewal::Anything)
            .with(|setup| setup.unregisters = false)
            .row(
                "a renewal renews any lease, and nodes renew leases that their client has released",
            ),
        once.with(|setup| (setup.nodes, setup.max_pause) = (Nodes::Remote, None))
            .row("a remote node renews the leases of a silent client for ever"),
        once.with(|setup| setup.renews_late = true)
            .row("nodes wait for a ttl before they renew"),
        once.with(|setup| (setup.slow_nodes, setup.from_reply) = (1, true))
            .row("a node counts the ttl from the arrival of the reply"),
        once.with(|setup| setup.skips_check = true)
            .row("a holder goes on after a pause without a renewal"),
        once.with(|setup| setup.claims_health = true)
            .row("a client that cannot renew sends heartbeats nevertheless"),
        once.with(|setup| (setup.lost_connections, setup.abandons_leases) = (2, true))
            .with(|setup| setup.registers_current_only = true)
            .row("a new connection does not report leases that were given up before it"),
    ]
}

fn larger() -> Vec<Row> {
    let (once, twice) = (once(), Setup::RULE);
    let both = once.with(|setup| setup.nodes = Nodes::Both);
    let slow = "the same, and a node may be slow: stopped, or disconnected from client or store";
    let restarted = "the same without late actions; \
        a connection ends, and the node is restarted without its data";
    vec![
        both.row("a node on the host and a remote one"),
        both.with(|setup| setup.lost_connections = 1)
            .row("the same, and a connection ends"),
        both.with(|setup| setup.node_restarts = 1)
            .row("the same, and a node is restarted without its data"),
        both.with(|setup| setup.slow_nodes = 1).row(slow).reaches(&[
            Milestone::KeptByOne,
            Milestone::WentOn,
            Milestone::Released,
        ]),
        late(twice).row("a node on the host, actions come late, the program runs twice"),
        twice
            .with(|setup| (setup.lost_connections, setup.node_restarts) = (1, 1))
            .row(restarted),
        twice
            .with(|setup| (setup.runs, setup.slow_nodes) = (1, 1))
            .row("the program acquires twice in one run, and the node may be slow"),
        late(twice)
            .with(|setup| setup.restart = Restart::SameClient)
            .row("actions come late; the next run keeps the client id and counts on"),
        late(once)
            .with(|setup| setup.ttl = 6)
            .row("a ttl of six ticks, and an action fails"),
    ]
}
