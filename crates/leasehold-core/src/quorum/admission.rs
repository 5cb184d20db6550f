//! The admission of one of many masters: at its first use, and after it may have forgotten grants.
//!
//! A master that has forgotten its grants could grant a lock again, and repeat its tokens. So each keeps an
//! admission record that names the [run](RunId) for which it is admitted. A master without a record, or with
//! that of another run, does nothing until
//!
//! 1. every lease that it may have forgotten has expired: the longest ttl in use, and drift. Only then
//! 2. the largest tokens of the others are read, and it gives out none below.
//!
//! Neither is enough alone: the model shows a repeated token for each.
//!
//! The data of a master and the settings of its server prove nothing about what it has forgotten. A forgotten
//! renewal changes no token, so its tokens can be as large as those of the others. A setting may have been
//! different at the time of the writes, and a record of its change can be lost with them. So nothing shortens
//! the wait, except that all masters reply and none has ever granted anything.

use std::time::Duration;

use super::{RunId, Size};
use crate::time::{self, StoreTime, Ttl};
use crate::token::Token;

/// The state of a master when it was inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MasterInfo {
    /// Its run.
    pub run: RunId,
    /// How long its process has run, at least.
    pub uptime: Duration,
    /// Its time.
    pub now: StoreTime,
    /// The run in its admission record. `None`: it has no record.
    pub admitted: Option<RunId>,
    /// The largest token that it knows.
    pub high: Option<Token>,
    /// When this run was inspected first and had forgotten nothing since, if it is not admitted.
    pub since: Option<StoreTime>,
}

/// The decision about a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is admitted already.
    Admitted,
    /// It is to be admitted, if it is still the candidate that was inspected, and gives out only larger
    /// tokens.
    Admit {
        /// The largest token that the others know.
        floor: Option<Token>,
    },
    /// A lease that it may have forgotten has not expired, or had not when the others were inspected. With
    /// nothing remaining, all masters are to be inspected once more.
    KeepOut {
        /// How much of the wait remains.
        remaining: Duration,
    },
    /// It did not reply, or too few others did.
    TooFewReplies,
}

impl MasterInfo {
    /// Whether it may do anything.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.admitted == Some(self.run)
    }

    /// Whether it knows of no token. So it has not granted anything, unless it has forgotten that.
    fn is_unused(&self) -> bool {
        self.high.is_none() && (self.admitted.is_none() || self.is_admitted())
    }

    fn is_same_candidate(&self, other: &Self) -> bool {
        self.run == other.run && self.since.is_some() && self.since == other.since
    }

    /// How much of the wait remains. If no master has ever granted anything, it has not forgotten a part of
    /// a majority since its process was started.
    fn remaining(&self, longest: Ttl, unused: bool) -> Duration {
        let known = self.since.map(|since| since.until(self.now));
        let known = known.unwrap_or_default();
        let waited = if unused {
            known.max(self.uptime)
        } else {
            known
        };
        quarantine(longest).saturating_sub(waited)
    }
}

/// Decides about the master of an index by an inspection of all: `None` did not reply. `before` is the state of
/// that master in an inspection that had ended before this one began.
///
/// It must have been the same candidate, and its wait over, before the others were inspected. Then they know all
/// that it may have forgotten.
#[must_use]
pub fn decide(
    size: Size,
    longest: Ttl,
    index: usize,
    before: Option<&MasterInfo>,
    inspected: &[Option<MasterInfo>],
) -> Decision {
    let Some(master) = inspected.get(index).copied().flatten() else {
        return Decision::TooFewReplies;
    };
    if master.is_admitted() {
        return Decision::Admitted;
    }
    let others = inspected.iter().enumerate().filter(|(at, _)| *at != index);
    let others: Vec<_> = others.filter_map(|(_, other)| *other).collect();
    let all = others.len() + 1 == size.masters();
    // A silent master may have granted something.
    let unused = all && inspected.iter().flatten().all(MasterInfo::is_unused);
    let before = before.filter(|before| before.is_same_candidate(&master));
    let over = before.is_some_and(|before| before.remaining(longest, unused).is_zero());
    if !over {
        let remaining = master.remaining(longest, unused);
        return Decision::KeepOut { remaining };
    }
    // A master that is not admitted may also have forgotten, and does not count here. If fewer than a majority
    // are admitted, all must have replied; and if more than a minority has forgotten, only the clocks keep the
    // tokens growing.
    let admitted = others.iter().filter(|other| other.is_admitted()).count();
    if !all && admitted < size.majority() {
        return Decision::TooFewReplies;
    }
    let floor = others.iter().filter_map(|other| other.high).max();
    Decision::Admit { floor }
}

