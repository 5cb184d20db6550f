//! A document as it is stored: the [mark](super::marks) of its writer in the first line, and the text.

use serde_json::Value;

use super::encoding::{decoded_text, number};
use super::error::not_etcd;
use crate::Result;
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
    /// From a key with its value. Null: there is none.
    pub(super) fn of(found: &Value) -> Result<Self> {
        let version = Version(number(&found["mod_revision"]).ok_or_else(not_etcd)?);
        if found.is_null() {
            return Ok(Self {
                version,
                mark: None,
                text: None,
            });
        }
        let value = decoded_text(&found["value"]).ok_or_else(not_etcd)?;
        let (mark, text) = match value.split_once('\n') {
            Some((mark, text)) if is_mark(mark) => (Some(mark.to_owned()), text.to_owned()),
            // It is damaged.
            _ => (None, value),
        };
        Ok(Self {
            version,
            mark,
            text: Some(text),
        })
    }
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
    use serde_json::json;

    use super::super::encoding::encoded;
    use super::*;

    #[test]
    fn a_document_is_absent_marked_or_damaged() {
        let stored = |value: &str| {
            let found = json!({ "mod_revision": "7", "value": encoded(value) });
            let Stored {
                version,
                mark,
                text,
            } = Stored::of(&found).unwrap();
            assert_eq!(version.0, "7");
            (mark, text.unwrap())
        };
        let absent = Stored::of(&Value::Null).unwrap();
        assert_eq!((absent.version.0.as_str(), absent.text), ("0", None));
        assert_eq!(
            stored(&value("12", "a\nb")),
            (Some("12".into()), "a\nb".into())
        );
        for damaged in ["", "a", "12", "x\na", "123456789012345678901\na"] {
            assert_eq!(stored(damaged), (None, damaged.into()));
        }
        assert!(Stored::of(&json!({ "mod_revision": "7", "value": 1 })).is_err());
    }
}
