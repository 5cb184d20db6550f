//! The variants on the watchdog.

use super::{Extent, Row};
use crate::model::explore::Property::{
    self, Bounded, Exclusion, Final, Free, Kept, Living, Own, Reported,
};
use crate::model::watchdog::{
    DeathProof, Guard, Milestone, Nodes, Renewal, Restart, Rules, Setup, Watchdog,
};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = shipped();
    rows.extend(released_without_proof());
    rows.extend(released_unguarded());
    rows.extend(renewed_wrongly());
    rows.extend(trusted_wrongly());
    if extent == Extent::Full {
        rows.extend(larger());
    }
    rows
}

fn row(key: &'static str, what: &'static str, setup: Setup) -> Row {
    Row::new(key, what, Watchdog::new(setup))
}

/// A variant with a mutation.
fn mutated(
    key: &'static str,
    what: &'static str,
    setup: Setup,
    rules: Rules,
    breaks: &[Property],
) -> Row {
    row(key, what, Setup { rules, ..setup }).breaks(breaks)
}

/// A program that runs twice and acquires once each time.
const TWICE: Setup = Setup::new();

/// A program that runs once and acquires once.
const ONCE: Setup = Setup {
    acquisitions: 1,
    runs: 1,
    ..TWICE
};

/// Actions fail, and come late nevertheless.
const LATE: Setup = Setup {
    slack: 1,
    late: 1,
    ..TWICE
};

/// The rules that ship.
fn shipped() -> Vec<Row> {
    vec![
        row(
            "watchdog",
            "watchdog on the host; the program runs twice",
            TWICE,
        )
        .reaches(&[Milestone::WentOn, Milestone::Released, Milestone::Abandoned]),
        row(
            "watchdog, ends",
            "the same, the program runs once, and a connection ends twice",
            Setup { ends: 2, ..ONCE },
        ),
        row(
            "watchdog, gives up",
            "the same, and the client gives up leases that it cannot release",
            Setup {
                ends: 2,
                gives_up: true,
                ..ONCE
            },
        ),
        row(
            "watchdog, stops",
            "the node is restarted without its data",
            Setup { stops: 1, ..ONCE },
        ),
        row(
            "watchdog, slow",
            "the node may be slow, without a limit",
            Setup { slow: 1, ..ONCE },
        ),
        row(
            "watchdog, late",
            "actions fail and come late",
            Setup {
                acquisitions: 1,
                runs: 1,
                late: 2,
                slack: 2,
                ..TWICE
            },
        )
        .reaches(&[Milestone::LateWithoutEffect]),
        row(
            "watchdog, child",
            "the program dies before its child",
            Setup {
                child: true,
                ..ONCE
            },
        )
        .reaches(&[Milestone::KeptForChild, Milestone::Released]),
        row(
            "watchdog, longest hold",
            "the lease may be renewed for three ticks",
            Setup {
                max_hold: Some(3),
                ..ONCE
            },
        ),
        row(
            "watchdog, remote",
            "a remote node; the program runs twice",
            Setup {
                nodes: Nodes::Remote,
                ..TWICE
            },
        )
        .reaches(&[Milestone::WentOn, Milestone::Abandoned]),
    ]
}

/// Larger models.
fn larger() -> Vec<Row> {
    let both = Setup {
        nodes: Nodes::Both,
        ..ONCE
    };
    let same = Setup {
        restart: Restart::SameClient,
        ..LATE
    };
    vec![
        row(
            "watchdog, both",
            "a node on the host and a remote one",
            both,
        )
        .independent("W3: 1,318"),
        row(
            "watchdog, both, ends",
            "the same, and a connection ends",
            Setup { ends: 1, ..both },
        ),
        row(
            "watchdog, both, stops",
            "the same, and a node is restarted without its data",
            Setup { stops: 1, ..both },
        ),
        row(
            "watchdog, both, slow",
            "the same, and a node may be slow: stopped, or disconnected from client or store",
            Setup { slow: 1, ..both },
        )
        .reaches(&[Milestone::KeptByOne, Milestone::WentOn, Milestone::Released]),
        row(
            "watchdog, two runs, late",
            "a node on the host, actions come late, the program runs twice",
            LATE,
        ),
        row(
            "watchdog, two runs, faults",
            "the same without late actions; a connection ends, and the node is restarted without its data",
            Setup {
                ends: 1,
                stops: 1,
                ..TWICE
            },
        ),
        row(
            "watchdog, two leases, slow",
            "the program acquires twice in one run, and the node may be slow",
            Setup {
                runs: 1,
                slow: 1,
                ..TWICE
            },
        ),
        row(
            "watchdog, same client",
            "actions come late; the next run keeps the client id and counts on",
            same,
        ),
        row(
            "watchdog, fine",
            "a ttl of six ticks, and an action fails",
            Setup {
                ttl: 6,
                slack: 1,
                late: 1,
                ..ONCE
            },
        ),
    ]
}

