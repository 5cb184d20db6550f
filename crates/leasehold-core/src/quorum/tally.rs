//! One request to many masters: where it is sent, and what their replies come to.

use super::{Defeat, Masters, Round, Size, Step, Verdict, Vote};
use crate::id::LeaseId;
use crate::record::{Acquire, Loss, Op, Outcome};
use crate::time::StoreTime;
use crate::token::Token;

/// The replies of the masters to one request.
///
/// Its host sends [`Tally::op_for`] to each master, and passes the replies to [`Tally::handle_reply`] until
/// [`Tally::is_done`]. It bounds the waits: by [`Tally::end_proposal_wait`], [`Tally::close`] and [`Tally::give_up`].
#[derive(Clone, Debug)]
pub struct Tally {
    size: Size,
    op: Op,
    kind: Kind,
    /// The masters that have replied, and those that are not waited for.
    replied: Masters,
    /// The replies to an acquisition.
    grants: Leftover,
    /// The masters that have granted the lease to be released: their replies are awaited.
    awaited: Masters,
    now: Option<StoreTime>,
    /// Too few masters can decide. The reason is known when all have replied.
    no_quorum: bool,
    outcome: Option<Outcome>,
}

/// What the acquisition of a lease has left at the masters. A release is sent only where the lease may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// The masters that have granted it.
    pub granted: Masters,
    /// The masters that certainly do not have it: they refused it, or have released it since.
    pub clear: Masters,
}

/// The reply of a master, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The operation was applied.
    Applied {
        /// Its outcome.
        outcome: Outcome,
        /// The time of the master. Of several, the latest.
        now: Option<StoreTime>,
    },
    /// It was certainly not applied.
    Rejected,
    /// There was no reply.
    Unknown,
}

/// An operation for some of the masters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressed {
    /// The operation.
    pub op: Op,
    /// The masters.
    pub to: Masters,
}

#[derive(Clone, Debug)]
enum Kind {
    /// An acquisition.
    Round(Round),
    /// An operation of a holder.
    Vote(Vote),
    /// An operation of an operator, which waits for all masters.
    Operator {
        /// How many have applied it.
        done: usize,
        /// The leases that they have revoked.
        leases: Vec<LeaseId>,
        /// Whether one of them had the note that is removed.
        removed: bool,
    },
}

impl Tally {
    /// A request without replies. `proposal` is that for the token of an acquisition, `leftover` is what the lease to be
    /// released has left.
    #[must_use]
    pub fn new(
        size: Size,
        mut op: Op,
        proposal: Option<Token>,
        leftover: Option<Leftover>,
    ) -> Self {
        let kind = match &mut op {
            Op::Acquire(acquire) => {
                acquire.proposal = proposal;
                Kind::Round(Round::new(size, acquire.tokens, proposal))
            }
            // A minority that misses the begin of a minimum hold changes nothing: a majority refuses every other lease
            // until its end, and the minority keeps the lease of the holder, or none, until its ttl has passed.
            Op::SetToken { .. }
            | Op::Renew { .. }
            | Op::Release { .. }
            | Op::WriteNote { .. }
            | Op::Convert { .. }
            | Op::SetLimit { .. }
            | Op::Serve
            | Op::Arrive { .. }
            | Op::Describe { .. } => Kind::Vote(Vote::new(size)),
            Op::Revoke(_) | Op::Remove(_) => Kind::Operator {
                done: 0,
                leases: Vec::new(),
                removed: false,
            },
        };
        let mut tally = Self {
            size,
            op,
            kind,
            replied: Masters::default(),
            grants: Leftover::default(),
            awaited: Masters::default(),
            now: None,
            no_quorum: false,
            outcome: None,
        };
        if let Some(Leftover { granted, clear }) = leftover {
            // The masters that do not have the lease are not called.
            tally.awaited = granted.without(clear);
            for master in clear.iter() {
                let outcome = Outcome::Lost(Loss::Free);
                let now = None;
                let _ = tally.handle_reply(master, false, Reply::Applied { outcome, now });
            }
        }
        tally
    }

    /// The lease that an operation releases without a rest of a minimum hold.
    #[must_use]
    pub const fn released(op: &Op) -> Option<LeaseId> {
        match op {
            Op::Release {
                lease, rest: None, ..
            } => Some(*lease),
            _ => None,
        }
    }

    /// The operation, if it is to be sent to a master.
    #[must_use]
    pub fn op_for(&self, master: usize) -> Option<&Op> {
        (!self.replied.contains(master)).then_some(&self.op)
    }

