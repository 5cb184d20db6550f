//! A request that the masters decide: their replies, by the rule of [`leasehold_core::quorum`], and their errors.

use std::iter::repeat_n;
use std::time::Duration;

use leasehold_core::quorum::{self, Addressed, Masters, Size, Tally};
use leasehold_core::{LeaseId, Namespace, Op, Token};

use super::leases::Leases;
use super::no_quorum::no_quorum;
use crate::store::api::{Reply, Request};
use crate::store::redis::errors::is_not_admitted;
use crate::{Error, ErrorKind};

/// A request, and the replies of the masters to it.
pub(super) struct PendingRequest {
    size: Size,
    request: Request,
    pub(super) tally: Tally,
    errors: Vec<Error>,
}

impl PendingRequest {
    pub(super) fn new(
        size: Size,
        request: Request,
        proposal: Option<Token>,
        leases: &Leases,
    ) -> Self {
        let released = Tally::released(&request.op);
        let leftover = released.and_then(|lease| leases.leftover(lease));
        Self {
            size,
            tally: Tally::new(size, request.op.clone(), proposal, leftover),
            request,
            errors: Vec::new(),
        }
    }

    /// The request, if it is to be sent to a master.
    pub(super) fn for_master(&self, master: usize) -> Option<Request> {
        let op = self.tally.op_for(master)?;
        Some(self.with(op.clone()))
    }

    /// Counts the reply of a master to the request, or to that of the second phase. Returns the second phase, if it begins.
    pub(super) fn count(
        &mut self,
        master: usize,
        second: bool,
        reply: Reply,
        leases: &Leases,
    ) -> Option<(Masters, Request)> {
        let reply = match reply {
            Reply::Applied { outcome, now } => {
                if let Some(lease) = Tally::released(&self.request.op) {
                    leases.released_at(lease, master);
                }
                quorum::Reply::Applied { outcome, now }
            }
            Reply::Rejected(error) => {
                self.errors.push(error);
                quorum::Reply::Rejected
            }
            Reply::Unknown(error) => {
                self.errors.push(error);
                quorum::Reply::Unknown
            }
        };
        let next = self.tally.handle_reply(master, second, reply)?;
        Some(self.addressed(next))
    }

    /// Ends the wait for masters that may still take a proposal. Returns the second phase, if it begins.
    pub(super) fn end_proposal_wait(&mut self) -> Option<(Masters, Request)> {
        let next = self.tally.end_proposal_wait()?;
        Some(self.addressed(next))
    }

    /// Ends the wait for the masters that have not replied by now, where that is safe.
    pub(super) fn close(&mut self, limit: Duration) {
        if let Some(silent) = self.tally.close() {
            let message = match silent {
                0 => format!("the token was not written within {limit:?}"),
                _ => format!("no reply from {silent} within {limit:?}"),
            };
            self.note_silent(silent, message);
        }
    }

    /// As [`PendingRequest::close`] for operations of holders and operators.
    pub(super) fn give_up(&mut self, limit: Duration) {
        if let Some(silent) = self.tally.give_up() {
            self.note_silent(silent, format!("no reply from the others within {limit:?}"));
        }
    }

    /// Notes that the replies of so many masters are missing, of one at least.
    fn note_silent(&mut self, masters: usize, message: String) {
        let error = Error::new(ErrorKind::Unreachable, message);
        self.errors.extend(repeat_n(error, masters.max(1)));
    }

    pub(super) fn namespace(&self) -> &Namespace {
        self.request.key.space.namespace()
    }

    /// Records what an acquisition has left, or that a release has freed it.
    pub(super) fn note_leftover(&self, leases: &Leases) {
        if let Some((lease, leftover)) = self.tally.leftover() {
            leases.set_leftover(lease, leftover);
        }
    }

    /// The acquisition that restores a renewed lease at the masters that have forgotten it.
    pub(super) fn restoration(
        &self,
        proposal: Option<Token>,
    ) -> Option<(LeaseId, (Masters, Request))> {
        let (lease, restoring) = self.tally.restoration(proposal)?;
        Some((lease, self.addressed(restoring)))
    }

    /// The reply. `kept_out` is how long until enough masters of a namespace are admitted.
    pub(super) fn reply(&self, kept_out: impl Fn(&Namespace) -> Option<Duration>) -> Reply {
        let no_quorum = || {
            let not_admitted = self.errors.iter().any(is_not_admitted);
            let wait = not_admitted.then(|| kept_out(self.namespace()));
            no_quorum(self.size, &self.errors, wait.flatten())
        };
        match self.tally.reply() {
            quorum::Reply::Applied { outcome, now } => Reply::Applied { outcome, now },
            quorum::Reply::Rejected => Reply::Rejected(no_quorum()),
            quorum::Reply::Unknown => Reply::Unknown(no_quorum()),
        }
    }

    fn addressed(&self, Addressed { op, to }: Addressed) -> (Masters, Request) {
        (to, self.with(op))
    }

    fn with(&self, op: Op) -> Request {
        let key = self.request.key.clone();
        Request {
            key,
            op,
            ..self.request
        }
    }
}
