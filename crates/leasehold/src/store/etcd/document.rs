//! A document as it is stored: the [mark](super::marks) of its writer in the first line, and the text.

use super::messages::{self, Pair};
use crate::store::optimistic::documents::Version;

/// A document without its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    pub(super) version: Version,
    /// `None`: there is none, or it is not one of this store.
    pub(super) mark: Option<String>,
    pub(super) text: Option<String>,
}

impl Stored {
    /// From a key with its value, if there is one.
    pub(super) fn of(found: Option<&Pair>) -> Self {
        let Some(pair) = found else {
            return Self {
                version: version(0),
                mark: None,
                text: None,
            };
        };
        let value = messages::text(&pair.value);
        let (mark, text) = match value.split_once('\n') {
            Some((mark, text)) if is_mark(mark) => (Some(mark.to_owned()), text.to_owned()),
            // It is damaged.
            _ => (None, value),
        };
        Self {
            version: version(pair.mod_revision),
            mark,
            text: Some(text),
        }
    }
}

/// The revision of the last change. 0: there is no document.
pub(super) fn version(revision: i64) -> Version {
    Version(revision.to_string())
}

/// The value of a document.
pub(super) fn value(mark: &str, text: &str) -> String {
    format!("{mark}\n{text}")
}

fn is_mark(text: &str) -> bool {
    matches!(text.len(), 1..=20) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_absent_marked_or_damaged() {
        let stored = |value: &str| {
            let pair = Pair {
                mod_revision: 7,
                value: value.into(),
                ..Pair::default()
            };
            let stored = Stored::of(Some(&pair));
            assert_eq!(stored.version.0, "7");
            (stored.mark, stored.text.unwrap())
        };
        let absent = Stored::of(None);
        assert_eq!((absent.version.0.as_str(), absent.text), ("0", None));
        assert_eq!(
            stored(&value("12", "a\nb")),
            (Some("12".into()), "a\nb".into())
        );
        for damaged in ["", "a", "12", "x\na", "123456789012345678901\na"] {
            assert_eq!(stored(damaged), (None, damaged.into()));
        }
    }
}
