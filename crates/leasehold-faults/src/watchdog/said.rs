//! What a holder says on its standard output: one line each.

use std::io::Write as _;

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Said {
    /// It holds its lock, and a node looks after it, if there is any.
    Held,
    /// What its lease is worth has changed.
    State {
        belief: Belief,
        at: Nanos,
        /// Until when the hold was promised at most, so far.
        promised: Nanos,
        /// Of a lost one.
        why: String,
    },
    /// It released, and held until then or not.
    Released { at: Nanos, kept: bool },
    /// How many of its leases are how.
    Count {
        held: usize,
        jeopardy: usize,
        lost: usize,
    },
    /// It forked a child of this id.
    Forked(i32),
}

/// What a holder believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Belief {
    Held,
    Jeopardy,
    /// In jeopardy, because of a pause: only the store knows.
    Paused,
    Lost,
}

/// Says a line.
pub(super) fn say(said: &Said) {
    let Ok(mut line) = serde_json::to_string(said) else {
        return;
    };
    line.push('\n');
    // Nobody hears it if the campaign has gone.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}
