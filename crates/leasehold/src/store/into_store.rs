//! What a client can connect to.

use std::fmt;
use std::sync::Arc;

use super::api::Store;
use super::backend::Backend;
#[cfg(doc)]
use super::memory::MemoryStore;
use super::open::open_with;
use super::options::OpenOptions;
use super::rule_store::RuleStore;
use crate::{Error, ErrorKind, Result};

/// What a [`Client`](crate::Client) can connect to.
///
/// | value | store |
/// |---|---|
/// | `&str`, `String`, `&String` | the store that the URL names: see [`open`](super::open()) |
/// | [`MemoryStore`], or an `Arc` of it for several clients | this store, in this process |
/// | `Arc<dyn Store>` | an open store, which several clients share |
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::sync::Arc;
/// use leasehold::Client;
/// use leasehold::store::MemoryStore;
///
/// let store = Arc::new(MemoryStore::new());
/// let one = Client::connect(Arc::clone(&store)).await?;
/// let other = Client::connect(store).await?;
/// let _guard = one.mutex("report")?.lock().await?;
/// assert!(other.mutex("report")?.try_lock().await?.is_none());
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
pub trait IntoStore: Send {
    /// The store, or its URL.
    #[doc(hidden)]
    fn into_source(self) -> StoreSource;
}

/// A store, or its URL.
pub enum StoreSource {
    Url(String),
    Open(Arc<dyn Store>),
}

/// A URL can contain a password.
impl fmt::Debug for StoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(_) => f.write_str("Url(...)"),
            Self::Open(store) => f.debug_tuple("Open").field(store).finish(),
        }
    }
}

impl StoreSource {
    pub(crate) async fn open(self, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        match self {
            Self::Url(url) => open_with(&url, options).await,
            Self::Open(store) if options.has_credentials() => {
                let message = "it is open already, so no user, password or certificate can be given; connect by its URL";
                Err(Error::new(ErrorKind::InvalidConfig, message).at_store(store))
            }
            Self::Open(store) => Ok(store),
        }
    }
}

impl IntoStore for &str {
    fn into_source(self) -> StoreSource {
        StoreSource::Url(self.to_owned())
    }
}

impl IntoStore for String {
    fn into_source(self) -> StoreSource {
        StoreSource::Url(self)
    }
}

impl IntoStore for &String {
    fn into_source(self) -> StoreSource {
        StoreSource::Url(self.clone())
    }
}

impl<B: Backend> IntoStore for RuleStore<B> {
    fn into_source(self) -> StoreSource {
        StoreSource::Open(Arc::new(self))
    }
}

impl IntoStore for Arc<dyn Store> {
    fn into_source(self) -> StoreSource {
        StoreSource::Open(self)
    }
}

impl<S: Store> IntoStore for Arc<S> {
    fn into_source(self) -> StoreSource {
        StoreSource::Open(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn credentials_for_an_open_store_are_refused() {
        let open = async |options| MemoryStore::new().into_source().open(&options).await;
        let default = OpenOptions::default;
        assert!(open(default()).await.is_ok());
        for options in [
            default().username("app"),
            default().password("secret"),
            default().sentinel_password("secret"),
        ] {
            let error = open(options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            let text = error.to_string();
            assert!(
                text.contains("memory:") && !text.contains("secret"),
                "{text}"
            );
        }
    }
}
