//! The checks of locks that are shared, as in the other tests of checks.

use super::*;
use crate::checker::report::Count::Shared;
use crate::history::Share::{self, Permits, Read, Upgradable, Write};

/// A share from its grant for 60 ms, or until its release after 10 ms.
fn share(share: Share, at: u64, token: u64, releases: bool) -> Events {
    let mut events = vec![
        requested(at - 1),
        hold(at - 1, HoldEvent::Shares(share)),
        granted(at, &format!("lease:{at}"), token),
        held(at, at + 60),
    ];
    if releases {
        events.extend([releasing(at + 10), released(at + 11)]);
    }
    events
}

/// Two shares at 12 and at 30 ms, with these tokens.
fn two(one: Share, other: Share, tokens: [u64; 2]) -> Builder {
    after(false, one, other, tokens)
}

/// The same, perhaps with the first released at 22 ms.
fn after(releases: bool, one: Share, other: Share, [first, second]: [u64; 2]) -> Builder {
    // Without times in tokens: readers that come later have the token of the first.
    let history = Builder::world(None, 1, false);
    let history = history.process("0-1", share(one, 12, first, releases));
    history.process("1-1", share(other, 30, second, false))
}

const TWO_OF_THREE: Share = Permits {
    weight: 2,
    limit: 3,
};
const ONE_OF_THREE: Share = Permits {
    weight: 1,
    limit: 3,
};

#[test]
fn violations_of_shares_are_found() {
    for (one, other) in [
        (Read, Write),
        (Write, Upgradable),
        (Upgradable, Upgradable),
        (TWO_OF_THREE, TWO_OF_THREE),
    ] {
        finds("P15", &two(one, other, [5, 6]));
        // A fault that keeps all excuses nothing.
        finds("P15", &two(one, other, [5, 6]).fault(RestartKept, 20, 21));
    }
    finds("P16", &two(Read, Upgradable, [5, 6]));
    // A reader with the token of the writer before it, or with an older one; two permits with one token.
    finds("P5", &after(true, Write, Read, [5, 5]));
    finds("P5", &after(true, Read, Write, [5, 5]));
    finds("P5", &after(true, Read, Read, [5, 4]));
    finds("P5", &two(TWO_OF_THREE, ONE_OF_THREE, [5, 5]));
}

#[test]
fn no_violation_of_shares_is_found_without_one() {
    counts(&two(Read, Upgradable, [5, 5]), Shared, 1);
    counts(&two(TWO_OF_THREE, ONE_OF_THREE, [5, 6]), Shared, 1);
    counts(&after(true, Write, Read, [5, 6]), Shared, 0);
    counts(&after(true, Read, Read, [5, 5]), Shared, 0);
    // Readers are not the leaders of an election beside them.
    let elections = vec!["ledger".into()];
    let observing = vec![(1, Event::Observing { elections })];
    let beside = after(true, Read, Read, [5, 5]).process("2-1", observing);
    counts(&beside, Shared, 0);
    let forgotten = two(Read, Write, [5, 6]).fault(FlushAll, 20, 21);
    counts(&forgotten, OverlapsForgotten, 1);
}
