//! One acquisition over many masters.

use std::time::Duration;

use super::{Masters, Size};
use crate::record::Outcome;
use crate::token::{self, Token, TokenCount};

/// One acquisition of one lease id, which is used only once.
///
/// In the first phase an acquire that proposes a token is sent to all masters. Each grant contains a token that is
/// larger than the counter of its master, and becomes the counter. A master has taken the proposal if that token is
/// the proposal. When a majority has taken it, it is the token.
///
/// If a majority has granted the lock, but too few can take the proposal, the token is one more than the largest
/// counter among them. In the second phase the token is written to those masters, and to no others, where the lease
/// still holds the lock and the counter is smaller. A majority must accept it. Without a proposal there are always
/// two phases.
///
/// Then no two acquisitions have the same token, and a later owner of the lock, whose lease is held by a majority at
/// once, has a larger one, whatever the clocks show, as long as no master forgets its counter. For in either case a
/// majority has stored the token, each while the lease held the lock there and its counter was smaller. Two such
/// majorities have a master in common, and there the counter grew from the token that was stored first to the other.
/// On that master the token of the earlier owner was stored first. If it was the proposal, the master stored it with
/// the grant, before the later grant. Otherwise it was written only while the lease held the lock, so also before the
/// later grant. None of the rules can be left out: the model shows for each what happens without it.
///
/// A master that forgets its counter is kept out until all leases from before have expired. A round that counts on its
/// grant afterwards is too late: the deadline of the lease is over.
///
/// A proposal that is too small costs a second phase, and nothing else. One that a minority has taken only raises
/// their counters.
///
/// A round that was not won may have left grants: its lease is to be released on all masters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    size: Size,
    tokens: TokenCount,
    proposal: Option<Token>,
    /// The masters that failed or did not reply.
    failed: Masters,
    /// The masters that refused, and how long the lock is held there.
    refused: Vec<(usize, Duration)>,
    /// The masters that granted the lock in the first phase.
    granted: Masters,
    /// Those of them that have taken the proposal.
    taken: Masters,
    /// The largest counter among the masters that granted the lock.
    last: Option<Token>,
    phase: RoundPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RoundPhase {
    Acquiring,
    Writing { first: Token, accepted: Masters },
    Done,
}

/// The next step of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Wait for more replies.
    Wait,
    /// Write a token, to these masters only.
    Write {
        /// The first of the tokens reserved.
        first: Token,
        /// Where it may be written.
        to: Masters,
    },
    /// The lock is held, provided that the lease has not expired.
    Won {
        /// The first of the tokens reserved.
        first: Token,
    },
    /// The lock is not held.
    Lost(Defeat),
}

/// Why a round was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defeat {
    /// Others hold it.
    Held {
        /// When a majority may be free unless it is renewed or released before.
        left: Duration,
        /// Whether some masters had granted it: then perhaps no lease has a majority.
        split: bool,
    },
    /// Too few masters have replied.
    NoQuorum,
    /// A master granted it, but there is no larger token.
    Exhausted,
}

impl Round {
    /// A round that reserves a block of `tokens`, whose first is to be the `proposal` of the acquire.
    #[must_use]
    pub fn new(size: Size, tokens: TokenCount, proposal: Option<Token>) -> Self {
        Self {
            size,
            tokens,
            proposal,
            failed: Masters::default(),
            refused: Vec::new(),
            granted: Masters::default(),
            taken: Masters::default(),
            last: None,
            phase: RoundPhase::Acquiring,
        }
    }

    /// Takes in the reply of a master to the acquire. `None`: it failed, or did not reply in time. A request
    /// without a reply may have been granted; it does not count.
    ///
    /// A reply in the second phase, or after the end, changes nothing.
    pub fn handle_reply(&mut self, master: usize, reply: Option<&Outcome>) -> Step {
        if self.phase != RoundPhase::Acquiring || self.has_replied(master) {
            return Step::Wait;
        }
        match reply {
            Some(Outcome::Granted { first, .. }) => {
                let Some(last) = token::block_last(*first, self.tokens) else {
                    return self.lose(Defeat::Exhausted);
                };
                self.granted.insert(master);
                if self.proposal == Some(*first) {
                    self.taken.insert(master);
                }
                self.last = self.last.max(Some(last));
            }
            Some(Outcome::Refused {
                time_left: left, ..
            }) => self.refused.push((master, left.unwrap_or_default())),
            Some(Outcome::Exhausted) => return self.lose(Defeat::Exhausted),
            _ => self.failed.insert(master),
        }
        if self.granted.len() >= self.size.majority() {
            return self.handle_majority();
        }
        let lost = self.refused.len() + self.failed.len();
        if self.size.masters() - lost < self.size.majority() {
            return self.give_up();
        }
        Step::Wait
    }

