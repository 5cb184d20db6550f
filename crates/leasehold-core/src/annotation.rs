//! Annotations: texts that the holder of a lock stores beside its record.
//!
//! The value of a leader and the completion records of jobs are annotations. Only the holder writes one, so
//! whatever it says was true under its lease. It stays when the lease ends, until it expires: what it means then is
//! decided by the reader.

use std::fmt;
use std::sync::Arc;

use crate::id::LeaseId;
use crate::mutex::{Loss, Record};
use crate::name::{self, NameError};
use crate::time::StoreTime;
use crate::token::Token;

/// The longest text in bytes: a value of 4 KiB and its number.
pub const ANNOTATION_BYTES_MAX: usize = 4096 + 64;

/// The longest key of a completion in bytes.
pub const COMPLETION_KEY_BYTES_MAX: usize = 256;

/// Which annotation of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnnotationKind {
    /// The value that a leader proclaims.
    Value,
    /// The last completed run of a periodic job.
    Completion,
    /// The completed run for one key.
    KeyCompletion(CompletionKey),
}

/// A text that a holder has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// The lease that held the lock when it was written.
    pub lease: LeaseId,
    /// The first fencing token of that lease.
    pub token: Token,
    /// The text.
    pub text: Arc<str>,
}

/// The key of a run that is to be completed once, such as a version.
///
/// 1 to [`COMPLETION_KEY_BYTES_MAX`] bytes of UTF-8 without control characters, and without a space at the start or end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CompletionKey(Arc<str>);

impl CompletionKey {
    /// Parses a key.
    ///
    /// # Errors
    ///
    /// [`NameError`] if it is invalid.
    pub fn parse(key: &str) -> Result<Self, NameError> {
        name::check_text(key, COMPLETION_KEY_BYTES_MAX)?;
        Ok(Self(key.into()))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CompletionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Stores an annotation if its lease holds the lock at the store's time `now`.
///
/// Sent twice, it stores the same. Sent late, after the lease has ended, it stores nothing.
///
/// # Errors
///
/// The state of the lock, if the lease does not hold it.
pub fn annotate(
    record: &Record,
    stored: &mut Option<Annotation>,
    annotation: Annotation,
    now: StoreTime,
) -> Result<(), Loss> {
    match record.holder(now) {
        Some(holder) if holder.lease == annotation.lease => {
            *stored = Some(annotation);
            Ok(())
        }
        Some(_) => Err(Loss::TakenOver),
        None => Err(Loss::Free),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::id::ClientId;
    use crate::mutex::RecordHolder;

    const END: StoreTime = StoreTime::from_micros(10);
    const BEFORE: StoreTime = StoreTime::from_micros(9);

    fn lease(number: u64) -> LeaseId {
        let client = ClientId::from_random([7; 16]);
        LeaseId { client, number }
    }

    fn annotation(number: u64, text: &str) -> Annotation {
        Annotation {
            lease: lease(number),
            token: Token::MAX,
            text: text.into(),
        }
    }

    /// Held by lease 1 until the end.
    fn held() -> Record {
        Record {
            hold: Some(RecordHolder {
                lease: lease(1),
                count: NonZeroU32::MIN,
                expires_at: END,
            }),
            ..Record::default()
        }
    }

    #[test]
    fn only_the_holder_stores_an_annotation() {
        let old = annotation(7, "old");
        for (record, number, now, expected) in [
            (held(), 1, BEFORE, Ok(())),
            (held(), 1, END, Err(Loss::Free)),
            (held(), 2, BEFORE, Err(Loss::TakenOver)),
            (held(), 2, END, Err(Loss::Free)),
            (Record::default(), 1, BEFORE, Err(Loss::Free)),
        ] {
            let new = annotation(number, "new");
            for _ in 0..2 {
                let mut stored = Some(old.clone());
                let result = annotate(&record, &mut stored, new.clone(), now);
                assert_eq!(result, expected);
                let kept = if expected.is_ok() { &new } else { &old };
                assert_eq!(stored.as_ref(), Some(kept));
            }
        }
    }

    #[test]
    fn a_completion_key_has_up_to_256_bytes_without_control_characters() {
        for key in ["v1.2.3", "a b/c:*?[x]{}", "昼 夜 🔒", &"n".repeat(256)] {
            assert_eq!(CompletionKey::parse(key).unwrap().as_str(), key);
        }
        let refused = |key: &str| CompletionKey::parse(key).unwrap_err();
        assert_eq!(refused(""), NameError::Empty);
        assert_eq!(refused("a\nb"), NameError::Forbidden('\n'));
        assert_eq!(refused(" a"), NameError::LeadingSpace);
        let (bytes, bytes_max) = (258, COMPLETION_KEY_BYTES_MAX);
        let too_long = NameError::TooLong { bytes, bytes_max };
        assert_eq!(refused(&"ä".repeat(129)), too_long);
    }
}
