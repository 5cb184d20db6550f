//! One request, and what the masters answered to it.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::quorum::{Defeat, Masters, Round, Size, Step, Verdict, Vote};
use leasehold_core::{LeaseId, Loss, Op, Outcome, ScopeName, StoreTime, Token};

use super::admission::Admission;
use super::leftovers::{Leftovers, Replies};
use crate::store::redis::errors::is_unarmed;
use crate::store::{Key, Reply, Request};
use crate::{Error, ErrorKind};

/// One request on its way to a reply.
pub(super) struct Tally {
    size: Size,
    request: Request,
    kind: Kind,
    heard: Masters,
    /// What was answered to an acquisition.
    at: Replies,
    /// Those that have granted a lease that is to be released: they are waited for.
    awaited: Masters,
    errors: Vec<Error>,
    now: StoreTime,
    /// Too few masters can. Why is known when all have answered.
    no_quorum: bool,
    reply: Option<Reply>,
}

enum Kind {
    /// An acquisition.
    Round(Round),
    /// Whatever a holder does.
    Vote(Vote),
    /// An operator's: who did it, and whom it cut off.
    Revoke { done: usize, cut_off: Vec<LeaseId> },
}

impl Tally {
    pub(super) fn new(size: Size, request: Request, leftovers: &Leftovers) -> Self {
        let kind = match request.op {
            Op::Acquire { tokens, .. } => Kind::Round(Round::new(size, tokens)),
            Op::Enter { .. } | Op::SetToken { .. } | Op::Renew { .. } | Op::Release { .. } => {
                Kind::Vote(Vote::new(size))
            }
            Op::Revoke => Kind::Revoke {
                done: 0,
                cut_off: Vec::new(),
            },
        };
        let mut tally = Self {
            size,
            request,
            kind,
            heard: Masters::default(),
            at: Replies::default(),
            awaited: Masters::default(),
            errors: Vec::new(),
            now: StoreTime::default(),
            no_quorum: false,
            reply: None,
        };
        let lost = tally.released().and_then(|lease| leftovers.replies(lease));
        if let Some(at) = lost {
            tally.skip(at);
        }
        tally
    }

    /// Counts the masters that have nothing of a lease that is to be released: they are not asked.
    fn skip(&mut self, at: Replies) {
        self.awaited = at.granted.without(at.clear);
        for master in at.clear.iter() {
            let outcome = Outcome::Lost(Loss::Gone);
            let now = self.now;
            self.hear(master, false, Reply::Applied { outcome, now });
        }
    }

    /// The request, if it is to be sent to a master.
    pub(super) fn request_to(&self, master: usize) -> Option<Request> {
        (!self.heard.contains(master)).then(|| self.request.clone())
    }

    /// The lease that is released as a whole, if that is what the request is for.
    pub(super) fn released(&self) -> Option<LeaseId> {
        match self.request.op {
            Op::Release {
                lease, count: 0, ..
            } => Some(lease),
            _ => None,
        }
    }

    /// Notes what an acquisition has left, or that a release has left nothing.
    pub(super) fn note(&self, leftovers: &Leftovers) {
        let outcome = match &self.reply {
            Some(Reply::Applied { outcome, .. }) => Some(outcome),
            _ => None,
        };
        match (self.request.op, outcome) {
            (Op::Acquire { .. }, Some(Outcome::Granted { .. })) => {}
            (Op::Acquire { .. }, None) if self.is_rejected() => {}
            (Op::Acquire { lease, .. }, _) => leftovers.lost(lease, self.at),
            (Op::Release { lease, .. }, Some(_)) => leftovers.released(lease),
            _ => {}
        }
    }

