//! Writing a line of words.

use std::fmt::{Display, Write as _};

use super::{ABSENT, VERSION};
use crate::escape::Extent;
use crate::record::rows::{
    Access, Claim, Condition, Description, End, Holder, LeaseKind, Leases, Note, Setting, Unless,
    Waiter,
};
use crate::time::StoreTime;

/// A line that is written word by word.
pub(super) struct TextWriter(pub(super) String);

impl TextWriter {
    pub(super) fn new(capacity: usize) -> Self {
        let mut line = String::with_capacity(capacity);
        line.push_str(VERSION);
        Self(line)
    }

    pub(super) fn word(&mut self, word: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write!(self.0, " {word}");
        self
    }

    pub(super) fn time(&mut self, time: StoreTime) -> &mut Self {
        self.word(time.as_micros())
    }

    fn end(&mut self, end: End) -> &mut Self {
        let End::At(time) = end;
        self.time(time)
    }

    pub(super) fn optional(&mut self, word: Option<impl Display>) -> &mut Self {
        match word {
            Some(word) => self.word(word),
            None => self.word(ABSENT),
        }
    }

    fn text(&mut self, text: &str, extent: Extent) -> &mut Self {
        self.0.push(' ');
        extent.escape(text, &mut self.0);
        self
    }

    pub(super) fn leases(&mut self, leases: &Leases) -> &mut Self {
        match (leases.kind, &leases.sole) {
            (LeaseKind::Mutex, Some(holder)) => {
                self.word("mutex").word(holder.lease).holder(holder)
            }
            (LeaseKind::Mutex, None) => self.word("mutex").word(ABSENT),
            (LeaseKind::Semaphore, _) => {
                self.word("semaphore").word(leases.limit);
                self.used(leases);
                match leases.setting {
                    Some(Setting {
                        version,
                        keep,
                        until,
                    }) => self
                        .word("set")
                        .word(version)
                        .word(keep.as_nanos())
                        .time(until),
                    None => self,
                }
            }
            (LeaseKind::RwLock, _) => self.word("rwlock").optional(leases.phase).used(leases),
        }
    }

    fn used(&mut self, leases: &Leases) -> &mut Self {
        self.word(leases.used);
        match leases.earliest {
            Some(end) => self.end(end),
            None => self.word(ABSENT),
        }
    }

    pub(super) fn numbered_holder(&mut self, holder: &Holder) -> &mut Self {
        self.holder(holder);
        match holder.number {
            Some(number) => self.word("number").word(number),
            None => self,
        }
    }

    pub(super) fn holder(&mut self, holder: &Holder) -> &mut Self {
        let state = if holder.is_reserved {
            "reserved"
        } else {
            "held"
        };
        self.word(state)
            .word(holder.count)
            .word(holder.weight)
            .word(holder.first);
        self.optional(holder.requested_at.map(StoreTime::as_micros))
            .end(holder.end)
    }

    pub(super) fn waiter(&mut self, waiter: &Waiter) -> &mut Self {
        self.word(waiter.place);
        match waiter.claim {
            Claim::Mutex => self.word("mutex"),
            Claim::Permits {
                weight,
                limit,
                numbered,
            } => {
                let word = if numbered { "numbered" } else { "permits" };
                self.word(word).word(weight).word(limit)
            }
            Claim::Access(Access::Read) => self.word("read"),
            Claim::Access(Access::Upgradable) => self.word("upgradable"),
            Claim::Access(Access::Write) => self.word("write"),
        };
        self.word(waiter.ttl.as_millis()).word(waiter.tokens);
        match &waiter.condition {
            None => self,
            Some(condition) => self.condition(condition),
        }
    }

    fn condition(&mut self, condition: &Condition) -> &mut Self {
        let requested_at = condition.requested_at;
        match &condition.unless {
            Unless::Key { key, asked } => {
                self.word("key").word(asked.as_nanos()).time(requested_at);
                self.text(key.as_str(), Extent::Word)
            }
            Unless::Period { schedule, asked } => {
                self.word("period")
                    .word(asked.as_nanos())
                    .time(requested_at);
                self.word(schedule.period.as_duration().as_micros());
                self.optional(schedule.anchor.map(StoreTime::as_micros))
            }
        }
    }

    pub(super) fn note(&mut self, note: &Note) -> &mut Self {
        self.word(note.lease)
            .word(note.token)
            .word(note.number)
            .time(note.until);
        self.text(&note.text, Extent::Line)
    }

    pub(super) fn description(&mut self, description: &Description) -> &mut Self {
        self.time(description.until)
            .text(&description.text, Extent::Line)
    }
}