    /// Processes the reply of a master to the operation, or to that of the second phase. Returns the second phase, if it
    /// begins.
    #[must_use]
    pub fn handle_reply(&mut self, master: usize, second: bool, reply: Reply) -> Option<Addressed> {
        if !second {
            self.replied.insert(master);
            let grants = &mut self.grants;
            match &reply {
                Reply::Applied {
                    outcome: Outcome::Granted { .. },
                    ..
                } => grants.granted.insert(master),
                Reply::Applied { .. } | Reply::Rejected => grants.clear.insert(master),
                Reply::Unknown => {}
            }
        }
        let outcome = match reply {
            Reply::Applied { outcome, now } => {
                self.now = self.now.max(now);
                Some(outcome)
            }
            Reply::Rejected | Reply::Unknown => None,
        };
        let step = match &mut self.kind {
            Kind::Round(round) if second => round.handle_token_reply(master, outcome.as_ref()),
            Kind::Round(round) => round.handle_reply(master, outcome.as_ref()),
            Kind::Vote(vote) => {
                let verdict = vote.handle_reply(master, outcome.as_ref())?;
                self.decide(verdict);
                return None;
            }
            Kind::Operator {
                done,
                leases,
                removed,
            } => {
                match outcome {
                    Some(Outcome::Revoked(revoked)) => {
                        *done += 1;
                        leases.extend(revoked);
                    }
                    Some(Outcome::Removed(one)) => {
                        *done += 1;
                        *removed |= one;
                    }
                    _ => {}
                }
                if self.silent() == 0 {
                    self.count_done();
                }
                return None;
            }
        };
        self.step(step)
    }

    /// Whether a majority has granted an acquisition that waits for masters which may still take its proposal.
    #[must_use]
    pub fn awaits_proposal(&self) -> bool {
        matches!(&self.kind, Kind::Round(round) if round.awaits_proposal())
    }

    /// Ends that wait. Returns the second phase, if it begins.
    pub fn end_proposal_wait(&mut self) -> Option<Addressed> {
        let Kind::Round(round) = &mut self.kind else {
            return None;
        };
        let step = round.end_proposal_wait();
        self.step(step)
    }

    /// Ends the wait for the masters that have not replied by now, where that is safe. Returns how many have not, if an
    /// acquisition is lost by that; 0: the token was not written in time.
    pub fn close(&mut self) -> Option<usize> {
        let mut silent = None;
        if let Kind::Round(round) = &mut self.kind {
            let mut steps = Vec::new();
            for master in self.size.all().iter() {
                steps.push(round.handle_reply(master, None));
                steps.push(round.handle_token_reply(master, None));
            }
            for step in steps {
                if matches!(step, Step::Lost(_)) && self.is_open() {
                    silent = Some(self.silent());
                    let _ = self.step(step);
                }
            }
        }
        if !self.is_open() {
            self.replied = self.size.all();
        }
        silent
    }

    /// As [`Tally::close`] for operations of holders and operators: without a majority in time, the result is
    /// unknown.
    pub fn give_up(&mut self) -> Option<usize> {
        if matches!(self.kind, Kind::Round(_)) {
            return None;
        }
        let silent = self.silent();
        self.replied = self.size.all();
        self.is_open().then(|| {
            self.no_quorum = true;
            // What was revoked or removed is known without the others.
            self.count_done();
            silent
        })
    }

    /// Whether there is nothing more to wait for. A renewal waits for all masters, as it restores the lease where
    /// it was forgotten; so does an acquisition that cannot be won, as only masters that have not replied need its
    /// release; and a release waits for the masters that have granted the lease.
    #[must_use]
    pub fn is_done(&self) -> bool {
        let all = self.silent() == 0;
        match self.op {
            Op::Renew { count: None, .. } => all && !self.is_open(),
            Op::Acquire { .. } if self.no_quorum => all,
            _ => !self.is_open() && self.awaited.without(self.replied).is_empty(),
        }
    }