    /// Takes in the answer of a master in one of the phases. Answers what is to be sent to which masters
    /// as the second, if it begins.
    pub(super) fn hear(
        &mut self,
        master: usize,
        second: bool,
        reply: Reply,
    ) -> Option<(Masters, Request)> {
        if !second {
            self.heard.insert(master);
            match &reply {
                Reply::Applied {
                    outcome: Outcome::Granted { .. },
                    ..
                } => self.at.granted.insert(master),
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
            Kind::Round(round) if second => round.handle_token_reply(master, outcome),
            Kind::Round(round) => round.handle_reply(master, outcome),
            Kind::Vote(vote) => {
                let verdict = vote.handle_reply(master, outcome)?;
                self.decide(verdict);
                return None;
            }
            Kind::Revoke { done, cut_off } => {
                if let Some(Outcome::Revoked { cut_off: lease }) = outcome {
                    *done += 1;
                    cut_off.extend(lease);
                }
                if self.heard.len() == self.size.masters() {
                    self.count_revoked();
                }
                return None;
            }
        };
        self.step(step)
    }

    /// Whoever has not answered by now is not waited for, as far as that may be.
    pub(super) fn close(&mut self, patience: Duration) {
        if let Kind::Round(round) = &mut self.kind {
            let mut steps = Vec::new();
            for master in self.size.all().iter() {
                steps.push(round.handle_reply(master, None));
                steps.push(round.handle_token_reply(master, None));
            }
            for step in steps {
                if matches!(step, Step::Lost(_)) && self.is_open() {
                    let message = match self.size.masters() - self.heard.len() {
                        0 => format!("the token was not written within {patience:?}"),
                        silent => format!("no answer of {silent} within {patience:?}"),
                    };
                    self.silent(message);
                    self.step(step);
                }
            }
        }
        if self.reply.is_some() || self.no_quorum {
            self.heard = self.size.all();
        }
    }

    /// As [`Tally::close`] for what a holder or an operator does: what a majority did not say in time
    /// nobody knows.
    pub(super) fn give_up(&mut self, patience: Duration) {
        if matches!(self.kind, Kind::Round(_)) {
            return;
        }
        self.heard = self.size.all();
        if self.is_open() {
            self.silent(format!("no answer of the others within {patience:?}"));
            self.no_quorum = true;
            // Whom an operator cut off is known without the others.
            self.count_revoked();
        }
    }

    pub(super) fn namespace(&self) -> &ScopeName {
        self.request.key.space.namespace()
    }

    /// Whether nothing more is to be waited for. A renewal waits for all masters, because it restores the
    /// lease where it was forgotten; an acquisition that cannot be won does, because only those that
    /// have not answered need its release; and a release waits for those that have granted the lease.
    pub(super) fn is_done(&self) -> bool {
        let all = self.heard.len() == self.size.masters();
        match self.request.op {
            Op::Renew { .. } => all && !self.is_open(),
            Op::Acquire { .. } if self.no_quorum => all,
            _ => !self.is_open() && self.awaited.without(self.heard).is_empty(),
        }
    }

    fn is_open(&self) -> bool {
        self.reply.is_none() && !self.no_quorum
    }

    /// Whether all masters have answered an acquisition, and none has granted it.
    fn is_rejected(&self) -> bool {
        let acquisition = matches!(self.request.op, Op::Acquire { .. });
        acquisition && self.no_quorum && self.at.clear == self.size.all()
    }

    pub(super) fn into_reply(self, admission: &Admission) -> (Key, Reply) {
        let key = self.request.key.clone();
        let Some(reply) = self.reply else {
            let kept_out = self.errors.iter().any(is_unarmed);
            let left = kept_out.then(|| admission.kept_out(key.space.namespace()));
            let error = no_quorum(self.size, &self.errors, left.flatten());
            return match self.is_rejected() {
                true => (key, Reply::Rejected(error)),
                false => (key, Reply::Unknown(error)),
            };
        };
        (key, reply)
    }

    fn step(&mut self, step: Step) -> Option<(Masters, Request)> {
        match step {
            Step::Wait => None,
            Step::Write { first, to } => Some((to, self.fence(first)?)),
            Step::Won { first } => {
                self.applied(Outcome::Granted { first });
                None
            }
            Step::Lost(Defeat::Held { left, split }) => {
                // If nobody has a majority, it is a matter of who asks again first.
                let left = if split { Duration::ZERO } else { left };
                self.applied(Outcome::Refused { left, place: None });
                None
            }
            Step::Lost(Defeat::Exhausted) => {
                self.applied(Outcome::Exhausted);
                None
            }
            Step::Lost(Defeat::NoQuorum) => {
                self.no_quorum = true;
                None
            }
        }
    }

    fn decide(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Lost(loss) => self.applied(Outcome::Lost(loss)),
            Verdict::NoQuorum => self.no_quorum = true,
            Verdict::Done => self.applied(match self.request.op {
                Op::Enter { count, .. } => Outcome::Entered { count },
                Op::Release { count, .. } => Outcome::Released { count },
                Op::SetToken { .. } => Outcome::Fenced,
                Op::Acquire { .. } | Op::Renew { .. } | Op::Revoke => Outcome::Renewed,
            }),
        }
    }

