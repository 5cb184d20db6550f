//! The watchdog.

use super::{Extent, Row};
use crate::model::explore::Property::{
    self, Bounded, Exclusion, Final, Free, Kept, Living, Own, Told,
};
use crate::model::watchdog::{
    Guard, Mark, Nodes, Renewal, Restart, Rules, Setup, Verdict, Watchdog,
};

pub(super) fn rows(extent: Extent) -> Vec<Row> {
    let setup = Setup::default();
    let mut rows = whole(setup, extent);
    rows.extend(released_wrongly(setup));
    rows.extend(renewed_wrongly(setup));
    rows.extend(trusted_wrongly(setup));
    rows
}

fn row(key: &'static str, what: &'static str, setup: Setup) -> Row {
    Row::new(key, what, Watchdog::new(setup))
}

/// The rules.
fn whole(setup: Setup, extent: Extent) -> Vec<Row> {
    let faulty = Setup {
        ends: 1,
        faults: 1,
        late: 1,
        ..setup
    };
    let once = Setup {
        acquisitions: 1,
        lives: 1,
        ..faulty
    };
    let mut rows = vec![
        row("watchdog", "a node on the host, in time", setup).reaches(&[
            Mark::WentOn,
            Mark::Released,
            Mark::GivenUp,
        ]),
    ];
    if extent == Extent::Full {
        rows.push(row("watchdog, both", "both", Setup { nodes: Nodes::Both, ..once }));
        rows.push(row("watchdog, faulty", "faulty", faulty));
    }
    rows
}

fn released_wrongly(setup: Setup) -> Vec<Row> {
    vec![]
}
fn renewed_wrongly(setup: Setup) -> Vec<Row> {
    vec![]
}
fn trusted_wrongly(setup: Setup) -> Vec<Row> {
    vec![]
}
