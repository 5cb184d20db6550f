//! One renewal, release or change of the count over many masters.

use super::{Masters, Size};
use crate::mutex::{Loss, Outcome};

/// The replies of the masters to an operation of a lease that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    size: Size,
    /// The masters that did it.
    done: Masters,
    /// The masters at which the lock is free.
    gone: Masters,
    /// The masters at which another lease holds it.
    taken: Masters,
    /// The masters that failed or did not reply.
    failed: Masters,
    over: bool,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has done it.
    Done,
    /// The lease does not hold a majority any more.
    Lost(Loss),
    /// Too few masters have replied for a decision.
    NoQuorum,
}

impl Vote {
    /// A vote without replies.
    #[must_use]
    pub fn new(size: Size) -> Self {
        Self {
            size,
            done: Masters::default(),
            gone: Masters::default(),
            taken: Masters::default(),
            failed: Masters::default(),
            over: false,
        }
    }

    /// Counts the reply of a master. `None`: it did not reply in time, or failed.
    ///
    /// Returns the verdict once, when it is certain.
    pub fn count(&mut self, master: usize, answer: Option<Outcome>) -> Option<Verdict> {
        if self.heard().contains(master) {
            return None;
        }
        let side = match answer {
            Some(Outcome::Renewed | Outcome::Released { .. } | Outcome::Entered { .. }) => {
                &mut self.done
            }
            Some(Outcome::Lost(Loss::Gone)) => &mut self.gone,
            Some(Outcome::Lost(Loss::TakenOver)) => &mut self.taken,
            _ => &mut self.failed,
        };
        side.insert(master);
        if self.over {
            return None;
        }
        let verdict = self.verdict();
        self.over = verdict.is_some();
        verdict
    }

    /// The masters at which the record is gone, by replies before and after the verdict.
    #[must_use]
    pub fn gone(&self) -> Masters {
        self.gone
    }

    fn verdict(&self) -> Option<Verdict> {
        let majority = self.size.majority();
        let heard = self.heard().len();
        let open = self.size.masters() - heard;
        let lost = self.gone.len() + self.taken.len();
        if self.done.len() >= majority {
            return Some(Verdict::Done);
        }
        if lost >= majority {
            // A lease without a known majority may not have the lock, but keeps this one from it.
            let taken = self.taken.len() >= majority || self.gone.is_empty();
            return Some(Verdict::Lost(match taken {
                true => Loss::TakenOver,
                false => Loss::Gone,
            }));
        }
        // Neither is possible any more, whatever the others reply.
        let decided = self.done.len() + open < majority && lost + open < majority;
        decided.then_some(Verdict::NoQuorum)
    }

    fn heard(&self) -> Masters {
        Masters(self.done.0 | self.gone.0 | self.taken.0 | self.failed.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Option<Outcome> = Some(Outcome::Lost(Loss::Gone));
    const TAKEN: Option<Outcome> = Some(Outcome::Lost(Loss::TakenOver));
    const RENEWED: Option<Outcome> = Some(Outcome::Renewed);

    fn verdict(masters: usize, answers: &[Option<Outcome>]) -> Option<Verdict> {
        let mut vote = Vote::new(Size::new(masters).unwrap());
        let verdicts = answers
            .iter()
            .enumerate()
            .filter_map(|(master, answer)| vote.count(master, *answer));
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

    /// Replies after the verdict count, too.
    #[test]
    fn who_has_forgotten_is_told() {
        for (answers, forgotten) in [
            ([GONE, RENEWED, RENEWED], &[0][..]),
            ([RENEWED, RENEWED, GONE], &[2]),
            // Another holds it there.
            ([TAKEN, RENEWED, RENEWED], &[]),
        ] {
            let mut vote = Vote::new(Size::new(3).unwrap());
            let verdicts = answers.iter().enumerate();
            let verdicts = verdicts.filter_map(|(master, answer)| vote.count(master, *answer));
            assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Done]);
            assert_eq!(vote.gone().iter().collect::<Vec<_>>(), forgotten);
        }
    }

    #[test]
    fn a_lost_majority_is_lost_for_sure() {
        assert_eq!(verdict(3, &[GONE, GONE]), Some(Verdict::Lost(Loss::Gone)));
        let taken = Some(Verdict::Lost(Loss::TakenOver));
        assert_eq!(verdict(3, &[TAKEN, TAKEN]), taken);
        assert_eq!(
            verdict(5, &[TAKEN, GONE, RENEWED, TAKEN]),
            Some(Verdict::Lost(Loss::Gone))
        );
    }

    #[test]
    fn too_few_answers_say_nothing() {
        assert_eq!(verdict(3, &[None, None]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None, GONE]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None]), None);
        assert_eq!(
            verdict(5, &[RENEWED, RENEWED, GONE, GONE, None]),
            Some(Verdict::NoQuorum)
        );
    }

    #[test]
    fn a_master_has_one_voice() {
        let mut vote = Vote::new(Size::new(3).unwrap());
        assert_eq!(vote.count(0, RENEWED), None);
        assert_eq!(vote.count(0, RENEWED), None);
        assert_eq!(vote.count(1, None), None);
        assert_eq!(vote.count(1, RENEWED), None);
    }
}