    /// A renewed lease is asked for again where it was forgotten.
    pub(super) fn refill(&self) -> Option<(Masters, Request)> {
        let renewed = matches!(
            self.reply,
            Some(Reply::Applied {
                outcome: Outcome::Renewed,
                ..
            })
        );
        let (Op::Renew { lease, ttl }, Kind::Vote(vote)) = (&self.request.op, &self.kind) else {
            return None;
        };
        let (lease, ttl, gone) = (*lease, *ttl, vote.gone());
        if gone.is_empty() || !renewed {
            return None;
        }
        let op = Op::Acquire {
            lease,
            count: std::num::NonZeroU32::MIN,
            ttl,
            tokens: std::num::NonZeroU32::MIN,
            wait: false,
        };
        Some((gone, self.again(op)))
    }

    fn count_revoked(&mut self) {
        let Kind::Revoke { done, cut_off } = &self.kind else {
            return;
        };
        if *done < self.size.majority() {
            self.no_quorum = true;
            return;
        }
        // The one that had most of them: the others held no lock.
        let had = |lease: &LeaseId| cut_off.iter().filter(|other| *other == lease).count();
        let cut_off = cut_off.iter().max_by_key(|lease| had(lease)).copied();
        self.applied(Outcome::Revoked { cut_off });
    }

    fn fence(&self, first: Token) -> Option<Request> {
        let Op::Acquire { lease, tokens, .. } = self.request.op else {
            return None;
        };
        Some(self.again(Op::SetToken {
            lease,
            first,
            tokens,
        }))
    }

    fn again(&self, op: Op) -> Request {
        let key = self.request.key.clone();
        Request {
            key,
            op,
            ..self.request
        }
    }

    /// Notes that answers are missing.
    fn silent(&mut self, message: String) {
        let error = Error::new(ErrorKind::Unreachable, message);
        self.errors.push(error);
    }

    fn applied(&mut self, outcome: Outcome) {
        let now = self.now;
        self.no_quorum = false;
        self.reply = Some(Reply::Applied { outcome, now });
    }
}

/// Too few masters have answered. If all that failed did so for one reason that does not pass, that is it.
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
    // Several may have the same to say.
    let mut said = BTreeMap::<&str, Vec<&str>>::new();
    for error in errors {
        let (message, store) = error.parts();
        said.entry(message).or_default().extend(store);
    }
    let said = said.into_iter().map(|(message, mut stores)| {
        stores.sort_unstable();
        stores.dedup();
        match stores.is_empty() {
            true => message.to_owned(),
            false => format!("{}: {message}", stores.join(", ")),
        }
    });
    let said: Vec<_> = said.collect();
    // A master that does not answer may keep them out for longer.
    let at_least = match errors.iter().all(is_unarmed) {
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
        said.join("; ")
    );
    let permanent = errors.iter().filter(|error| !error.is_transient()).count();
    let error = Error::new(kind, message);
    match kept_out {
        Some(left) => error.with_retry_after(left),
        None => {
            error.with_transient(size.masters() - permanent.min(size.masters()) >= size.majority())
        }
    }
}
