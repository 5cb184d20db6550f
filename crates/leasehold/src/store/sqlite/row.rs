//! Values in rows.

use crate::store::api::Key;

/// A number as SQLite stores it. Every larger number means "never", as its largest does.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The primary key of a record.
pub(super) fn columns(key: &Key) -> (&str, &str, &str) {
    let space = &key.space;
    (
        space.namespace().as_str(),
        space.tenant().as_str(),
        key.name.as_str(),
    )
}