    /// Whether a majority has granted the lock, and the round waits for masters that may still take the proposal.
    ///
    /// The wait is worth while: it saves the second phase, and the counter of a master that is far ahead of the
    /// others does not spread. But it must be short: a master that is slow or dead may be among those waited for.
    #[must_use]
    pub fn awaits_proposal(&self) -> bool {
        self.phase == RoundPhase::Acquiring && self.granted.len() >= self.size.majority()
    }

    /// Ends that wait, and begins the second phase.
    pub fn end_proposal_wait(&mut self) -> Step {
        match self.awaits_proposal() {
            true => self.choose_token(),
            false => Step::Wait,
        }
    }

    /// Takes in the reply of a master to the token. `None` as for [`Round::handle_reply`].
    pub fn handle_token_reply(&mut self, master: usize, reply: Option<&Outcome>) -> Step {
        let RoundPhase::Writing { first, accepted } = &mut self.phase else {
            return Step::Wait;
        };
        if !self.granted.contains(master) || self.failed.contains(master) {
            return Step::Wait;
        }
        if matches!(reply, Some(Outcome::Stored)) {
            accepted.insert(master);
        } else if !accepted.contains(master) {
            self.failed.insert(master);
        }
        let (first, accepted) = (*first, accepted.len());
        let open = self.granted.without(self.failed).len();
        if accepted >= self.size.majority() {
            self.phase = RoundPhase::Done;
            return Step::Won { first };
        }
        if open < self.size.majority() {
            return self.lose(Defeat::NoQuorum);
        }
        Step::Wait
    }

    fn handle_majority(&mut self) -> Step {
        let taken = self.taken.len();
        match self.proposal {
            Some(first) if taken >= self.size.majority() => {
                self.phase = RoundPhase::Done;
                Step::Won { first }
            }
            Some(_) if taken + self.open() >= self.size.majority() => Step::Wait,
            _ => self.choose_token(),
        }
    }

    /// How many masters have not replied to the acquire.
    fn open(&self) -> usize {
        self.size.masters() - self.granted.len() - self.refused.len() - self.failed.len()
    }

    fn has_replied(&self, master: usize) -> bool {
        self.granted.contains(master)
            || self.failed.contains(master)
            || self.refused.iter().any(|(refused, _)| *refused == master)
    }

    fn choose_token(&mut self) -> Step {
        // Larger than every counter that was read, and so than every token that any of these masters knows.
        let first = self.last.and_then(|last| Token::new(last.get() + 1));
        let Some(first) = first.filter(|first| token::block_last(*first, self.tokens).is_some())
        else {
            return self.lose(Defeat::Exhausted);
        };
        self.phase = RoundPhase::Writing {
            first,
            accepted: Masters::default(),
        };
        let to = self.granted;
        Step::Write { first, to }
    }

    fn give_up(&mut self) -> Step {
        let replied = self.refused.len() + self.granted.len();
        if replied < self.size.majority() {
            // The round can no longer be won. The reason is not known yet.
            return match replied + self.open() < self.size.majority() {
                true => self.lose(Defeat::NoQuorum),
                false => Step::Wait,
            };
        }
        // So many of the masters that refused must be free before a majority can be.
        let missing = self.size.majority().saturating_sub(self.granted.len());
        let mut times: Vec<_> = self.refused.iter().map(|(_, left)| *left).collect();
        times.sort_unstable();
        let left = missing.checked_sub(1).and_then(|nth| times.get(nth));
        let split = !self.granted.is_empty();
        match left.or(times.last()) {
            Some(left) => self.lose(Defeat::Held { left: *left, split }),
            None => self.lose(Defeat::NoQuorum),
        }
    }

