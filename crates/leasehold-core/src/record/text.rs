//! The text of a head and of a row, which stores keep and people read.
//!
//! ```text
//! 1 1763776800000000 mutex 00ff00ff00ff00ff00ff00ff00ff00ff:42 held 1 1 1763776800000000 - 1763776830000000
//! ```
//!
//! A text is one line of words. The first word is the version, and `-` is an absent value. A text with another version
//! or with an unknown word is damaged.
//!
//! text | words
//! ---|---
//! head | `1` counter body; if there is a queue, `queue` length next-place until; after a revocation, `revoked` lease until
//! body | `free`; `mutex` lease holder; `semaphore` permits used-permits earliest-end; `rwlock` phase used-permits earliest-end; `latch` arrived count until
//! `semaphore` | if its limit is set, then `set` version keep until
//! holder | `held` or `reserved`, then hold-count weight first-token requested end
//! row of a holder | `1` holder; with a number, `number` and that
//! row of a waiter | `1` place claim ttl tokens; with a condition, `key` or `period` and its words
//! claim | `mutex`; `permits` or `numbered` weight limit; `read`; `upgradable`; `write`
//! `key` | asked requested key
//! `period` | asked requested period anchor
//! row of an arrival | `1`
//! row of a note | `1` lease token number until text
//! row of a description | `1` until text
//!
//! A mutex without a holder has `-` instead of lease and holder. A time or a period is in microseconds, a ttl in
//! milliseconds, and `asked` and `keep` in nanoseconds. A key is escaped as a word, and the text of a note or of a description as the
//! rest of its line.
//! The lease of a holder or of a waiter is the id of its row, see [`Part::id`].
//!
//! Each value has one text. A text that is read and written again is the same.

mod read;
mod write;

use std::borrow::Cow;
use std::fmt;

use self::read::TextReader;
use self::write::TextWriter;
use super::rows::{Body, Head, LeaseKind, Part, QueueHead, Row, Slot};
use crate::annotation::CompletionKey;

/// The version that is written, and the only one that is read.
const VERSION: &str = "1";

/// An absent value.
const ABSENT: &str = "-";

/// The end of the places in a queue, so that there is always a next one.
const PLACES_END: u64 = 1 << 53;

/// A text that cannot be read: the name of its first word that this version does not write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged(pub &'static str);

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of the record is damaged", self.0)
    }
}

impl std::error::Error for Damaged {}

impl Head {
    /// Its text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut line = TextWriter::new(192);
        line.optional(self.counter);
        match &self.body {
            Body::Free => line.word("free"),
            Body::Leases(leases) => line.leases(leases),
            Body::Latch(latch) => {
                let (arrived, count) = (latch.arrived, latch.count.get());
                line.word("latch")
                    .word(arrived)
                    .word(count)
                    .time(latch.until)
            }
        };
        let queue = self.queue;
        if queue != QueueHead::default() {
            line.word("queue")
                .word(queue.len)
                .word(queue.next_place)
                .time(queue.until);
        }
        if let Some((lease, until)) = self.revoked {
            line.word("revoked").word(lease).time(until);
        }
        line.0
    }

    /// Reads the text of a head.
    ///
    /// # Errors
    ///
    /// [`Damaged`] with the first word that [`Head::to_text`] does not write there.
    pub fn from_text(text: &str) -> Result<Self, Damaged> {
        let mut words = TextReader::new(text)?;
        let mut head = Self {
            counter: words.counter()?,
            body: words.body()?,
            ..Self::default()
        };
        let mut section = words.next();
        if let (Some("set"), Body::Leases(leases)) = (section, &mut head.body)
            && leases.kind == LeaseKind::Semaphore
        {
            leases.setting = Some(words.setting()?);
            section = words.next();
        }
        if section == Some("queue") {
            head.queue = words.queue()?;
            section = words.next();
        }
        if section == Some("revoked") {
            head.revoked = Some((words.lease()?, words.time("end of the revocation")?));
            section = words.next();
        }
        match section {
            None => Ok(head),
            Some(_) => Err(Damaged("last word")),
        }
    }
}

impl Row {
    /// Its text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut line = TextWriter::new(96);
        match self {
            Self::Holder(holder) => line.numbered_holder(holder),
            Self::Waiter(waiter) => line.waiter(waiter),
            Self::Arrival => &mut line,
            Self::Note(note) => line.note(note),
            Self::Description(description) => line.description(description),
        };
        line.0
    }

    /// Reads the text of a row.
    ///
    /// # Errors
    ///
    /// [`Damaged`] with the first word that [`Row::to_text`] does not write there.
    pub fn from_text(part: &Part, text: &str) -> Result<Self, Damaged> {
        let mut words = TextReader::new(text)?;
        let row = match part {
            Part::Holder(lease) => Self::Holder(words.numbered_holder(*lease)?),
            Part::Waiter(lease) => Self::Waiter(words.waiter(*lease)?),
            Part::Arrival(_) => Self::Arrival,
            Part::Note(_) => Self::Note(words.note()?),
            Part::Description => Self::Description(words.description()?),
        };
        match words.next() {
            None => Ok(row),
            Some(_) => Err(Damaged("last word")),
        }
    }
}

impl Part {
    /// The id of a row among those of its class: a lease, the id of an arrival, or a slot. Empty for a description.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        match self {
            Self::Holder(lease) | Self::Waiter(lease) => lease.to_string().into(),
            Self::Arrival(id) => id.as_str().into(),
            Self::Note(slot) => slot.id(),
            Self::Description => "".into(),
        }
    }
}

impl Slot {
    /// The id of its row: `value`, `period`, or `key:` with a key.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        match self {
            Self::Value => "value".into(),
            Self::Period => "period".into(),
            Self::Key(key) => format!("key:{key}").into(),
        }
    }

    /// The slot with an id. `None`: there is none.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        match id {
            "value" => Some(Self::Value),
            "period" => Some(Self::Period),
            _ => CompletionKey::parse(id.strip_prefix("key:")?)
                .ok()
                .map(Self::Key),
        }
    }
}

#[cfg(test)]
mod tests;
