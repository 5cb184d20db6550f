//! The tally of one request: the votes of the masters.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::time::Duration;

use leasehold_core::quorum::{Defeat, Masters, Round, Size, Step, Verdict, Vote};
use leasehold_core::{Acquire, LeaseId, Loss, Namespace, Op, Outcome, StoreTime, Token};

use super::leftovers::{Leftovers, Replies};
use crate::error::Retry;
use crate::store::api::{Key, Reply, Request};
use crate::store::redis::errors::is_not_admitted;
use crate::{Error, ErrorKind};

/// The tally of one request.
pub(super) struct Tally {
    size: Size,
    request: Request,
    kind: Kind,
    replied: Masters,
    /// The replies to an acquisition.
    at: Replies,
    /// The masters that have granted the lease to be released: their replies are awaited.
    awaited: Masters,
    errors: Vec<Error>,
    now: Option<StoreTime>,
    /// Too few masters can decide. The reason is known when all have replied.
    no_quorum: bool,
    reply: Option<Reply>,
}

/// The acquisition that restores a renewed lease at the masters that have forgotten it.
pub(super) struct Restoration {
    pub(super) lease: LeaseId,
    pub(super) masters: Masters,
    pub(super) request: Request,
}

enum Kind {
    /// An acquisition.
    Round(Round),
    /// An operation of a holder.
    Vote(Vote),
    /// A forced release: the masters that applied it, and the leases that they revoked.
    Revoke { done: usize, leases: Vec<LeaseId> },
    /// The removal of a note: the masters that applied it, and whether one of them had the note.
    Remove { done: usize, removed: bool },
}

impl Tally {
    pub(super) fn new(
        size: Size,
        mut request: Request,
        proposal: Option<Token>,
        leftovers: &Leftovers,
    ) -> Self {
        let kind = match &mut request.op {
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
            | Op::Serve
            | Op::Arrive { .. }
            | Op::Describe { .. } => Kind::Vote(Vote::new(size)),
            Op::Revoke(_) => Kind::Revoke {
                done: 0,
                leases: Vec::new(),
            },
            Op::Remove(_) => Kind::Remove {
                done: 0,
                removed: false,
            },
        };
        let mut tally = Self {
            size,
            request,
            kind,
            replied: Masters::default(),
            at: Replies::default(),
            awaited: Masters::default(),
            errors: Vec::new(),
            now: None,
            no_quorum: false,
            reply: None,
        };
        let lost = tally.released().and_then(|lease| leftovers.replies(lease));
        if let Some(at) = lost {
            tally.skip(at);
        }
        tally
    }

    /// Counts the masters that do not have the lease to be released: they are not called.
    fn skip(&mut self, at: Replies) {
        self.awaited = at.granted.without(at.clear);
        for master in at.clear.iter() {
            let outcome = Outcome::Lost(Loss::Free);
            let now = self.now;
            self.count(master, false, Reply::Applied { outcome, now });
        }
    }

    /// The request, if it is to be sent to a master.
    pub(super) fn request_to(&self, master: usize) -> Option<Request> {
        (!self.replied.contains(master)).then(|| self.request.clone())
    }

    /// The lease, if the request releases it without a rest of a minimum hold.
    pub(super) fn released(&self) -> Option<LeaseId> {
        match self.request.op {
            Op::Release {
                lease, rest: None, ..
            } => Some(lease),
            _ => None,
        }
    }

    /// Records the leftovers of an acquisition, or that a release has freed them.
    pub(super) fn note(&self, leftovers: &Leftovers) {
        let outcome = self.reply.as_ref().and_then(|reply| reply.outcome().ok());
        match (&self.request.op, outcome) {
            (Op::Acquire(_), Some(Outcome::Granted { .. })) => {}
            (Op::Acquire(_), _) if self.at.clear == self.size.all() => {}
            (Op::Acquire(acquire), _) => leftovers.add(acquire.lease, self.at),
            (
                Op::Release {
                    lease, rest: None, ..
                },
                Some(_),
            ) => leftovers.remove(*lease),
            _ => {}
        }
    }

