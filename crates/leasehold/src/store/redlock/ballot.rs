//! One request, and what the masters answered to it.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::quorum::{Defeat, Masters, Round, Size, Step, Verdict, Vote};
use leasehold_core::{LeaseId, Op, Outcome, Scope, StoreTime, Token};

use crate::store::{Key, Reply, Request};
use crate::{Error, ErrorKind};

/// One request on its way to a reply.
pub(super) struct Ballot {
    size: Size,
    request: Request,
    kind: Kind,
    heard: Masters,
    errors: Vec<Error>,
    now: StoreTime,
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

impl Ballot {
    pub(super) fn new(size: Size, request: Request) -> Self {
        let kind = match request.op {
            Op::Acquire { tokens, .. } => Kind::Round(Round::new(size, tokens)),
            Op::Enter { .. } | Op::Fence { .. } | Op::Renew { .. } | Op::Release { .. } => {
                Kind::Vote(Vote::new(size))
            }
            Op::Revoke => Kind::Revoke {
                done: 0,
                cut_off: Vec::new(),
            },
        };
        Self {
            size,
            request,
            kind,
            heard: Masters::default(),
            errors: Vec::new(),
            now: StoreTime::default(),
            reply: None,
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
        if !second {
            self.heard.insert(master);
        }
        let step = match &mut self.kind {
            Kind::Round(round) if second => round.hear_written(master, outcome),
            Kind::Round(round) => round.hear(master, outcome),
            Kind::Vote(vote) => {
                let verdict = vote.hear(master, outcome)?;
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
                steps.push(round.hear(master, None));
                steps.push(round.hear_written(master, None));
            }
            for step in steps {
                if matches!(step, Step::Lost(_)) && self.reply.is_none() {
                    let message = match self.size.masters() - self.heard.len() {
                        0 => format!("the token was not written within {patience:?}"),
                        silent => format!("no answer of {silent} within {patience:?}"),
                    };
                    self.silent(message);
                    self.step(step);
                }
            }
        }
        if self.reply.is_some() {
            self.heard = self.size.all();
        }
    }

    /// As [`Ballot::close`] for what a holder or an operator does: what a majority did not say in time
    /// nobody knows.
    pub(super) fn give_up(&mut self, patience: Duration) {
        if matches!(self.kind, Kind::Round(_)) {
            return;
        }
        self.heard = self.size.all();
        if self.reply.is_none() {
            self.silent(format!("no answer of the others within {patience:?}"));
            self.undecided();
            // Whom an operator cut off is known without the others.
            self.count_revoked();
        }
    }

    pub(super) fn namespace(&self) -> &Scope {
        self.request.key.space.namespace()
    }

    /// Whether nothing more is to be waited for. A renewal waits for all, for it mends who has forgotten.
    pub(super) fn is_done(&self) -> bool {
        let renewal = matches!(self.request.op, Op::Renew { .. });
        self.reply.is_some() && (!renewal || self.heard.len() == self.size.masters())
    }

    pub(super) fn into_reply(self) -> (Key, Reply) {
        let unknown = || Reply::Unknown(no_quorum(self.size, &self.errors));
        (self.request.key.clone(), self.reply.unwrap_or_else(unknown))
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
                self.undecided();
                None
            }
        }
    }

    fn decide(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Lost(loss) => self.applied(Outcome::Lost(loss)),
            Verdict::NoQuorum => self.undecided(),
            Verdict::Done => self.applied(match self.request.op {
                Op::Enter { count, .. } => Outcome::Entered { count },
                Op::Release { count, .. } => Outcome::Released { count },
                Op::Fence { .. } => Outcome::Fenced,
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
            return self.undecided();
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
        Some(self.again(Op::Fence {
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

    fn undecided(&mut self) {
        self.reply = Some(Reply::Unknown(no_quorum(self.size, &self.errors)));
    }

    fn applied(&mut self, outcome: Outcome) {
        let now = self.now;
        self.reply = Some(Reply::Applied { outcome, now });
    }
}

/// Too few masters have answered. If all that failed did so for one reason that does not pass, that is it.
pub(super) fn no_quorum(size: Size, errors: &[Error]) -> Error {
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
    let message = format!(
        "no majority of {} masters: {}",
        size.masters(),
        said.join("; ")
    );
    Error::new(kind, message)
}
