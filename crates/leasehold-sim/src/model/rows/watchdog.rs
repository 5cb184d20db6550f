//! The variants on the watchdog.

use super::{Extent, Row, Variant};
use crate::model::watchdog::{
    DeathProof, Guard, Milestone, Nodes, Renewal, Restart, Setup, Watchdog,
};

impl Setup {
    fn row(self, what: &'static str) -> Row {
        Watchdog::new(self).row(what)
    }
}

/// A program that runs once and acquires once. [`Setup::RULE`] does both twice.
fn once() -> Setup {
    Setup::RULE.with(|it| (it.acquisitions, it.runs) = (1, 1))
}

/// Actions fail, and come late nevertheless.
fn late(it: Setup) -> Setup {
    it.with(|it| (it.slack, it.late) = (1, 1))
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
        once.with(|it| it.ends = 2)
            .row("the same, the program runs once, and a connection ends twice"),
        once.with(|it| (it.ends, it.gives_up) = (2, true))
            .row("the same, and the client gives up leases that it cannot release"),
        once.with(|it| it.stops = 1)
            .row("the node is restarted without its data"),
        once.with(|it| it.slow = 1)
            .row("the node may be slow, without a limit"),
        once.with(|it| (it.slack, it.late) = (2, 2))
            .row("actions fail and come late")
            .reaches(&[Milestone::LateWithoutEffect]),
        once.with(|it| it.child = true)
            .row("the program dies before its child")
            .reaches(&[Milestone::KeptForChild, Milestone::Released]),
        once.with(|it| it.max_hold = Some(3))
            .row("the lease may be renewed for three ticks"),
        twice
            .with(|it| it.nodes = Nodes::Remote)
            .row("a remote node; the program runs twice")
            .reaches(&[Milestone::WentOn, Milestone::Abandoned]),
    ]
}

/// Released without a proof of the death, or without a guard.
fn released_wrongly() -> Vec<Row> {
    let once = once();
    let lost = |proof, release| {
        once.with(|it| (it.ends, it.death_proof, it.release) = (1, proof, release))
    };
    let restarted = |restart| late(Setup::RULE).with(|it| it.restart = restart);
    vec![
        lost(DeathProof::Connection, Guard::Nothing)
            .row("a node releases when a connection ends, whatever lease holds the lock"),
        lost(DeathProof::Connection, Guard::Client)
            .row("the same, if a lease of this client holds it"),
        lost(DeathProof::Connection, Guard::Lease).row("the same, if this lease holds it"),
        lost(DeathProof::Connection, Guard::Lease)
            .with(|it| it.nodes = Nodes::Remote)
            .row("a remote node does the same"),
        once.with(|it| (it.child, it.death_proof) = (true, DeathProof::MainProcess))
            .row("a client counts as dead when its first process is"),
        late(once)
            .with(|it| it.release = Guard::Nothing)
            .row("a node releases for a dead client, whatever lease holds the lock"),
        restarted(Restart::SameClient)
            .with(|it| it.release = Guard::Client)
            .row("the same, if a lease of this client holds it; the next run keeps the client id"),
        restarted(Restart::SameLease).row("the next run keeps the client id and counts from one"),
    ]
}

/// Renewed or relied on wrongly.
fn renewed_wrongly() -> Vec<Row> {
    let once = once();
    let renews = |renewal| once.with(|it| it.renewal = renewal);
    vec![
        once.with(|it| it.unregisters = false)
            .row("nodes renew leases that their client has released"),
        renews(Renewal::Creates).row("a renewal acquires a free lock"),
        renews(Renewal::Anything)
            .with(|it| it.unregisters = false)
            .row(
                "a renewal renews any lease, and nodes renew leases that their client has released",
            ),
        once.with(|it| (it.nodes, it.max_pause) = (Nodes::Remote, None))
            .row("a remote node renews the leases of a silent client for ever"),
        once.with(|it| it.renews_late = true)
            .row("nodes wait for a ttl before they renew"),
        once.with(|it| (it.slow, it.from_reply) = (1, true))
            .row("a node counts the ttl from the arrival of the reply"),
        once.with(|it| it.skips_check = true)
            .row("a holder goes on after a pause without a renewal"),
        once.with(|it| it.claims_health = true)
            .row("a client that cannot renew sends heartbeats nevertheless"),
        once.with(|it| (it.ends, it.gives_up, it.registers_current_only) = (2, true, true))
            .row("a new connection does not report leases that were given up before it"),
    ]
}

fn larger() -> Vec<Row> {
    let (once, twice) = (once(), Setup::RULE);
    let both = once.with(|it| it.nodes = Nodes::Both);
    vec![
            both.row("a node on the host and a remote one"),
            both.with(|it| it.ends = 1).row("the same, and a connection ends"),
            both.with(|it| it.stops = 1)
                .row("the same, and a node is restarted without its data"),
            both.with(|it| it.slow = 1)
                .row("the same, and a node may be slow: stopped, or disconnected from client or store")
                .reaches(&[Milestone::KeptByOne, Milestone::WentOn, Milestone::Released]),
            late(twice).row("a node on the host, actions come late, the program runs twice"),
            twice.with(|it| (it.ends, it.stops) = (1, 1)).row(
                "the same without late actions; a connection ends, and the node is restarted without its data",
            ),
            twice
                .with(|it| (it.runs, it.slow) = (1, 1))
                .row("the program acquires twice in one run, and the node may be slow"),
            late(twice)
                .with(|it| it.restart = Restart::SameClient)
                .row("actions come late; the next run keeps the client id and counts on"),
            late(once)
                .with(|it| it.ttl = 6)
                .row("a ttl of six ticks, and an action fails"),
    ]
}