    /// Counts the reply of a master in one of the phases. Returns the masters and the request of the second phase,
    /// if it begins.
    pub(super) fn count(
        &mut self,
        master: usize,
        second: bool,
        reply: Reply,
    ) -> Option<(Masters, Request)> {
        if !second {
            self.replied.insert(master);
            match &reply {
                reply if matches!(reply.outcome(), Ok(Outcome::Granted { .. })) => {
                    self.at.granted.insert(master);
                }
                Reply::Applied { .. } | Reply::Rejected(_) => self.at.clear.insert(master),
                Reply::Unknown(_) => {}
            }
        }
        let outcome = match reply {
            Reply::Applied { outcome, now } => {
                self.now = self.now.max(now);
                Some(outcome)
            }
            Reply::Rejected(error) | Reply::Unknown(error) => {
                self.errors.push(error);
                None
            }
        };
        let step = match &mut self.kind {
            Kind::Round(round) if second => round.handle_token_reply(master, outcome.as_ref()),
            Kind::Round(round) => round.handle_reply(master, outcome.as_ref()),
            Kind::Vote(vote) => {
                let verdict = vote.handle_reply(master, outcome.as_ref())?;
                self.decide(verdict);
                return None;
            }
            Kind::Revoke { done, leases } => {
                if let Some(Outcome::Revoked(revoked)) = outcome {
                    *done += 1;
                    leases.extend(revoked);
                }
                if self.replied.len() == self.size.masters() {
                    self.count_done();
                }
                return None;
            }
            Kind::Remove { done, removed } => {
                if let Some(Outcome::Removed(one)) = outcome {
                    *done += 1;
                    *removed |= one;
                }
                if self.replied.len() == self.size.masters() {
                    self.count_done();
                }
                return None;
            }
        };
        self.step(step)
    }

    /// Whether a majority has granted an acquisition that waits for masters which may still take its proposal.
    pub(super) fn awaits_proposal(&self) -> bool {
        matches!(&self.kind, Kind::Round(round) if round.awaits_proposal())
    }

    /// Ends that wait. Returns the masters and the request of the second phase, if it begins.
    pub(super) fn end_proposal_wait(&mut self) -> Option<(Masters, Request)> {
        let Kind::Round(round) = &mut self.kind else {
            return None;
        };
        let step = round.end_proposal_wait();
        self.step(step)
    }

    /// Ends the wait for the masters that have not replied by now, where that is safe.
    pub(super) fn close(&mut self, limit: Duration) {
        if let Kind::Round(round) = &mut self.kind {
            let mut steps = Vec::new();
            for master in self.size.all().iter() {
                steps.push(round.handle_reply(master, None));
                steps.push(round.handle_token_reply(master, None));
            }
            for step in steps {
                if matches!(step, Step::Lost(_)) && self.is_open() {
                    let silent = self.size.masters() - self.replied.len();
                    let message = match silent {
                        0 => format!("the token was not written within {limit:?}"),
                        _ => format!("no reply from {silent} within {limit:?}"),
                    };
                    self.silent(silent, message);
                    self.step(step);
                }
            }
        }
        if self.reply.is_some() || self.no_quorum {
            self.replied = self.size.all();
        }
    }

    /// As [`Tally::close`] for operations of holders and operators: without a majority in time, the result is
    /// unknown.
    pub(super) fn give_up(&mut self, limit: Duration) {
        if matches!(self.kind, Kind::Round(_)) {
            return;
        }
        let silent = self.size.masters() - self.replied.len();
        self.replied = self.size.all();
        if self.is_open() {
            self.silent(silent, format!("no reply from the others within {limit:?}"));
            self.no_quorum = true;
            // What was revoked or removed is known without the others.
            self.count_done();
        }
    }

    pub(super) fn namespace(&self) -> &Namespace {
        self.request.key.space.namespace()
    }

