//! One request, and one reading of a name.

use leasehold_core::{LeaseId, Loss, NewNote, Op, Outcome};

use super::api::{Key, Parts, Query, Reply, Request, Store, View};
use crate::{Error, ErrorKind, Result};

impl dyn Store {
    /// Applies one operation to a name.
    ///
    /// # Errors
    ///
    /// As the store replies. Without a reply it may have been applied, or may still be.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be applied, now or later.
    pub async fn request(&self, key: &Key, op: Op) -> Result<Outcome> {
        let request = Request::new(key.clone(), op);
        match self.apply(vec![request]).await.pop() {
            Some(Reply::Applied { outcome, .. }) => Ok(outcome),
            Some(Reply::Rejected(error) | Reply::Unknown(error)) => Err(error),
            None => Err(unexpected("no reply")),
        }
    }

    /// Writes a note. The inner error is the state of the lock if the lease does not hold it; nothing is written then.
    ///
    /// # Errors
    ///
    /// As [`request`](#method.request).
    ///
    /// # Cancel safety
    ///
    /// As [`request`](#method.request).
    pub async fn write_note(
        &self,
        key: &Key,
        lease: LeaseId,
        note: NewNote,
    ) -> Result<Result<(), Loss>> {
        match self.request(key, Op::WriteNote { lease, note }).await? {
            Outcome::Stored | Outcome::Outdated => Ok(Ok(())),
            Outcome::Lost(loss) => Ok(Err(loss)),
            other => Err(unexpected(&format!("{other:?}"))),
        }
    }

    /// Reads parts of the state of a name once.
    ///
    /// # Errors
    ///
    /// The store's error.
    pub async fn view(&self, key: &Key, parts: Parts) -> Result<View> {
        let query = Query::Name {
            key: key.clone(),
            parts,
            watch: false,
        };
        let page = self.read(query).await?;
        let view = page.views.into_iter().next();
        Ok(view.unwrap_or_else(|| View::of(key.clone())))
    }
}

/// The error of an outcome that the rule does not allow.
pub(crate) fn unexpected(outcome: &str) -> Error {
    let message = format!("the store sent an invalid reply: {outcome}");
    Error::new(ErrorKind::Store, message)
}
