//! Reading a line of words.

use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::Damaged;
use super::{ABSENT, PLACES_END, VERSION};
use crate::annotation::CompletionKey;
use crate::escape::Extent;
use crate::id::LeaseId;
use crate::job::{JobSchedule, Period};
use crate::latch::LatchCount;
use crate::record::rows::{
    Access, Body, Claim, Condition, Description, End, Holder, Latch, LeaseKind, Leases, Note,
    QueueHead, Setting, Unless, Waiter,
};
use crate::time::{StoreTime, Ttl};
use crate::token::Token;

/// A line that is read word by word. `None` behind its last word.
pub(super) struct TextReader<'a>(Option<&'a str>);

impl<'a> TextReader<'a> {
    pub(super) fn new(line: &'a str) -> Result<Self, Damaged> {
        let mut words = Self(Some(line));
        words.read("version", |word| (word == VERSION).then_some(()))?;
        Ok(words)
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        let line = self.0?;
        let (word, rest) = match line.split_once(' ') {
            Some((word, rest)) => (word, Some(rest)),
            None => (line, None),
        };
        self.0 = rest;
        Some(word)
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Damaged> {
        self.next().and_then(read).ok_or(Damaged(name))
    }

    fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Damaged> {
        self.read(name, |word| match word {
            ABSENT => Some(None),
            word => read(word).map(Some),
        })
    }

    fn number<T: FromStr>(&mut self, name: &'static str) -> Result<T, Damaged> {
        self.read(name, number)
    }

    pub(super) fn lease(&mut self) -> Result<LeaseId, Damaged> {
        self.read("lease", |word| word.parse().ok())
    }

    pub(super) fn time(&mut self, name: &'static str) -> Result<StoreTime, Damaged> {
        self.read(name, time)
    }

    fn place(&mut self) -> Result<u64, Damaged> {
        self.read("place", |word| {
            number(word).filter(|place| *place < PLACES_END)
        })
    }

    pub(super) fn counter(&mut self) -> Result<Option<Token>, Damaged> {
        self.optional("counter", token)
    }

    pub(super) fn body(&mut self) -> Result<Body, Damaged> {
        match self.next() {
            Some("free") => Ok(Body::Free),
            Some("mutex") => self.mutex().map(Body::Leases),
            Some("semaphore") => self.semaphore().map(Body::Leases),
            Some("rwlock") => self.rw_lock().map(Body::Leases),
            Some("latch") => self.latch().map(Body::Latch),
            _ => Err(Damaged("kind")),
        }
    }

    fn mutex(&mut self) -> Result<Leases, Damaged> {
        let mut leases = Leases::new(LeaseKind::Mutex, 1);
        if let Some(lease) = self.optional("lease", |word| word.parse().ok())? {
            let holder = self.holder(lease)?;
            if holder.weight != 1 {
                return Err(Damaged("weight"));
            }
            leases.count(&holder);
            leases.sole = Some(holder);
        }
        Ok(leases)
    }

    fn semaphore(&mut self) -> Result<Leases, Damaged> {
        let limit = self.number("number of permits")?;
        self.used(Leases::new(LeaseKind::Semaphore, limit))
    }

    fn rw_lock(&mut self) -> Result<Leases, Damaged> {
        let phase = self.optional("token of the readers", token)?;
        self.used(Leases {
            phase,
            ..Leases::new(LeaseKind::RwLock, Access::LIMIT)
        })
    }

    fn used(&mut self, leases: Leases) -> Result<Leases, Damaged> {
        let leases = Leases {
            used: self.number("number of used permits")?,
            earliest: self.optional("earliest end", end)?,
            ..leases
        };
        // Permits without an end would never be free again.
        match (leases.used > 0) == leases.earliest.is_some() {
            true => Ok(leases),
            false => Err(Damaged("earliest end")),
        }
    }

    pub(super) fn setting(&mut self) -> Result<Setting, Damaged> {
        Ok(Setting {
            version: self.number::<NonZeroU64>("version of the limit")?.get(),
            keep: self.read("time of the limit", nanos)?,
            until: self.time("end of the limit")?,
        })
    }

    fn latch(&mut self) -> Result<Latch, Damaged> {
        let arrived = self.number("number of arrivals")?;
        Ok(Latch {
            arrived,
            count: self.read("count", |word| {
                LatchCount::new(number(word)?).filter(|count| arrived <= count.get())
            })?,
            until: self.time("end of the latch")?,
        })
    }

    pub(super) fn queue(&mut self) -> Result<QueueHead, Damaged> {
        let queue = QueueHead {
            len: self.number("length of the queue")?,
            next_place: self.place()?,
            until: self.time("end of the queue")?,
        };
        match queue == QueueHead::default() {
            true => Err(Damaged("queue")),
            false => Ok(queue),
        }
    }

    pub(super) fn holder(&mut self, lease: LeaseId) -> Result<Holder, Damaged> {
        Ok(Holder {
            lease,
            is_reserved: self.read("state", |word| match word {
                "held" => Some(false),
                "reserved" => Some(true),
                _ => None,
            })?,
            count: self.number("hold count")?,
            weight: self.number::<NonZeroU64>("weight")?.get(),
            number: None,
            first: self.read("token", token)?,
            requested_at: self.optional("time of the request", time)?,
            end: self.read("end", end)?,
        })
    }

    pub(super) fn numbered_holder(&mut self, lease: LeaseId) -> Result<Holder, Damaged> {
        let holder = self.holder(lease)?;
        let number = match self.next() {
            None => None,
            Some("number") => Some(self.number("number")?),
            Some(_) => return Err(Damaged("last word")),
        };
        Ok(Holder { number, ..holder })
    }

    pub(super) fn waiter(&mut self, lease: LeaseId) -> Result<Waiter, Damaged> {
        Ok(Waiter {
            lease,
            place: self.place()?,
            claim: self.claim()?,
            ttl: self.read("ttl", |word| Ttl::from_millis(number(word)?))?,
            tokens: self.number("number of tokens")?,
            condition: self.condition()?,
        })
    }

    fn claim(&mut self) -> Result<Claim, Damaged> {
        match self.next() {
            Some("mutex") => Ok(Claim::Mutex),
            Some(word @ ("permits" | "numbered")) => Ok(Claim::Permits {
                weight: self.number("weight")?,
                limit: self.number("number of permits")?,
                numbered: word == "numbered",
            }),
            Some("read") => Ok(Claim::Access(Access::Read)),
            Some("upgradable") => Ok(Claim::Access(Access::Upgradable)),
            Some("write") => Ok(Claim::Access(Access::Write)),
            _ => Err(Damaged("claim")),
        }
    }

    fn condition(&mut self) -> Result<Option<Condition>, Damaged> {
        let Some(kind) = self.next() else {
            return Ok(None);
        };
        let asked = self.read("age of the request", nanos)?;
        let requested_at = self.time("time of the request")?;
        let unless = match kind {
            "key" => Unless::Key {
                key: self.read("key", |word| {
                    CompletionKey::parse(&Extent::Word.unescape(word)?).ok()
                })?,
                asked,
            },
            "period" => Unless::Period {
                schedule: JobSchedule {
                    period: self.read("period", |word| {
                        Period::checked(Duration::from_micros(number(word)?))
                    })?,
                    anchor: self.optional("anchor", time)?,
                },
                asked,
            },
            _ => return Err(Damaged("condition")),
        };
        Ok(Some(Condition {
            unless,
            requested_at,
        }))
    }

    pub(super) fn note(&mut self) -> Result<Note, Damaged> {
        Ok(Note {
            lease: self.lease()?,
            token: self.read("token", token)?,
            number: self.number("number of the note")?,
            until: self.time("end of the note")?,
            text: self.text()?,
        })
    }

    pub(super) fn description(&mut self) -> Result<Description, Damaged> {
        Ok(Description {
            until: self.time("end of the description")?,
            text: self.text()?,
        })
    }

    /// The text in the rest of the line.
    fn text(&mut self) -> Result<Arc<str>, Damaged> {
        let text = self.0.take().and_then(|rest| Extent::Line.unescape(rest));
        text.map(Arc::from).ok_or(Damaged("text"))
    }
}

/// A number in the one form in which it is written.
fn number<T: FromStr>(word: &str) -> Option<T> {
    let is_plain = word == "0" || !word.starts_with(['0', '+']);
    word.parse().ok().filter(|_| is_plain)
}

fn token(word: &str) -> Option<Token> {
    Token::new(number(word)?)
}

fn time(word: &str) -> Option<StoreTime> {
    number(word).map(StoreTime::from_micros)
}

fn end(word: &str) -> Option<End> {
    time(word).map(End::At)
}

fn nanos(word: &str) -> Option<Duration> {
    let nanos: u128 = number(word)?;
    let second = Duration::from_secs(1).as_nanos();
    let seconds = u64::try_from(nanos / second).ok()?;
    Some(Duration::new(seconds, u32::try_from(nanos % second).ok()?))
}