    /// Whether there is nothing more to wait for. A renewal waits for all masters, as it restores the lease where
    /// it was forgotten; so does an acquisition that cannot be won, as only masters that have not replied need its
    /// release; and a release waits for the masters that have granted the lease.
    pub(super) fn is_done(&self) -> bool {
        let all = self.replied.len() == self.size.masters();
        match self.request.op {
            Op::Renew { count: None, .. } => all && !self.is_open(),
            Op::Acquire { .. } if self.no_quorum => all,
            _ => !self.is_open() && self.awaited.without(self.replied).is_empty(),
        }
    }

    fn is_open(&self) -> bool {
        self.reply.is_none() && !self.no_quorum
    }

    /// Whether all masters have replied to an acquisition, and none has granted it.
    fn is_rejected(&self) -> bool {
        let acquisition = matches!(self.request.op, Op::Acquire { .. });
        acquisition && self.no_quorum && self.at.clear == self.size.all()
    }

    /// The reply. `kept_out` is how long until enough masters of a namespace are admitted.
    pub(super) fn into_reply(
        self,
        kept_out: impl Fn(&Namespace) -> Option<Duration>,
    ) -> (Key, Reply) {
        let key = self.request.key.clone();
        let clear_everywhere = self.at.clear == self.size.all();
        let Some(reply) = self.reply else {
            let not_admitted = self.errors.iter().any(is_not_admitted);
            let wait = not_admitted.then(|| kept_out(key.space.namespace()));
            let error = no_quorum(self.size, &self.errors, wait.flatten());
            return match self.is_rejected() {
                true => (key, Reply::Rejected(error)),
                false => (key, Reply::Unknown(error)),
            };
        };
        let reply = match reply {
            Reply::Applied {
                outcome: Outcome::Refused { time_left, .. },
                now,
            } if !clear_everywhere => Reply::Applied {
                outcome: Outcome::GrantedInPart { time_left },
                now,
            },
            reply => reply,
        };
        (key, reply)
    }

    fn step(&mut self, step: Step) -> Option<(Masters, Request)> {
        let outcome = match step {
            Step::Wait => return None,
            Step::Write { first, to } => {
                let Op::Acquire(acquire) = &self.request.op else {
                    return None;
                };
                let op = Op::SetToken {
                    lease: acquire.lease,
                    first,
                    tokens: acquire.tokens,
                };
                return Some((to, self.again(op)));
            }
            Step::Won { first } => Outcome::Granted { first, run: None },
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
            Verdict::NoQuorum => self.no_quorum = true,
            Verdict::Done => self.applied(match self.request.op {
                Op::Release { .. } => Outcome::Released,
                Op::SetToken { .. } | Op::WriteNote { .. } | Op::Describe { .. } => Outcome::Stored,
                _ => Outcome::Kept,
            }),
        }
    }

    /// The acquisition that restores a renewed lease where it was forgotten.
    pub(super) fn restoration(&self, proposal: Option<Token>) -> Option<Restoration> {
        let reply = self.reply.as_ref().map(Reply::outcome);
        let renewed = matches!(reply, Some(Ok(Outcome::Kept)));
        let (
            Op::Renew {
                lease,
                ttl,
                count: None,
            },
            Kind::Vote(vote),
        ) = (&self.request.op, &self.kind)
        else {
            return None;
        };
        let free = vote.free();
        if free.is_empty() || !renewed {
            return None;
        }
        let op = Op::Acquire(Acquire {
            proposal,
            ..Acquire::mutex(*lease, *ttl)
        });
        Some(Restoration {
            lease: *lease,
            masters: free,
            request: self.again(op),
        })
    }

    /// Counts the masters that have applied an operation of an operator.
    fn count_done(&mut self) {
        let (done, outcome) = match &self.kind {
            Kind::Round(_) | Kind::Vote(_) => return,
            Kind::Remove { done, removed } => (*done, Outcome::Removed(*removed)),
            Kind::Revoke { done, leases } => {
                // The lease with most of the masters: the others did not hold the lock.
                let masters =
                    |lease: &LeaseId| leases.iter().filter(|other| *other == lease).count();
                let lease = leases.iter().max_by_key(|lease| masters(lease)).copied();
                (*done, Outcome::Revoked(lease.into_iter().collect()))
            }
        };
        match done < self.size.majority() {
            true => self.no_quorum = true,
            false => self.applied(outcome),
        }
    }

