//! The watchdog.

use super::{Extent, Row};
use crate::model::explore::Property::{self, Bounded, Exclusion, Final, Free, Kept, Living, Own};
use crate::model::watchdog::{
    Guard, Mark, Nodes, Renewal, Restart, Rules, Setup, Verdict, Watchdog,
};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let setup = Setup::default();
    let mut rows = whole(setup);
    rows.extend(released_wrongly(setup));
    rows.extend(renewed_wrongly(setup));
    rows.extend(trusted_wrongly(setup));
    if extent == Extent::Full {
        rows.extend(larger(setup));
    }
    rows
}

fn row(key: &'static str, what: &'static str, setup: Setup) -> Row {
    Row::new(key, what, Watchdog::new(setup))
}

fn once(setup: Setup) -> Setup {
    Setup {
        acquisitions: 1,
        lives: 1,
        ..setup
    }
}

/// The rules.
fn whole(setup: Setup) -> Vec<Row> {
    vec![
        row("watchdog", "a node on the host, in time", setup).reaches(&[
            Mark::WentOn,
            Mark::Released,
            Mark::GivenUp,
        ]),
    ]
}

fn larger(setup: Setup) -> Vec<Row> {
    let one = once(setup);
    let two = setup;
    let re = Setup {
        lives: 1,
        acquisitions: 2,
        ..one
    };
    let both = Setup {
        nodes: Nodes::Both,
        ..one
    };
    vec![
        row(
            "w2 host ends stops",
            "",
            Setup {
                ends: 1,
                stops: 1,
                ..two
            },
        ),
        row(
            "w2 host slack late",
            "",
            Setup {
                slack: 1,
                late: 1,
                ..two
            },
        ),
        row(
            "w2 re slack late ends",
            "",
            Setup {
                slack: 1,
                late: 1,
                ends: 1,
                ..re
            },
        ),
        row("w2 re slow", "", Setup { slow: 1, ..re }),
        row(
            "w2 one slow late ends",
            "",
            Setup {
                slow: 1,
                late: 1,
                ends: 1,
                ..one
            },
        ),
        row(
            "w2 host ends2 gives up",
            "",
            Setup {
                ends: 2,
                gives_up: true,
                ..one
            },
        ),
        row("w2 child", "", Setup { child: true, ..two }),
        row(
            "w2 child slow",
            "",
            Setup {
                child: true,
                slow: 1,
                ..one
            },
        ),
        row(
            "w2 keep",
            "",
            Setup {
                keep: Some(3),
                ..two
            },
        ),
        row(
            "w2 six",
            "",
            Setup {
                ttl: 6,
                slack: 1,
                ..one
            },
        ),
        row(
            "w2 remote all",
            "",
            Setup {
                nodes: Nodes::Remote,
                ends: 1,
                slow: 1,
                late: 1,
                ..one
            },
        ),
        row(
            "w2 remote ends",
            "",
            Setup {
                nodes: Nodes::Remote,
                ends: 2,
                ..two
            },
        ),
        row("w2 host slow", "", Setup { slow: 1, ..two }),
        row("w3 both", "", Setup { ..both }),
        row("w3 both ends", "", Setup { ends: 1, ..both }),
        row("w3 both stops", "", Setup { stops: 1, ..both }),
        row("w3 both slow", "", Setup { slow: 1, ..both }),
    ]
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

fn released_wrongly(setup: Setup) -> Vec<Row> {
    let rules = Rules::default();
    let lost = Setup {
        ends: 1,
        ..once(setup)
    };
    let by_connection = |release| Rules {
        verdict: Verdict::Connection,
        release,
        ..rules
    };
    let guarded = |release| Rules { release, ..rules };
    let late = Setup {
        slack: 1,
        late: 1,
        ..setup
    };
    let same = |restart| Setup { restart, ..late };
    vec![
        broken(
            "release on a lost connection, no guard",
            "a",
            lost,
            by_connection(Guard::Nothing),
            &[Living],
        ),
        broken(
            "release on a lost connection, client id",
            "a",
            lost,
            by_connection(Guard::Client),
            &[Living],
        ),
        broken(
            "release on a lost connection, lease id",
            "a",
            lost,
            by_connection(Guard::Lease),
            &[Living],
        ),
        broken(
            "remote release",
            "a",
            Setup {
                nodes: Nodes::Remote,
                ..lost
            },
            by_connection(Guard::Lease),
            &[Living],
        ),
        broken(
            "release, no guard",
            "a",
            once(late),
            guarded(Guard::Nothing),
            &[Own],
        ),
        broken(
            "release, client id",
            "a",
            same(Restart::SameClient),
            guarded(Guard::Client),
            &[Own],
        ),
        row("same client", "a", same(Restart::SameClient)),
        broken(
            "lease id twice",
            "a",
            same(Restart::SameLease),
            rules,
            &[Own],
        ),
        broken(
            "child ignored",
            "a",
            Setup {
                child: true,
                ..once(setup)
            },
            Rules {
                verdict: Verdict::Main,
                ..rules
            },
            &[Living],
        ),
    ]
}

fn renewed_wrongly(setup: Setup) -> Vec<Row> {
    let rules = Rules::default();
    let one = once(setup);
    vec![
        broken(
            "renewal creates",
            "a",
            one,
            Rules {
                renewal: Renewal::Creates,
                ..rules
            },
            &[Final],
        ),
        row(
            "unheeded",
            "a",
            Setup {
                rules: Rules {
                    heeded: false,
                    ..rules
                },
                ..one
            },
        ),
        broken(
            "unheeded, renewal of anything",
            "a",
            one,
            Rules {
                heeded: false,
                renewal: Renewal::Anything,
                ..rules
            },
            &[Final, Own],
        ),
        broken(
            "no max pause",
            "a",
            Setup {
                nodes: Nodes::Remote,
                ..one
            },
            Rules {
                max_pause: None,
                ..rules
            },
            &[Bounded, Free],
        ),
        broken(
            "patience of a ttl",
            "a",
            one,
            Rules {
                patient: true,
                ..rules
            },
            &[Kept],
        ),
    ]
}

fn trusted_wrongly(setup: Setup) -> Vec<Row> {
    let rules = Rules::default();
    let one = once(setup);
    vec![
        broken(
            "holder goes on",
            "a",
            one,
            Rules {
                trusting: true,
                ..rules
            },
            &[Exclusion],
        ),
        broken(
            "boasting",
            "a",
            one,
            Rules {
                boasting: true,
                ..rules
            },
            &[Kept],
        ),
        broken(
            "forgetful",
            "a",
            Setup {
                ends: 2,
                gives_up: true,
                ..one
            },
            Rules {
                forgetful: true,
                ..rules
            },
            &[Free],
        ),
        broken(
            "from the answer",
            "a",
            Setup { slow: 1, ..one },
            Rules {
                from_answer: true,
                ..rules
            },
            &[Property::Told],
        ),
    ]
}
