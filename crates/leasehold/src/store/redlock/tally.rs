//! A request that the masters decide: their replies, by the rule of [`leasehold_core::quorum`], and their errors.

use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::time::Duration;

use leasehold_core::quorum::{self, Addressed, Masters, Size, Tally};
use leasehold_core::{LeaseId, Namespace, Op, Token};

use super::leases::Leases;
use crate::error::Retry;
use crate::store::api::{Key, Reply, Request};
use crate::store::redis::errors::is_not_admitted;
use crate::{Error, ErrorKind};

/// A request, and the replies of the masters to it.
pub(super) struct PendingRequest {
    size: Size,
    request: Request,
    tally: Tally,
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

    /// Whether a majority has granted an acquisition that waits for masters which may still take its proposal.
    pub(super) fn awaits_proposal(&self) -> bool {
        self.tally.awaits_proposal()
    }

    /// Ends that wait. Returns the second phase, if it begins.
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

    /// Whether there is nothing more to wait for.
    pub(super) fn is_done(&self) -> bool {
        self.tally.is_done()
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
    pub(super) fn into_reply(
        self,
        kept_out: impl Fn(&Namespace) -> Option<Duration>,
    ) -> (Key, Reply) {
        let no_quorum = || {
            let not_admitted = self.errors.iter().any(is_not_admitted);
            let wait = not_admitted.then(|| kept_out(self.namespace()));
            no_quorum(self.size, &self.errors, wait.flatten())
        };
        let reply = match self.tally.reply() {
            quorum::Reply::Applied { outcome, now } => Reply::Applied { outcome, now },
            quorum::Reply::Rejected => Reply::Rejected(no_quorum()),
            quorum::Reply::Unknown => Reply::Unknown(no_quorum()),
        };
        (self.request.key, reply)
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
