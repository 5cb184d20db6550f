//! The watchdog.

use super::{Extent, Row};
use crate::model::explore::Property::{
    self, Bounded, Exclusion, Final, Free, Kept, Living, Own, Reported,
};
use crate::model::watchdog::{
    DeathProof, Guard, Milestone, Nodes, Renewal, Restart, Rules, Setup, Watchdog,
};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let mut rows = whole();
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

/// A row in which one rule is another.
fn broken(
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

/// Deeds fail, and come late all the same.
const LATE: Setup = Setup {
    slack: 1,
    late: 1,
    ..TWICE
};

/// The rules.
fn whole() -> Vec<Row> {
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
            "the same, and the client gives leases up that it cannot release",
            Setup {
                ends: 2,
                gives_up: true,
                ..ONCE
            },
        ),
        row(
            "watchdog, stops",
            "the node ends and begins again, and knows nothing then",
            Setup { stops: 1, ..ONCE },
        ),
        row(
            "watchdog, slow",
            "the node may be slow, without any limit",
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
        .reaches(&[Milestone::LateForNothing]),
        row(
            "watchdog, child",
            "the program leaves a child that works on",
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

/// What takes longer.
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
            "the same, and a node ends and begins again",
            Setup { stops: 1, ..both },
        ),
        row(
            "watchdog, both, slow",
            "the same, and a node may be slow: away, stopped, or cut off from client or store",
            Setup { slow: 1, ..both },
        )
        .reaches(&[Milestone::KeptByOne, Milestone::WentOn, Milestone::Released]),
        row(
            "watchdog, two lives, late",
            "a node on the host, actions come late, the program runs twice",
            LATE,
        ),
        row(
            "watchdog, two lives, faults",
            "the same in time, a connection ends, and the node ends and begins again",
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
            "actions come late; a program that runs again keeps its client id and counts on",
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
        broken(
            "watchdog, lost connection, no guard",
            "a node releases when a connection ends, whatever holds the lock",
            lost,
            by_connection(Guard::Nothing),
            &[Living, Kept, Own, Exclusion],
        )
        .independent("W1: 144 to 148"),
        broken(
            "watchdog, lost connection, client id",
            "the same, if a lease of this client holds it",
            lost,
            by_connection(Guard::Client),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        broken(
            "watchdog, lost connection, lease id",
            "the same, if this lease holds it",
            lost,
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        )
        .independent("W1: 144 to 148"),
        broken(
            "watchdog, remote release",
            "a remote node does the same",
            Setup {
                nodes: Nodes::Remote,
                ..lost
            },
            by_connection(Guard::Lease),
            &[Living, Kept, Exclusion],
        ),
        broken(
            "watchdog, child ignored",
            "the client is dead when its first process is",
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
        broken(
            "watchdog, no guard",
            "a node releases the dead, whatever holds the lock",
            Setup {
                acquisitions: 1,
                runs: 1,
                ..LATE
            },
            guarded(Guard::Nothing),
            &[Own],
        )
        .independent("W2: 645"),
        broken(
            "watchdog, client id",
            "the same, if a lease of this client holds it; a program that runs again keeps its id",
            again(Restart::SameClient),
            guarded(Guard::Client),
            &[Own, Exclusion, Kept, Reported],
        )
        .independent("W2: 645"),
        broken(
            "watchdog, lease id twice",
            "a program that runs again keeps its client id and counts from the beginning",
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
            "watchdog, unheeded",
            "nodes go on with leases that their client has released",
            Setup {
                rules: renewal(Renewal::Own, false),
                ..ONCE
            },
        ),
        broken(
            "watchdog, renewal creates",
            "a renewal takes the lock if it is free",
            ONCE,
            renewal(Renewal::Creates, true),
            &[Final],
        ),
        broken(
            "watchdog, unheeded, renewal of anything",
            "a renewal renews whatever holds the lock, and nodes go on with what was released",
            ONCE,
            renewal(Renewal::Anything, false),
            &[Final, Own, Reported, Free],
        ),
        broken(
            "watchdog, no longest pause",
            "a remote node keeps who is silent for ever",
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
        broken(
            "watchdog, patience",
            "nodes wait for a ttl before they renew",
            ONCE,
            Rules {
                renews_late: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        broken(
            "watchdog, from the answer",
            "a node counts how long a lease is kept from when it hears the answer",
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
        broken(
            "watchdog, trust",
            "a holder goes on after a pause without asking",
            ONCE,
            Rules {
                skips_check: true,
                ..Rules::SHIPPED
            },
            &[Exclusion],
        ),
        broken(
            "watchdog, boast",
            "a client that cannot renew says that it is well all the same",
            ONCE,
            Rules {
                claims_health: true,
                ..Rules::SHIPPED
            },
            &[Kept],
        ),
        broken(
            "watchdog, registers_current_only",
            "a new connection says nothing of leases that were given up before it",
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
