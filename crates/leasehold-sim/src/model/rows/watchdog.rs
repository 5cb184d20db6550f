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

fn row(what: &'static str, setup: Setup) -> Row {
    Row::new(what, Watchdog::new(setup))
}

/// A variant with a mutation.
fn mutated(what: &'static str, setup: Setup, rules: Rules, breaks: &[Property]) -> Row {
    row(what, Setup { rules, ..setup }).breaks(breaks)
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
        row("watchdog on the host; the program runs twice", TWICE).reaches(&[
            Milestone::WentOn,
            Milestone::Released,
            Milestone::Abandoned,
        ]),
        row(
            "the same, the program runs once, and a connection ends twice",
            Setup { ends: 2, ..ONCE },
        ),
        row(
            "the same, and the client gives up leases that it cannot release",
            Setup {
                ends: 2,
                gives_up: true,
                ..ONCE
            },
        ),
        row(
            "the node is restarted without its data",
            Setup { stops: 1, ..ONCE },
        ),
        row(
            "the node may be slow, without a limit",
            Setup { slow: 1, ..ONCE },
        ),
        row(
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
            "the program dies before its child",
            Setup {
                child: true,
                ..ONCE
            },
        )
        .reaches(&[Milestone::KeptForChild, Milestone::Released]),
        row(
            "the lease may be renewed for three ticks",
            Setup {
                max_hold: Some(3),
                ..ONCE
            },
        ),
        row(
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
        row("a node on the host and a remote one", both).independent("W3: 1,318"),
        row("the same, and a connection ends", Setup { ends: 1, ..both }),
        row(
            "the same, and a node is restarted without its data",
            Setup { stops: 1, ..both },
        ),
        row(
            "the same, and a node may be slow: stopped, or disconnected from client or store",
            Setup { slow: 1, ..both },
        )
        .reaches(&[Milestone::KeptByOne, Milestone::WentOn, Milestone::Released]),
        row(
            "a node on the host, actions come late, the program runs twice",
            LATE,
        ),
        row(
            "the same without late actions; a connection ends, and the node is restarted without its data",
            Setup {
                ends: 1,
                stops: 1,
                ..TWICE
            },
        ),
        row(
            "the program acquires twice in one run, and the node may be slow",
            Setup {
                runs: 1,
                slow: 1,
                ..TWICE
            },
        ),
        row(
            "actions come late; the next run keeps the client id and counts on",
            same,
        ),
        row(
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
            "a node releases when a connection ends, whatever lease holds the lock",
            lost,
            by_connection(Guard::Nothing),
            &[Living, Kept, Own, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "the same, if a lease of this client holds it",
            lost,
            by_connection(Guard::Client),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "the same, if this lease holds it",
            lost,
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        mutated(
            "a remote node does the same",
            Setup {
                nodes: Nodes::Remote,
                ..lost
            },
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        ),
        mutated(
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
            "the same, if a lease of this client holds it; the next run keeps the client id",
            again(Restart::SameClient),
            guarded(Guard::Client),
            &[Own, Exclusion, Kept, Reported],
        )
        .independent("W2: 645"),
        mutated(
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
            "nodes renew leases that their client has released",
            Setup {
                rules: renewal(Renewal::Own, false),
                ..ONCE
            },
        ),
        mutated(
            "a renewal acquires a free lock",
            ONCE,
            renewal(Renewal::Creates, true),
            &[Final],
        ),
        mutated(
            "a renewal renews any lease, and nodes renew leases that their client has released",
            ONCE,
            renewal(Renewal::Anything, false),
            &[Final, Own, Reported, Free],
        ),
        mutated(
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
            "nodes wait for a ttl before they renew",
            ONCE,
            Rules {
                renews_late: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        mutated(
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
            "a holder goes on after a pause without a renewal",
            ONCE,
            Rules {
                skips_check: true,
                ..Rules::SHIPPED
            },
            &[Exclusion],
        ),
        mutated(
            "a client that cannot renew sends heartbeats nevertheless",
            ONCE,
            Rules {
                claims_health: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        mutated(
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
