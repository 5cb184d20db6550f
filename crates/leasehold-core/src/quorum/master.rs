//! One of many masters: its admission record, and the rule that it applies.

use crate::record::{Environment, Op, Outcome, Rows};
use crate::time::StoreTime;
use crate::token::Token;

/// One run of a master: a process with its data. Drawn anew when the process is started, and when its data
/// may have been replaced by that of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u128);

/// The state of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Master {
    /// Its run.
    pub run: RunId,
    /// Its admission record. `None`: it was never admitted, or has forgotten that.
    pub admission: Option<AdmissionRecord>,
}

/// The record that a master keeps beside the records of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionRecord {
    /// The run for which it is admitted.
    pub run: RunId,
    /// It gives out only larger tokens.
    pub floor: Option<Token>,
    /// At least the largest token that it knows, of all names.
    pub high: Option<Token>,
}

/// How far [`AdmissionRecord::high`] is set ahead of the largest token: a second of tokens, so that it is written about
/// once in a second.
pub const HIGH_STEP: u64 = 1_000_000;

/// The master is not admitted: it may have forgotten what it granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAdmitted;

impl Master {
    /// Applies an operation to the record of a name by its [rule](crate::record), and keeps the admission record.
    /// There are no queues on one of many masters.
    ///
    /// A release without a rest and a note need no admission: they take nothing from another lease, and grant nothing. A
    /// server refuses them all the same in a call with other operations.
    ///
    /// # Errors
    ///
    /// [`NotAdmitted`]: nothing was applied.
    pub fn apply(
        &mut self,
        record: &mut Rows,
        op: &Op,
        now: StoreTime,
    ) -> Result<Outcome, NotAdmitted> {
        if let Op::Release { rest: None, .. } | Op::WriteNote { .. } = op {
            return Ok(self::applied(record, op, now));
        }
        let run = self.run;
        let admission = self.admission.as_mut();
        let admission = admission.filter(|admission| admission.run == run);
        let admission = admission.ok_or(NotAdmitted)?;
        record.raise_counter(admission.floor);
        let outcome = self::applied(record, op, now);
        let counter = record.head().counter;
        if counter > admission.high {
            let last = counter.map_or(0, Token::get);
            admission.high = Some(Token::new(last + HIGH_STEP).unwrap_or(Token::MAX));
        }
        Ok(outcome)
    }

    /// Writes its admission record for this run, by the decision of [`decide`](super::decide). It gives out only
    /// tokens above the floor and above the largest that it has kept.
    pub fn record_admission(&mut self, floor: Option<Token>) {
        let kept = self.admission.and_then(|kept| kept.high.max(kept.floor));
        let floor = floor.max(kept);
        self.admission = Some(AdmissionRecord {
            run: self.run,
            floor,
            high: floor,
        });
    }
}

fn applied(record: &mut Rows, op: &Op, now: StoreTime) -> Outcome {
    record.apply(op, &Environment::at(now), |_| false).outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{lease, token, ttl};
    use crate::record::Acquire;

    fn release(number: u64) -> Op {
        Op::release(lease(number))
    }

    fn acquire(number: u64) -> Op {
        acquire_with(number, None)
    }

    fn acquire_with(number: u64, proposal: Option<Token>) -> Op {
        Op::Acquire(Acquire {
            proposal,
            ..Acquire::mutex(lease(number), ttl(1_000))
        })
    }

    #[test]
    fn a_master_does_nothing_until_it_is_admitted() {
        let now = StoreTime::from_micros(5);
        let mut record = Rows::default();
        let mut master = Master {
            run: RunId(1),
            admission: None,
        };
        let refused = Err(NotAdmitted);
        assert_eq!(master.apply(&mut record, &acquire(1), now), refused);
        master.record_admission(None);
        let first = token(5);
        let granted = Ok(Outcome::granted(first));
        assert_eq!(master.apply(&mut record, &acquire(1), now), granted);
        let high = master.admission.and_then(|admission| admission.high);
        assert_eq!(high, Some(token(1_000_005)));
        master.run = RunId(2);
        assert_eq!(master.apply(&mut record, &acquire(1), now), refused);
        let released = Ok(Outcome::Released);
        assert_eq!(master.apply(&mut record, &release(1), now), released);
    }

    #[test]
    fn the_largest_token_is_never_above_the_one_that_is_kept() {
        let now = StoreTime::default();
        let mut master = Master {
            run: RunId(1),
            admission: None,
        };
        master.record_admission(None);
        let mut record = Rows::default();
        for (number, first) in [
            (1, 5),
            (2, 1_000_000),
            (3, 2_000_000),
            (4, Token::MAX.get()),
        ] {
            master
                .apply(&mut record, &release(number - 1), now)
                .unwrap();
            let first = token(first);
            let op = acquire_with(number, Some(first));
            let granted = Ok(Outcome::granted(first));
            assert_eq!(master.apply(&mut record, &op, now), granted);
            let high = master.admission.and_then(|admission| admission.high);
            assert!(high >= Some(first));
        }
    }

    #[test]
    fn a_master_goes_on_above_its_floor_and_what_it_has_kept() {
        let now = StoreTime::from_micros(5);
        for (kept, floor) in [(None, Some(900)), (Some(900), Some(7)), (Some(900), None)] {
            let admission = kept.map(|high| AdmissionRecord {
                run: RunId(1),
                floor: None,
                high: Some(token(high)),
            });
            let run = RunId(2);
            let mut master = Master { run, admission };
            master.record_admission(floor.map(token));
            let mut record = Rows::default();
            let first = token(901);
            let granted = Ok(Outcome::granted(first));
            assert_eq!(master.apply(&mut record, &acquire(1), now), granted);
        }
    }
}