fn released_without_proof() -> Vec<Row> {
    let lost = Setup { ends: 1, ..ONCE };
    let by_connection = |release| Rules {
        death_proof: DeathProof::Connection,
        release,
        ..Rules::SHIPPED
    };
    vec![
        mutated(
            "watchdog, lost connection, no guard",
            "a node releases when a connection ends, whatever lease holds the lock",
            lost,
            by_connection(Guard::Nothing),
            &[Living, Kept, Own, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "watchdog, lost connection, client id",
            "the same, if a lease of this client holds it",
            lost,
            by_connection(Guard::Client),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "watchdog, lost connection, lease id",
            "the same, if this lease holds it",
            lost,
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "watchdog, remote release",
            "a remote node does the same",
            Setup {
                nodes: Nodes::Remote,
                ..lost
            },
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        ),
        mutated(
            "watchdog, child ignored",
            "a client counts as dead when its first process is",
            Setup {
                child: true,
                ..ONCE
            },
            Rules {
                death_proof: DeathProof::MainProcess,
                ..Rules::SHIPPED
            },
            &[Living, Kept],
        ),
    ]
}

fn released_unguarded() -> Vec<Row> {
    let guarded = |release| Rules {
        release,
        ..Rules::SHIPPED
    };
    let again = |restart| Setup { restart, ..LATE };
    vec![
        mutated(
            "watchdog, no guard",
            "a node releases for a dead client, whatever lease holds the lock",
            Setup {
                acquisitions: 1,
                runs: 1,
                ..LATE
            },
            guarded(Guard::Nothing),
            &[Own],
        )
        .independent("W2: 645"),
        mutated(
            "watchdog, client id",
            "the same, if a lease of this client holds it; the next run keeps the client id",
            again(Restart::SameClient),
            guarded(Guard::Client),
            &[Own, Exclusion, Kept, Reported],
        )
        .independent("W2: 645"),
        mutated(
            "watchdog, lease id twice",
            "the next run keeps the client id and counts from one",
            again(Restart::SameLease),
            Rules::SHIPPED,
            &[Own, Exclusion, Kept, Reported],
        ),
    ]
}

fn renewed_wrongly() -> Vec<Row> {
    let renewal = |renewal, unregisters| Rules {
        renewal,
        unregisters,
        ..Rules::SHIPPED
    };
    vec![
        row(
            "watchdog, no unregistration",
            "nodes renew leases that their client has released",
            Setup {
                rules: renewal(Renewal::Own, false),
                ..ONCE
            },
        ),
        mutated(
            "watchdog, renewal creates",
            "a renewal acquires a free lock",
            ONCE,
            renewal(Renewal::Creates, true),
            &[Final],
        ),
        mutated(
            "watchdog, no unregistration, renewal of anything",
            "a renewal renews any lease, and nodes renew leases that their client has released",
            ONCE,
            renewal(Renewal::Anything, false),
            &[Final, Own, Reported, Free],
        ),
        mutated(
            "watchdog, no longest pause",
            "a remote node renews the leases of a silent client for ever",
            Setup {
                nodes: Nodes::Remote,
                ..ONCE
            },
            Rules {
                max_pause: None,
                ..Rules::SHIPPED
            },
            &[Bounded, Free],
        ),
        mutated(
            "watchdog, late renewals",
            "nodes wait for a ttl before they renew",
            ONCE,
            Rules {
                renews_late: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        mutated(
            "watchdog, from the reply",
            "a node counts the ttl from the arrival of the reply",
            Setup { slow: 1, ..ONCE },
            Rules {
                from_reply: true,
                ..Rules::SHIPPED
            },
            &[Reported],
        ),
    ]
}

fn trusted_wrongly() -> Vec<Row> {
    vec![
        mutated(
            "watchdog, no renewal after a pause",
            "a holder goes on after a pause without a renewal",
            ONCE,
            Rules {
                skips_check: true,
                ..Rules::SHIPPED
            },
            &[Exclusion],
        ),
        mutated(
            "watchdog, false heartbeat",
            "a client that cannot renew sends heartbeats nevertheless",
            ONCE,
            Rules {
                claims_health: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        mutated(
            "watchdog, current lease only",
            "a new connection does not report leases that were given up before it",
            Setup {
                ends: 2,
                gives_up: true,
                ..ONCE
            },
            Rules {
                registers_current_only: true,
                ..Rules::SHIPPED
            },
            &[Free],
        ),
    ]
}