    fn lose(&mut self, defeat: Defeat) -> Step {
        self.phase = RoundPhase::Done;
        Step::Lost(defeat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::token;

    const ONE: TokenCount = TokenCount::MIN;

    fn round(masters: usize) -> Round {
        Round::new(Size::new(masters).unwrap(), ONE, None)
    }

    fn round_with(masters: usize, proposal: u64) -> Round {
        Round::new(Size::new(masters).unwrap(), ONE, Some(token(proposal)))
    }

    fn granted(first: u64) -> Option<Outcome> {
        let first = token(first);
        Some(Outcome::granted(first))
    }

    fn refused(millis: u64) -> Option<Outcome> {
        let left = Duration::from_millis(millis);
        Some(Outcome::Refused {
            time_left: Some(left),
            queue_position: None,
        })
    }

    fn held(millis: u64, split: bool) -> Step {
        let left = Duration::from_millis(millis);
        Step::Lost(Defeat::Held { left, split })
    }

    #[test]
    fn a_token_is_larger_than_every_block_that_was_read() {
        let count = TokenCount::new(256).unwrap();
        let mut round = Round::new(Size::new(3).unwrap(), count, None);
        round.handle_reply(0, granted(1_000).as_ref());
        let step = round.handle_reply(1, granted(1_100).as_ref());
        assert!(matches!(step, Step::Write { first, .. } if first == token(1_356)));
    }

    #[test]
    fn a_proposal_that_a_majority_has_taken_is_the_token() {
        let mut round = round_with(5, 7);
        assert_eq!(round.handle_reply(0, granted(7).as_ref()), Step::Wait);
        // The counter of this one is ahead. It does not keep the others from a majority.
        assert_eq!(round.handle_reply(1, granted(90).as_ref()), Step::Wait);
        assert_eq!(round.handle_reply(2, granted(7).as_ref()), Step::Wait);
        assert!(round.awaits_proposal());
        let first = token(7);
        assert_eq!(
            round.handle_reply(3, granted(7).as_ref()),
            Step::Won { first }
        );
        // After the end.
        assert!(!round.awaits_proposal());
        assert_eq!(round.handle_reply(4, granted(7).as_ref()), Step::Wait);
        assert_eq!(round.end_proposal_wait(), Step::Wait);
    }

    #[test]
    fn a_proposal_that_too_few_take_costs_a_second_phase() {
        let write = |step, first: u64, masters: usize| {
            assert!(
                matches!(step, Step::Write { first: it, to } if it == token(first) && to.len() == masters),
                "{step:?}"
            );
        };
        // Smaller than the counters.
        let mut round = round_with(3, 7);
        round.handle_reply(0, granted(8).as_ref());
        write(round.handle_reply(1, granted(9).as_ref()), 10, 2);

        // The rest replies too late.
        let mut round = round_with(5, 7);
        assert_eq!(round.end_proposal_wait(), Step::Wait);
        for (master, first) in [(0, 7), (1, 90), (2, 7)] {
            assert_eq!(
                round.handle_reply(master, granted(first).as_ref()),
                Step::Wait
            );
        }
        write(round.end_proposal_wait(), 91, 3);
        assert_eq!(round.handle_reply(3, granted(7).as_ref()), Step::Wait);

        // The rest does not take it.
        for reply in [None, refused(1), granted(8)] {
            let mut round = round_with(3, 7);
            round.handle_reply(0, granted(7).as_ref());
            assert_eq!(round.handle_reply(1, granted(90).as_ref()), Step::Wait);
            let masters = 2 + usize::from(reply == granted(8));
            write(round.handle_reply(2, reply.as_ref()), 91, masters);
        }
    }

    #[test]
    fn a_token_that_too_few_accept_does_not_count() {
        for reply in [None, Some(Outcome::Outdated), Some(Outcome::Kept)] {
            let mut round = round(3);
            round.handle_reply(0, granted(5).as_ref());
            round.handle_reply(1, granted(5).as_ref());
            let accepted = || Some(Outcome::Stored);
            let no_quorum = Step::Lost(Defeat::NoQuorum);
            for (master, reply, step) in [
                // It did not grant, so the token was not sent to it.
                (2, accepted(), Step::Wait),
                (0, accepted(), Step::Wait),
                (1, reply, no_quorum),
                // After the end.
                (0, accepted(), Step::Wait),
            ] {
                assert_eq!(round.handle_token_reply(master, reply.as_ref()), step);
            }
        }
    }

    #[test]
    fn a_missing_reply_is_a_failure_and_the_others_decide() {
        let mut round = round(5);
        assert_eq!(round.handle_reply(4, None), Step::Wait);
        assert_eq!(round.handle_reply(3, None), Step::Wait);
        // It came after all, and does not count.
        assert_eq!(round.handle_reply(3, granted(50).as_ref()), Step::Wait);
        round.handle_reply(0, granted(1).as_ref());
        round.handle_reply(1, granted(2).as_ref());
        let step = round.handle_reply(2, granted(3).as_ref());
        assert!(matches!(step, Step::Write { first, to } if first == token(4) && to.len() == 3));
    }

    #[test]
    fn a_refused_round_knows_when_a_majority_may_be_free() {
        let mut round = round(5);
        round.handle_reply(0, refused(100).as_ref());
        round.handle_reply(1, refused(300).as_ref());
        // Three of them are a majority, so two are enough to be free: the fourth and fifth may be.
        assert_eq!(
            round.handle_reply(2, refused(200).as_ref()),
            held(300, false)
        );
    }

    #[test]
    fn a_split_vote_differs_from_a_holder() {
        let mut round = round(3);
        round.handle_reply(0, granted(1).as_ref());
        round.handle_reply(1, refused(70).as_ref());
        assert_eq!(round.handle_reply(2, refused(80).as_ref()), held(70, true));
    }

    #[test]
    fn too_few_replies_are_not_a_refusal() {
        let mut round = round(3);
        round.handle_reply(0, refused(50).as_ref());
        round.handle_reply(1, None);
        assert_eq!(round.handle_reply(2, None), Step::Lost(Defeat::NoQuorum));
    }

    #[test]
    fn tokens_end() {
        let mut round = round(3);
        round.handle_reply(0, granted(Token::MAX.get()).as_ref());
        let step = round.handle_reply(1, granted(1).as_ref());
        assert_eq!(step, Step::Lost(Defeat::Exhausted));
    }
}
