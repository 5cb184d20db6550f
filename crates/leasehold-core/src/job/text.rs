//! The text form of a completion, which stores keep and people read.
//!
//! ```text
//! 1 requested=1763776800.000000 started=1763776800.104211 finished=1763777112.500000 exit=0
//!   period=86400.000000 chosen-anchor=1763776800.000000 host=ci-7 program=backup.sh path=/opt/backup.sh label=nightly
//! ```
//!
//! It is one line. The first word is the version. A run for a key has `keep` instead of period and anchor, and `path` may
//! be missing. An anchor that the user has not chosen is written as `anchor`. Times are seconds of the store's clock since the Unix epoch. In a
//! text, `%`, white space and control characters are written by their bytes, such as `%25`. A reader ignores fields that it does not know, so a
//! field that must not be ignored needs another version.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::{Completion, Period, Slots};
use crate::annotation::ANNOTATION_BYTES_MAX;
use crate::escape::Extent;
use crate::time::StoreTime;

/// The version that is written, and the only one that is read.
const VERSION: &str = "1";

/// How much of the name of a host is kept, in bytes.
pub const HOST_BYTES_MAX: usize = 255;

/// How much of the name of a program is kept, in bytes.
pub const PROGRAM_BYTES_MAX: usize = 255;

/// The longest path that is kept, in bytes.
pub const PATH_BYTES_MAX: usize = 255;

/// How much of a label is kept, in bytes. Three times all four, as they may be escaped, are less than an annotation
/// can have.
pub const LABEL_BYTES_MAX: usize = 512;

/// The fields of an anchor: the start of the first run, and a time that the user has chosen.
const ANCHOR: &str = "anchor";
const CHOSEN_ANCHOR: &str = "chosen-anchor";

const MICROS_PER_SECOND: u64 = 1_000_000;

/// Why a text is not a completion.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionError {
    /// It was written by a newer version of this program.
    Version,
    /// It is longer than an annotation.
    TooLong,
    /// A field is missing, doubled or invalid.
    Field(&'static str),
    /// A word is not a field.
    Malformed,
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("its version is not 1"),
            Self::TooLong => write!(f, "it has more than {ANNOTATION_BYTES_MAX} bytes"),
            Self::Field(field) => write!(f, "its field {field:?} is missing or invalid"),
            Self::Malformed => f.write_str("it is not a list of fields"),
        }
    }
}

impl std::error::Error for CompletionError {}

impl Completion {
    /// The text form, at most [`ANNOTATION_BYTES_MAX`] bytes: long names are cut, a long path is left out.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{VERSION} requested={} started={} finished={} exit={}",
            seconds(self.requested_at.as_micros()),
            seconds(self.started_at.as_micros()),
            seconds(self.finished_at.as_micros()),
            self.exit_code,
        );
        if let Some(slots) = self.slots {
            let period = seconds(slots.period.0);
            let anchor = seconds(slots.anchor.as_micros());
            let field = if slots.chosen { CHOSEN_ANCHOR } else { ANCHOR };
            text.push_str(&format!(" period={period} {field}={anchor}"));
        }
        if let Some(keep) = self.keep {
            let micros = u64::try_from(keep.as_micros()).unwrap_or(u64::MAX);
            text.push_str(&format!(" keep={}", seconds(micros)));
        }
        let path = self.path.as_ref();
        for (field, value, bytes_max) in [
            ("host", Some(&self.host), HOST_BYTES_MAX),
            ("program", Some(&self.program), PROGRAM_BYTES_MAX),
            (
                "path",
                path.filter(|it| it.len() <= PATH_BYTES_MAX),
                PATH_BYTES_MAX,
            ),
            ("label", Some(&self.label), LABEL_BYTES_MAX),
        ] {
            let Some(value) = value else { continue };
            text.push_str(&format!(" {field}="));
            Extent::Word.escape(cut(value, bytes_max), &mut text);
        }
        text
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// [`CompletionError`] if it was not written by this version of [`Completion::to_text`], or a later one that is
    /// compatible.
    pub fn parse(text: &str) -> Result<Self, CompletionError> {
        if text.len() > ANNOTATION_BYTES_MAX {
            return Err(CompletionError::TooLong);
        }
        let mut words = text.split(' ');
        if words.next() != Some(VERSION) {
            return Err(CompletionError::Version);
        }
        let fields: Option<Vec<_>> = words.map(|word| word.split_once('=')).collect();
        let fields = Fields(fields.ok_or(CompletionError::Malformed)?);
        let period = fields.optional("period")?;
        let anchors = (fields.optional(ANCHOR)?, fields.optional(CHOSEN_ANCHOR)?);
        let slots = match (period, anchors) {
            (None, (None, None)) => None,
            (None, _) => return Err(CompletionError::Field("period")),
            (Some(period), (first, chosen)) => Some(Slots {
                anchor: first
                    .xor(chosen)
                    .and_then(time)
                    .ok_or(CompletionError::Field(ANCHOR))?,
                chosen: chosen.is_some(),
                period: micros(period)
                    .and_then(|micros| Period::checked(Duration::from_micros(micros)))
                    .ok_or(CompletionError::Field("period"))?,
            }),
        };
        Ok(Self {
            slots,
            requested_at: fields.required("requested", time)?,
            started_at: fields.required("started", time)?,
            finished_at: fields.required("finished", time)?,
            keep: fields.known("keep", micros)?.map(Duration::from_micros),
            exit_code: fields.required("exit", exit_code)?,
            host: fields.required("host", unescape)?,
            program: fields.required("program", unescape)?,
            path: fields.known("path", unescape)?,
            label: fields.required("label", unescape)?,
        })
    }
}

/// The fields of a text, in their order.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    /// The value of a field that may be missing, but not doubled.
    fn optional(&self, field: &'static str) -> Result<Option<&'a str>, CompletionError> {
        let mut values = self.0.iter().filter(|(name, _)| *name == field);
        match (values.next(), values.next()) {
            (value, None) => Ok(value.map(|(_, value)| *value)),
            (_, Some(_)) => Err(CompletionError::Field(field)),
        }
    }

    /// The same, read.
    fn known<T>(
        &self,
        field: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, CompletionError> {
        let value = self.optional(field)?;
        let read = value.map(|value| read(value).ok_or(CompletionError::Field(field)));
        read.transpose()
    }

    fn required<T>(
        &self,
        field: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, CompletionError> {
        let value = self.known(field, read)?;
        value.ok_or(CompletionError::Field(field))
    }
}

/// Microseconds as seconds, exactly.
fn seconds(micros: u64) -> String {
    format!(
        "{}.{:06}",
        micros / MICROS_PER_SECOND,
        micros % MICROS_PER_SECOND
    )
}

fn time(seconds: &str) -> Option<StoreTime> {
    micros(seconds).map(StoreTime::from_micros)
}

fn exit_code(text: &str) -> Option<u8> {
    let code = text.parse().ok();
    code.filter(|code: &u8| code.to_string() == text)
}

/// The inverse of [`seconds`]. Only what that writes is read.
fn micros(text: &str) -> Option<u64> {
    let (whole, parts) = text.split_once('.')?;
    let whole: u64 = whole.parse().ok()?;
    let parts: u64 = parts.parse().ok()?;
    let micros = whole.checked_mul(MICROS_PER_SECOND)?.checked_add(parts)?;
    (seconds(micros) == text).then_some(micros)
}

/// The longest start of a text that has at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn unescape(text: &str) -> Option<String> {
    Extent::Word.unescape(text).map(Cow::into_owned)
}
