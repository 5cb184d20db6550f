//! A machine and its host.

use super::*;
use crate::record::queue;

/// Names lease ids by number and collects releases.
pub(super) struct Host {
    pub(super) machine: Acquisition,
    leases: u64,
    pub(super) released: Vec<AbandonedLease>,
    pub(super) expired_grants: u32,
}

impl Host {
    pub(super) fn new(options: AcquisitionOptions) -> Self {
        Self {
            machine: Acquisition::new(options, Backoff::default(), Instant::default()),
            leases: 0,
            released: Vec::new(),
            expired_grants: 0,
        }
    }

    /// Polls until there is an action, and returns it.
    pub(super) fn poll(&mut self, now: u64) -> AcquireAction {
        loop {
            match self.machine.poll(at(now), SHARD) {
                AcquireAction::NewLease => {
                    self.leases += 1;
                    self.machine.start(lease(self.leases), TokenCount::MIN);
                }
                AcquireAction::Release(abandoned) => self.released.push(abandoned),
                AcquireAction::GrantExpired => self.expired_grants += 1,
                action => return action,
            }
        }
    }

    /// Expects a request, and returns the lease id that it names.
    pub(super) fn sends(&mut self, now: u64) -> LeaseId {
        match self.poll(now) {
            AcquireAction::Acquire(Op::Acquire(request)) => request.lease,
            other => panic!("no request at {now} ms: {other:?}"),
        }
    }

    pub(super) fn waits(&mut self, now: u64) {
        let action = self.poll(now);
        assert!(
            matches!(action, AcquireAction::Wait),
            "{now} ms: {action:?}"
        );
    }

    pub(super) fn holds(&mut self, now: u64) -> GrantedLease {
        match self.poll(now) {
            AcquireAction::Granted(granted) => granted,
            other => panic!("no grant at {now} ms: {other:?}"),
        }
    }

    pub(super) fn fails(&mut self, now: u64) {
        let action = self.poll(now);
        assert!(
            matches!(action, AcquireAction::Failed),
            "{now} ms: {action:?}"
        );
    }

    /// The store applied the request at the same time of its own clock.
    pub(super) fn applied(&mut self, outcome: Outcome, now: u64) {
        let reply = AcquireReply::Applied {
            outcome,
            now: store_time(now),
            shard: Some(SHARD),
            notifies_changes: false,
        };
        self.machine.handle_reply(reply, at(now), SPREAD);
    }

    /// The request was refused by a store that notifies of changes.
    pub(super) fn refused_without_queue(&mut self, left: u64, now: u64) {
        self.refused(refused(left, None), now);
    }

    /// The same with an outcome.
    pub(super) fn refused(&mut self, outcome: Outcome, now: u64) {
        let reply = AcquireReply::Applied {
            outcome,
            now: store_time(now),
            shard: Some(SHARD),
            notifies_changes: true,
        };
        self.machine.handle_reply(reply, at(now), SPREAD);
    }

    pub(super) fn unknown(&mut self, now: u64) {
        let reply = AcquireReply::Unknown(Failure::Transient);
        self.machine.handle_reply(reply, at(now), SPREAD);
    }

    pub(super) fn rejected(&mut self, failure: Failure, now: u64) {
        let reply = AcquireReply::Rejected(failure);
        self.machine.handle_reply(reply, at(now), SPREAD);
    }

    pub(super) fn notice(&mut self, notice: AcquireNotice, now: u64) -> bool {
        self.machine.handle_notice(notice, at(now), SPREAD)
    }

    /// The store granted the lock at `granted` by its clock, and the notice came at `now`.
    pub(super) fn pushed(&mut self, first: u64, granted: u64, now: u64) {
        let grant = Grant {
            lease: self.machine.lease().unwrap(),
            ttl: queue::acceptance(ttl()),
            first: token(first),
            number: None,
            floor: None,
            now: store_time(granted),
            run: None,
        };
        assert!(self.notice(AcquireNotice::Granted(grant), now));
    }

    /// Rounded up to whole milliseconds.
    pub(super) fn next_timeout(&self) -> u64 {
        let next = self.machine.next_timeout().unwrap();
        next.as_nanos().div_ceil(1_000_000)
    }

    /// Joins the queue with a request whose reply comes at the same instant.
    pub(super) fn queued(&mut self, now: u64) {
        self.sends(now);
        self.applied(refused(20_000, Some(0)), now);
        self.waits(now);
    }
}
