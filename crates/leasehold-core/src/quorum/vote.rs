//! One renewal, release or change of the count over many masters.

use super::{Masters, Size};
use crate::mutex::{Loss, Outcome};

/// What masters answered to an operation of a lease that holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    size: Size,
    /// Who has done it.
    done: Masters,
    /// Who says that nobody holds the lock.
    gone: Masters,
    /// Who says that another does.
    taken: Masters,
    /// Who did not answer, or could not.
    failed: Masters,
    over: bool,
}

/// What a vote comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority has done it.
    Done,
    /// The lease does not hold a majority any more.
    Lost(Loss),
    /// Too few masters have answered to know.
    NoQuorum,
}

impl Vote {
    /// A vote of which nothing is known.
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

    /// Takes in what a master answered. `None`: it did not, or not in time, or could not.
    ///
    /// Answers the verdict once it is sure, and nothing before or after.
    pub fn hear(&mut self, master: usize, answer: Option<Outcome>) -> Option<Verdict> {
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

    /// Who has said that nothing is left of the record there, the verdict before or after it.
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
            // Who is not known to hold a majority may not have taken the lock, but does keep us from it.
            let taken = self.taken.len() >= majority || self.gone.is_empty();
            return Some(Verdict::Lost(match taken {
                true => Loss::TakenOver,
                false => Loss::Gone,
            }));
        }
        // Neither can be, whatever the others say.
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
            .filter_map(|(master, answer)| vote.hear(master, *answer));
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

    /// Also who says so when it is decided already.
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
            let verdicts = verdicts.filter_map(|(master, answer)| vote.hear(master, *answer));
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
        assert_eq!(vote.hear(0, RENEWED), None);
        assert_eq!(vote.hear(0, RENEWED), None);
        assert_eq!(vote.hear(1, None), None);
        assert_eq!(vote.hear(1, RENEWED), None);
    }
}
