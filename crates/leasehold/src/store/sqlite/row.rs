//! Values in rows.

use rusqlite::Row;
use rusqlite::types::FromSql;

use super::error::Fault;
use crate::store::api::{ClientInfo, Key};

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

/// A number that leasehold wrote with [`signed`].
pub(super) fn unsigned(row: &Row<'_>, column: &'static str) -> Result<Option<u64>, Fault> {
    let value = get::<Option<i64>>(row, column)?.map(u64::try_from);
    value.transpose().map_err(|_| Fault::Unreadable(column))
}

/// A value that leasehold wrote is of the right type and in its range.
pub(super) fn get<T: FromSql>(row: &Row<'_>, column: &'static str) -> Result<T, Fault> {
    row.get(column).map_err(|_| Fault::Unreadable(column))
}

/// The client info of a row. `None` also if it cannot be read: no rule depends on it.
pub(super) fn client_info(row: &Row<'_>) -> Option<ClientInfo> {
    let mut info = ClientInfo {
        host: row.get("host").ok()?,
        pid: row.get("pid").ok()?,
        program: row.get("program").ok()?,
        label: row.get("label").ok()?,
        ..ClientInfo::default()
    };
    info.set_since_millis(unsigned(row, "since_ms").ok()??);
    Some(info)
}
