//! The SQLite store.

use std::fmt;
use std::time::Duration;

use leasehold_core::ClientId;

use super::{About, BoxFuture, Entry, Key, OpenOptions, Reply, Request, Space, Store};
use crate::{Error, ErrorKind, Result};

/// The SQLite store.
#[derive(Debug)]
pub struct SqliteStore {}

impl SqliteStore {
    pub(super) async fn open(_url: &str, _options: &OpenOptions) -> Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "being built"))
    }
}

impl fmt::Display for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sqlite:")
    }
}

impl Store for SqliteStore {
    fn apply(&self, _batch: Vec<Request>) -> BoxFuture<'_, Vec<Reply>> {
        Box::pin(async { Vec::new() })
    }
    fn inspect<'a>(&'a self, _key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async { Ok(None) })
    }
    fn list<'a>(&'a self, _space: &'a Space) -> BoxFuture<'a, Result<Vec<Entry>>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    fn announce<'a>(
        &'a self,
        _space: &'a Space,
        _client: ClientId,
        _about: &'a About,
        _ttl: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}