    fn again(&self, op: Op) -> Request {
        let key = self.request.key.clone();
        Request {
            key,
            op,
            ..self.request
        }
    }

    /// Notes that the replies of so many masters are missing, of one at least.
    fn silent(&mut self, masters: usize, message: String) {
        let error = Error::new(ErrorKind::Unreachable, message);
        self.errors.extend(repeat_n(error, masters.max(1)));
    }

    fn applied(&mut self, outcome: Outcome) {
        let now = self.now;
        self.no_quorum = false;
        self.reply = Some(Reply::Applied { outcome, now });
    }
}

/// Too few masters have replied. If all that failed did so for one reason that does not pass, that is it.
/// `kept_out` is how long until enough of them are admitted, if that is all that is missing.
pub(super) fn no_quorum(size: Size, errors: &[Error], kept_out: Option<Duration>) -> Error {
    let mut kinds = errors.iter().map(Error::kind);
    let kind = match kinds.next() {
        Some(kind) if kind != ErrorKind::Unreachable && kind != ErrorKind::Store => kind,
        _ => ErrorKind::NoQuorum,
    };
    let kind = match kinds.all(|other| other == kind) {
        true => kind,
        false => ErrorKind::NoQuorum,
    };
    // Several errors may have the same text.
    let mut messages = BTreeMap::<&str, Vec<&str>>::new();
    for error in errors {
        let (message, store) = error.parts();
        messages.entry(message).or_default().extend(store);
    }
    let messages = messages.into_iter().map(|(message, mut stores)| {
        stores.sort_unstable();
        stores.dedup();
        match stores.is_empty() {
            true => message.to_owned(),
            false => format!("{}: {message}", stores.join(", ")),
        }
    });
    let messages: Vec<_> = messages.collect();
    // A master that does not reply may keep them out for longer.
    let at_least = match errors.iter().all(is_not_admitted) {
        true => "",
        false => "at least ",
    };
    let until = kept_out.map_or(String::new(), |left| {
        let left = left.as_secs_f64().ceil();
        format!(", kept out for {at_least}another {left:.0} s")
    });
    let message = format!(
        "no majority of {} masters{until}: {}",
        size.masters(),
        messages.join("; ")
    );
    Error::new(kind, message).with_retry(retry(size, errors, kept_out))
}

/// Whether a majority of the masters replied, and will serve when those that refuse for a while do.
fn retry(size: Size, errors: &[Error], kept_out: Option<Duration>) -> Retry {
    let count = |matches: fn(&Error) -> bool| errors.iter().filter(|error| matches(error)).count();
    let lacking = |missing: usize| missing > size.masters() - size.majority();
    let permanent = count(|error| !error.is_transient());
    let refused = count(Error::is_transient_refusal);
    match kept_out {
        None if lacking(permanent) => Retry::Never,
        None if refused == 0 || lacking(errors.len() - refused) => Retry::NoReply,
        after => Retry::Refused { after },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_that_replies_refuses_for_a_while_and_one_that_does_not_is_silent() {
        let size = Size::new(3).unwrap();
        let error = |retry| Error::new(ErrorKind::Store, "it failed").with_retry(retry);
        let [never, no_reply, refused] =
            [Retry::Never, Retry::NoReply, Retry::Refused { after: None }];
        for (errors, expected) in [
            (&[refused, refused, refused][..], refused),
            (&[refused, refused, no_reply], refused),
            (&[refused, refused, never], refused),
            (&[refused, no_reply], refused),
            (&[refused, no_reply, no_reply], no_reply),
            (&[refused, no_reply, never], no_reply),
            (&[no_reply], no_reply),
            (&[no_reply, no_reply, never], no_reply),
            (&[refused, never, never], never),
        ] {
            let errors: Vec<_> = errors.iter().copied().map(error).collect();
            assert_eq!(retry(size, &errors, None), expected, "{errors:?}");
        }
        let after = Some(Duration::from_secs(1));
        assert_eq!(retry(size, &[], after), Retry::Refused { after });
    }
}