    /// The reply to the request. Without a majority, an acquisition was rejected if no master can have granted it.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let is_clear = self.grants.clear == self.size.all();
        let is_acquisition = matches!(self.op, Op::Acquire(_));
        let outcome = match &self.outcome {
            Some(Outcome::Refused { time_left, .. }) if !is_clear => Outcome::GrantedInPart {
                time_left: *time_left,
            },
            Some(outcome) => outcome.clone(),
            None if is_acquisition && self.no_quorum && is_clear => return Reply::Rejected,
            None => return Reply::Unknown,
        };
        let now = self.now;
        Reply::Applied { outcome, now }
    }

    /// What the request has left: that of an acquisition that failed, or nothing more of a lease that was released.
    #[must_use]
    pub fn leftover(&self) -> Option<(LeaseId, Option<Leftover>)> {
        match (&self.op, &self.outcome) {
            (Op::Acquire(_), Some(Outcome::Granted { .. })) => None,
            (Op::Acquire(acquire), _) => {
                let is_left = self.grants.clear != self.size.all();
                is_left.then_some((acquire.lease, Some(self.grants)))
            }
            (op, Some(_)) => Self::released(op).map(|lease| (lease, None)),
            _ => None,
        }
    }

    /// The acquisition that restores a renewed lease at the masters that have forgotten it.
    #[must_use]
    pub fn restoration(&self, proposal: Option<Token>) -> Option<(LeaseId, Addressed)> {
        let (
            Op::Renew {
                lease,
                ttl,
                count: None,
            },
            Kind::Vote(vote),
            Some(Outcome::Kept),
        ) = (&self.op, &self.kind, &self.outcome)
        else {
            return None;
        };
        let to = vote.free();
        let op = Op::Acquire(Acquire {
            proposal,
            ..Acquire::mutex(*lease, *ttl)
        });
        (!to.is_empty()).then_some((*lease, Addressed { op, to }))
    }

    /// How many masters have not replied.
    fn silent(&self) -> usize {
        self.size.masters() - self.replied.len()
    }

    fn is_open(&self) -> bool {
        self.outcome.is_none() && !self.no_quorum
    }

    fn step(&mut self, step: Step) -> Option<Addressed> {
        let outcome = match step {
            Step::Wait => return None,
            Step::Write { first, to } => {
                let Op::Acquire(Acquire { lease, tokens, .. }) = self.op else {
                    return None;
                };
                let op = Op::SetToken {
                    lease,
                    first,
                    tokens,
                };
                return Some(Addressed { op, to });
            }
            Step::Won { first } => Outcome::granted(first),
            Step::Lost(Defeat::Held { left, split }) => Outcome::Refused {
                // If no lease has a majority, the first to try again may win.
                time_left: (!split).then_some(left),
                queue_position: None,
            },
            Step::Lost(Defeat::Exhausted) => Outcome::Exhausted,
            Step::Lost(Defeat::NoQuorum) => {
                self.no_quorum = true;
                return None;
            }
        };
        self.applied(outcome);
        None
    }

    fn decide(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Lost(loss) => self.applied(Outcome::Lost(loss)),
            Verdict::Outdated => self.applied(Outcome::Outdated),
            Verdict::NoQuorum => self.no_quorum = true,
            Verdict::Done => self.applied(match self.op {
                Op::Release { .. } => Outcome::Released,
                Op::SetToken { .. } | Op::WriteNote { .. } | Op::Describe { .. } => Outcome::Stored,
                Op::Serve => Outcome::Served,
                _ => Outcome::Kept,
            }),
        }
    }

    /// Counts the masters that have applied an operation of an operator.
    fn count_done(&mut self) {
        let Kind::Operator {
            done,
            leases,
            removed,
        } = &self.kind
        else {
            return;
        };
        if *done < self.size.majority() {
            self.no_quorum = true;
            return;
        }
        self.applied(match self.op {
            Op::Remove(_) => Outcome::Removed(*removed),
            _ => {
                // The lease with most of the masters: the others did not hold the lock.
                let masters =
                    |lease: &LeaseId| leases.iter().filter(|other| *other == lease).count();
                let lease = leases.iter().max_by_key(|lease| masters(lease)).copied();
                Outcome::Revoked(lease.into_iter().collect())
            }
        });
    }

    fn applied(&mut self, outcome: Outcome) {
        self.no_quorum = false;
        self.outcome = Some(outcome);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixture::lease;
    use crate::record::Whom;
    use crate::time::Ttl;

    const LEASE: LeaseId = lease(1);

    fn tally(op: Op, leftover: Option<Leftover>) -> Tally {
        Tally::new(Size::new(3).unwrap(), op, None, leftover)
    }

    fn acquire() -> Op {
        Op::Acquire(Acquire::mutex(LEASE, Ttl::USER_MIN))
    }

    fn applied(outcome: Outcome) -> Reply {
        Reply::Applied { outcome, now: None }
    }

    fn granted() -> Reply {
        let first = Token::new(5).unwrap();
        applied(Outcome::granted(first))
    }

    fn refused() -> Reply {
        applied(Outcome::Refused {
            time_left: Some(Duration::from_secs(1)),
            queue_position: None,
        })
    }

    fn masters(places: &[usize]) -> Masters {
        let mut masters = Masters::default();
        places.iter().for_each(|place| masters.insert(*place));
        masters
    }

    /// Counts one reply of each master, from the first one on.
    fn counted(op: Op, replies: &[Reply]) -> Tally {
        let mut tally = tally(op, None);
        for (master, reply) in replies.iter().enumerate() {
            assert_eq!(tally.handle_reply(master, false, reply.clone()), None);
        }
        tally
    }

    #[test]
    fn an_acquisition_that_failed_leaves_what_its_release_needs() {
        for (replies, granted_at, clear) in [
            ([granted(), refused(), refused()], &[0][..], &[1, 2][..]),
            ([granted(), refused(), Reply::Unknown], &[0], &[1]),
            (
                [Reply::Unknown, Reply::Rejected, Reply::Rejected],
                &[],
                &[1, 2],
            ),
        ] {
            let tally = counted(acquire(), &replies);
            let left = Leftover {
                granted: masters(granted_at),
                clear: masters(clear),
            };
            assert!(tally.is_done());
            assert_eq!(tally.leftover(), Some((LEASE, Some(left))), "{replies:?}");
            // The release goes where the lease may be, and waits for those that have granted it.
            let release = self::tally(Op::release(LEASE), Some(left));
            let sent = (0..3).filter(|master| release.op_for(*master).is_some());
            let not_clear = Size::new(3).unwrap().all().without(left.clear);
            assert_eq!(masters(&sent.collect::<Vec<_>>()), not_clear);
            assert_eq!(release.is_done(), granted_at.is_empty() && clear.len() > 1);
        }
        let nothing = counted(acquire(), &[refused(), refused(), refused()]);
        assert_eq!(nothing.leftover(), None);
    }

    #[test]
    fn only_an_acquisition_that_no_master_can_have_granted_was_rejected() {
        let reply = |replies: &[Reply]| counted(acquire(), replies).reply();
        let rejected = || Reply::Rejected;
        assert_eq!(reply(&[rejected(), rejected(), rejected()]), rejected());
        assert_eq!(
            reply(&[rejected(), rejected(), Reply::Unknown]),
            Reply::Unknown
        );
        assert_eq!(reply(&[rejected(), granted(), rejected()]), Reply::Unknown);
        let in_part = applied(Outcome::GrantedInPart { time_left: None });
        assert_eq!(reply(&[granted(), refused(), refused()]), in_part);
        assert_eq!(reply(&[refused(), refused(), refused()]), refused());
    }

    #[test]
    fn an_operator_waits_for_all_masters_and_the_lease_of_most_is_revoked() {
        let other = LeaseId { number: 2, ..LEASE };
        let revoked = |leases: &[LeaseId]| applied(Outcome::Revoked(leases.to_vec()));
        let revoke = || Op::Revoke(Whom::All);
        let mut two = counted(revoke(), &[revoked(&[LEASE]), revoked(&[LEASE])]);
        assert!(!two.is_done());
        let all = [revoked(&[LEASE]), revoked(&[other]), revoked(&[LEASE])];
        assert_eq!(counted(revoke(), &all).reply(), revoked(&[LEASE]));
        // What a majority has revoked is known without the third.
        assert_eq!(two.give_up(), Some(1));
        assert_eq!(two.reply(), revoked(&[LEASE]));
        let one = [revoked(&[LEASE]), Reply::Unknown, Reply::Rejected];
        assert_eq!(counted(revoke(), &one).reply(), Reply::Unknown);
    }

    #[test]
    fn a_renewed_lease_is_restored_where_it_was_forgotten() {
        let renew = || Op::renew(LEASE, Ttl::USER_MIN);
        let (kept, free) = (applied(Outcome::Kept), applied(Outcome::Lost(Loss::Free)));
        let tally = counted(renew(), &[kept.clone(), kept.clone()]);
        assert!(!tally.is_done(), "it waits for all");
        assert_eq!(tally.restoration(None), None);
        let tally = counted(renew(), &[kept.clone(), kept.clone(), free.clone()]);
        let (lease, restored) = tally.restoration(None).unwrap();
        assert_eq!((lease, restored.to), (LEASE, masters(&[2])));
        let lost = counted(renew(), &[free.clone(), kept, free]);
        assert_eq!(lost.restoration(None), None);
    }
}