/// How long a master that may have forgotten is kept out, if `longest` is the longest ttl in use.
#[must_use]
pub fn quarantine(longest: Ttl) -> Duration {
    let longest = longest.as_duration();
    longest + time::drift(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(24 * 3_600);

    /// When the candidate was inspected first.
    const SINCE: StoreTime = StoreTime::from_micros(1_000_000_000);

    fn longest() -> Ttl {
        Ttl::from_millis(5_000).unwrap()
    }

    /// A server that has run for long and was never used.
    fn unused() -> MasterInfo {
        MasterInfo {
            run: RunId(2),
            uptime: LONG,
            now: SINCE,
            admitted: None,
            high: None,
            since: Some(SINCE),
        }
    }

    fn admitted(high: u64) -> MasterInfo {
        MasterInfo {
            admitted: Some(RunId(2)),
            high: Token::new(high),
            since: None,
            ..unused()
        }
    }

    fn after(waited: Duration, info: MasterInfo) -> MasterInfo {
        MasterInfo {
            now: SINCE.after_span(waited),
            ..info
        }
    }

    /// When the wait is over, to the microsecond.
    fn waited() -> Duration {
        quarantine(longest()) + Duration::from_micros(1)
    }

    /// The decision about the first of them, which said the same before.
    fn decided<const N: usize>(inspected: [Option<MasterInfo>; N]) -> Decision {
        let size = Size::new(N).unwrap();
        decide(size, longest(), 0, inspected[0].as_ref(), &inspected)
    }

    fn is_kept_out_in_full<const N: usize>(inspected: [Option<MasterInfo>; N]) -> bool {
        let remaining = quarantine(longest());
        decided(inspected) == Decision::KeepOut { remaining }
    }

    const NEW: Decision = Decision::Admit { floor: None };

    #[test]
    fn masters_that_nobody_used_are_admitted_if_all_say_so() {
        let new = Some(unused());
        assert_eq!(decided([new; 3]), NEW);
        assert_eq!(decided([new; 5]), NEW);
        // Another client admits them at the same time.
        assert_eq!(decided([new, Some(admitted(0)), new]), NEW);
        assert!(is_kept_out_in_full([new, None, None]));
        assert!(is_kept_out_in_full([new, new, None]));
        assert!(is_kept_out_in_full([new, new, new, new, None]));
        // The wait is over by the clock of all that reply. But the silent one may know a token.
        let waited = Some(after(LONG, unused()));
        assert_eq!(decided([waited, None, None]), Decision::TooFewReplies);
        assert_eq!(decided([waited, waited, None]), Decision::TooFewReplies);
        let four = [waited, waited, waited, waited, None];
        assert_eq!(decided(four), Decision::TooFewReplies);
        let size = Size::new(3).unwrap();
        let silent = decide(size, longest(), 0, new.as_ref(), &[None; 3]);
        assert_eq!(silent, Decision::TooFewReplies);
    }

    #[test]
    fn a_master_is_not_new_if_another_was_used() {
        // It has a record of its earlier run, and may have forgotten its tokens.
        let restarted = MasterInfo {
            admitted: Some(RunId(1)),
            ..unused()
        };
        let new = Some(unused());
        for other in [admitted(7), restarted] {
            assert!(is_kept_out_in_full([new, Some(other), new]));
        }
    }

    #[test]
    fn one_that_has_just_been_started_may_have_forgotten() {
        let started = MasterInfo {
            uptime: Duration::from_secs(1),
            ..unused()
        };
        let remaining = quarantine(longest()) - started.uptime;
        assert_eq!(decided([Some(started); 3]), Decision::KeepOut { remaining });
    }

    #[test]
    fn the_wait_was_over_for_the_same_candidate_before_the_others_were_inspected() {
        let size = Size::new(3).unwrap();
        let over = after(waited(), unused());
        let inspected = [Some(over), Some(admitted(7)), Some(admitted(9))];
        let with = |before: Option<&MasterInfo>| decide(size, longest(), 0, before, &inspected);
        let again = Decision::KeepOut {
            remaining: Duration::ZERO,
        };
        assert_eq!(with(None), again);
        assert_eq!(with(Some(&unused())), again);
        let flushed = MasterInfo {
            since: Some(SINCE.after_span(Duration::from_millis(1))),
            ..over
        };
        let restarted = MasterInfo {
            run: RunId(3),
            ..over
        };
        assert_eq!(with(Some(&flushed)), again);
        assert_eq!(with(Some(&restarted)), again);
        let floor = Token::new(9);
        assert_eq!(with(Some(&over)), Decision::Admit { floor });
    }
}
