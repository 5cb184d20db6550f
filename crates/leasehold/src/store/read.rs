//! A reading of one name.

use super::api::{Key, Parts, Query, Store, View};
use crate::Result;

impl dyn Store {
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
