//! One renewal, release or change of the count over many masters.

use super::{Masters, Size};
use crate::mutex::{Loss, Outcome};

/// The replies of the masters to an operation of a lease that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    size: Size,
    /// The masters that applied it.
    done: Masters,
    /// The masters where nobody holds the lock.
    gone: Masters,
    /// The masters where another lease holds it.
    taken: Masters,
    /// The masters that failed or did not answer.
    failed: Masters,
    decided: bool,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has applied the operation.
    Done,
    /// The lease does not hold a majority any more.
    Lost(Loss),
    /// Too few masters have answered.
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
            decided: false,
        }
    }

    /// Takes in the reply of a master. `None`: it failed, or did not answer in time.
    ///
    /// Answers the verdict once, as soon as it is certain.
    pub fn handle_reply(&mut self, master: usize, reply: Option<Outcome>) -> Option<Verdict> {
        if self.answered().contains(master) {
            return None;
        }
        let side = match reply {
            Some(Outcome::Renewed | Outcome::Released { .. } | Outcome::Entered { .. }) => {
                &mut self.done
            }
            Some(Outcome::Lost(Loss::Gone)) => &mut self.gone,
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

    /// The masters that have no record of the lock, also by replies after the verdict.
    #[must_use]
    pub fn gone(&self) -> Masters {
        self.gone
    }

    fn verdict(&self) -> Option<Verdict> {
        let majority = self.size.majority();
        let open = self.size.masters() - self.answered().len();
        let lost = self.gone.len() + self.taken.len();
        if self.done.len() >= majority {
            return Some(Verdict::Done);
        }
        if lost >= majority {
            // Another lease without a known majority may not hold the lock, but does keep this one from it.
            let taken = self.taken.len() >= majority || self.gone.is_empty();
            return Some(Verdict::Lost(match taken {
                true => Loss::TakenOver,
                false => Loss::Gone,
            }));
        }
        // Neither is possible, whatever the other masters reply.
        let decided = self.done.len() + open < majority && lost + open < majority;
        decided.then_some(Verdict::NoQuorum)
    }

    fn answered(&self) -> Masters {
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
            .filter_map(|(master, answer)| vote.handle_reply(master, *answer));
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
        for (answers, forgotten) in [
            ([GONE, RENEWED, RENEWED], &[0][..]),
            ([RENEWED, RENEWED, GONE], &[2]),
            // Another holds it there.
            ([TAKEN, RENEWED, RENEWED], &[]),
        ] {
            let mut vote = Vote::new(Size::new(3).unwrap());
            let verdicts = answers.iter().enumerate();
            let verdicts =
                verdicts.filter_map(|(master, answer)| vote.handle_reply(master, *answer));
            assert_eq!(verdicts.collect::<Vec<_>>(), [Verdict::Done]);
            assert_eq!(vote.gone().iter().collect::<Vec<_>>(), forgotten);
        }
    }

    #[test]
    fn a_lost_majority_is_certainly_lost() {
        assert_eq!(verdict(3, &[GONE, GONE]), Some(Verdict::Lost(Loss::Gone)));
        let taken = Some(Verdict::Lost(Loss::TakenOver));
        assert_eq!(verdict(3, &[TAKEN, TAKEN]), taken);
        assert_eq!(
            verdict(5, &[TAKEN, GONE, RENEWED, TAKEN]),
            Some(Verdict::Lost(Loss::Gone))
        );
    }

    #[test]
    fn too_few_replies_prove_nothing() {
        assert_eq!(verdict(3, &[None, None]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None, GONE]), Some(Verdict::NoQuorum));
        assert_eq!(verdict(3, &[RENEWED, None]), None);
        assert_eq!(
            verdict(5, &[RENEWED, RENEWED, GONE, GONE, None]),
            Some(Verdict::NoQuorum)
        );
    }

    #[test]
    fn a_master_has_one_vote() {
        let mut vote = Vote::new(Size::new(3).unwrap());
        assert_eq!(vote.handle_reply(0, RENEWED), None);
        assert_eq!(vote.handle_reply(0, RENEWED), None);
        assert_eq!(vote.handle_reply(1, None), None);
        assert_eq!(vote.handle_reply(1, RENEWED), None);
    }
}
