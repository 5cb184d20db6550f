//! What a holder must be told. Only here stand the names of the causes.

use leasehold::{Cause, State};

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why {
    /// The store was silent, or could not renew.
    Unreachable,
    /// The record is gone from the store before its time.
    Gone,
    /// Another holds the lock.
    TakenOver,
}

/// Checks that the holder was told one of these.
#[track_caller]
pub(super) fn told(cause: Cause, whys: &[Why]) {
    let names = |why: &Why| match why {
        Why::Unreachable => Cause::Unreachable,
        Why::Gone => Cause::Deleted,
        Why::TakenOver => Cause::TakenOver,
    };
    let wanted: Vec<_> = whys.iter().map(names).collect();
    assert!(wanted.contains(&cause), "{cause:?}, not one of {wanted:?}");
}

/// Checks that a lease is lost, for one of these reasons.
#[track_caller]
pub(super) fn lost(state: State, whys: &[Why]) {
    match state {
        State::Lost(cause) => told(cause, whys),
        _ => panic!("{state:?} is not lost"),
    }
}

/// Checks that a lease is in jeopardy, for one of these reasons.
#[track_caller]
pub(super) fn in_jeopardy(state: State, whys: &[Why]) {
    match state {
        State::Jeopardy { cause, .. } => told(cause, whys),
        _ => panic!("{state:?} is no jeopardy"),
    }
}

/// Whether a holder is in jeopardy only for it was late itself, as on a busy machine.
pub(super) fn late_itself(state: State) -> bool {
    matches!(
        state,
        State::Jeopardy {
            cause: Cause::Paused,
            ..
        }
    )
}
