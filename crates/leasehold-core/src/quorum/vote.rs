//! One renewal or release over many masters.

use super::{Masters, Size};
use crate::record::{Loss, Outcome};

/// The replies of the masters to an operation of a lease that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    size: Size,
    /// The masters that applied it.
    done: Masters,
    /// The masters that have a later note of the lease, or a larger token.
    outdated: Masters,
    /// The masters where no lease holds the lock.
    free: Masters,
    /// The masters where another lease holds it.
    taken: Masters,
    /// The masters that failed or did not reply.
    failed: Masters,
    decided: bool,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has applied the operation.
    Done,
    /// A majority has applied it or something later.
    Outdated,
    /// The lease no longer holds a majority.
    Lost(Loss),
    /// Too few masters have replied.
    NoQuorum,
}

impl Vote {
    /// A vote without replies.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self {
            size,
            done: Masters::default(),
            outdated: Masters::default(),
            free: Masters::default(),
            taken: Masters::default(),
            failed: Masters::default(),
            decided: false,
        }
    }

    /// Takes in the reply of a master. `None`: it failed, or did not reply in time.
    ///
    /// Returns the verdict once, as soon as it is certain.
    pub fn handle_reply(&mut self, master: usize, reply: Option<&Outcome>) -> Option<Verdict> {
        if self.replied().contains(master) {
            return None;
        }
        let side = match reply {
            Some(Outcome::Kept | Outcome::Released | Outcome::Stored | Outcome::Served) => {
                &mut self.done
            }
            Some(Outcome::Outdated) => &mut self.outdated,
            Some(Outcome::Lost(Loss::Free)) => &mut self.free,
            Some(Outcome::Lost(Loss::TakenOver)) => &mut self.taken,
            _ => &mut self.failed,
        };
        side.insert(master);
        if self.decided {
            return None;
        }
        let verdict = self.verdict();
        self.decided = verdict.is_some();
        verdict
    }

    /// The masters where no lease holds the lock, also by replies after the verdict.
    #[must_use]
    pub fn free(&self) -> Masters {
        self.free
    }

    fn verdict(&self) -> Option<Verdict> {
        let majority = self.size.majority();
        let open = self.size.masters() - self.replied().len();
        let lost = self.free.len() + self.taken.len();
        if self.done.len() >= majority {
            return Some(Verdict::Done);
        }
        let kept = self.done.len() + self.outdated.len();
        if kept >= majority {
            return Some(Verdict::Outdated);
        }
        if lost >= majority {
            // Another lease without a known majority may not hold the lock, but does keep this one from it.
            let taken = self.taken.len() >= majority || self.free.is_empty();
            return Some(Verdict::Lost(match taken {
                true => Loss::TakenOver,
                false => Loss::Free,
            }));
        }
        // Neither is possible, whatever the other masters reply.
        let decided = kept + open < majority && lost + open < majority;
        decided.then_some(Verdict::NoQuorum)
    }

    fn replied(&self) -> Masters {
        Masters(self.done.0 | self.outdated.0 | self.free.0 | self.taken.0 | self.failed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Option<Outcome> = Some(Outcome::Lost(Loss::Free));
    const TAKEN: Option<Outcome> = Some(Outcome::Lost(Loss::TakenOver));
    const RENEWED: Option<Outcome> = Some(Outcome::Kept);

    fn verdict(masters: usize, replies: &[Option<Outcome>]) -> Option<Verdict> {
        let mut vote = Vote::new(Size::new(masters).unwrap());
        let verdicts = replies
            .iter()
            .enumerate()
            .filter_map(|(master, reply)| vote.handle_reply(master, reply.as_ref()));
        let verdicts: Vec<_> = verdicts.collect();
        assert!(verdicts.len() < 2, "{verdicts:?}");
        verdicts.first().copied()
    }

    #[test]
    fn a_majority_renews() {
        assert_eq!(verdict(3, &[RENEWED]), None);
        let done = Some(Verdict::Done);
        assert_eq!(verdict(3, &[RENEWED, RENEWED]), done);
        assert_eq!(verdict(3, &[RENEWED, None, RENEWED]), done);
        assert_eq!(verdict(5, &[RENEWED, None, RENEWED, None]), None);
        assert_eq!(verdict(5, &[RENEWED, None, RENEWED, None, RENEWED]), done);
    }

    /// Also a reply after the decision counts.
    #[test]
    fn masters_without_a_record_are_known() {
        for (replies, forgotten) in [
            ([FREE, RENEWED, RENEWED], &[0][..]),
            ([RENEWED, RENEWED, FREE], &[2]),
            // Another holds it there.
            ([TAKEN, RENEWED, RENEWED], &[]),
        ] {
            let mut vote = Vote::new(Size::new(3).unwrap());
            let verdicts = replies.iter().enumerate();
            let verdicts =
                verdicts.filter_map(|(master, reply)| vote.handle_reply(master, reply.as_ref()));
            assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Done]);
            assert_eq!(vote.free().iter().collect::<Vec<_>>(), forgotten);
        }
    }

    /// The lease has sent a later note, which some masters have applied before.
    #[test]
    fn a_majority_that_has_this_note_or_a_later_one_decides() {
        const STORED: Option<Outcome> = Some(Outcome::Stored);
        const LATER: Option<Outcome> = Some(Outcome::Outdated);
        let outdated = Some(Verdict::Outdated);
        assert_eq!(verdict(3, &[LATER]), None);
        assert_eq!(verdict(3, &[LATER, LATER]), outdated);
        assert_eq!(verdict(3, &[LATER, None, STORED]), outdated);
        assert_eq!(verdict(3, &[STORED, STORED, LATER]), Some(Verdict::Done));
        assert_eq!(verdict(3, &[LATER, None, None]), Some(Verdict::NoQuorum));
        assert_eq!(
            verdict(3, &[LATER, FREE, FREE]),
            Some(Verdict::Lost(Loss::Free))
        );
    }

    #[test]
    fn a_lost_majority_is_certainly_lost() {
        assert_eq!(verdict(3, &[FREE, FREE]), Some(Verdict::Lost(Loss::Free)));
        let taken = Some(Verdict::Lost(Loss::TakenOver));
        assert_eq!(verdict(3, &[TAKEN, TAKEN]), taken);
        assert_eq!(
            verdict(5, &[TAKEN, FREE, RENEWED, TAKEN]),
            Some(Verdict::Lost(Loss::Free))
        );
    }

    #[test]
    fn too_few_replies_prove_nothing() {
        assert_eq!(verdict(3, &[None, None]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None, FREE]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None]), None);
        assert_eq!(
            verdict(5, &[RENEWED, RENEWED, FREE, FREE, None]),
            Some(Verdict::NoQuorum)
        );
    }

    #[test]
    fn a_master_has_one_vote() {
        let mut vote = Vote::new(Size::new(3).unwrap());
        assert_eq!(vote.handle_reply(0, RENEWED.as_ref()), None);
        assert_eq!(vote.handle_reply(0, RENEWED.as_ref()), None);
        assert_eq!(vote.handle_reply(1, None), None);
        assert_eq!(vote.handle_reply(1, RENEWED.as_ref()), None);
    }
}
