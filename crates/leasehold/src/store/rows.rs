//! Records as rows: a head for each name, and members beside it.
//!
//! The values are the texts of [`leasehold_core::record::text`].

use leasehold_core::record::text::Damaged;
use leasehold_core::record::{Head, Part};

use crate::{Error, ErrorKind};

/// The classes of members.
pub(super) mod class {
    pub(in crate::store) const HOLDER: u8 = 1;
    pub(in crate::store) const WAITER: u8 = 2;
    pub(in crate::store) const ARRIVAL: u8 = 3;
    pub(in crate::store) const NOTE: u8 = 4;
    pub(in crate::store) const DESCRIPTION: u8 = 5;
    pub(in crate::store) const WATCHER: u8 = 6;
}

/// What is damaged, which decides how it is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// A lock, or a record of an unknown kind.
    Lock,
    /// A latch.
    Latch,
    /// A note.
    Note,
}

/// A text that this version does not write, at this word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DamagedText(pub(super) Damage, pub(super) &'static str);

impl Damage {
    /// What the reader can do.
    pub(super) fn message(self, word: &str) -> String {
        match self {
            Self::Lock => format!(
                "its record is damaged ({word}); make sure that the lock is not held, then revoke it"
            ),
            Self::Latch => format!("the latch is damaged ({word}); reset it"),
            Self::Note => format!("its completion record or value is damaged ({word}); remove it"),
        }
    }

    /// That of a member.
    pub(super) const fn of(part: &Part) -> Self {
        match part {
            Part::Note(_) | Part::Description => Self::Note,
            Part::Arrival(_) => Self::Latch,
            Part::Holder(_) | Part::Waiter(_) => Self::Lock,
        }
    }
}

impl From<DamagedText> for Error {
    fn from(DamagedText(damage, word): DamagedText) -> Self {
        Self::new(ErrorKind::Store, damage.message(word))
    }
}

/// Reads the text of a head.
pub(super) fn read_head(text: &str) -> Result<Head, DamagedText> {
    Head::from_text(text).map_err(|Damaged(word)| match text.split(' ').nth(2) {
        Some("latch") => DamagedText(Damage::Latch, word),
        _ => DamagedText(Damage::Lock, word),
    })
}

/// The class of a member.
pub(super) const fn class(part: &Part) -> u8 {
    match part {
        Part::Holder(_) => class::HOLDER,
        Part::Waiter(_) => class::WAITER,
        Part::Arrival(_) => class::ARRIVAL,
        Part::Note(_) => class::NOTE,
        Part::Description => class::DESCRIPTION,
    }
}
