//! Stores of documents in a cluster of members, which are opened by its URL.

use std::sync::Arc;

use super::hub::Hub;
use super::members;
use super::optimistic::Optimistic;
use super::optimistic::documents::Documents;
use super::options::OpenOptions;
use super::rule_store::RuleStore;
use crate::Result;

/// The documents in a cluster.
pub trait Clustered: Documents + Sized {
    /// Connects to the cluster at a URL. The hub has the clients of this process.
    fn open(
        url: &str,
        options: &OpenOptions,
        hub: &Arc<Hub>,
    ) -> impl Future<Output = Result<Self>> + Send;
}

impl<D: Clustered> RuleStore<Optimistic<D>> {
    /// Connects to a cluster.
    #[doc(hidden)]
    pub async fn open_url(url: &str, options: &OpenOptions) -> Result<Self> {
        let hub = Arc::default();
        let documents = D::open(url, options, &hub).await;
        let documents = documents.map_err(|error| error.at_store(members::redacted(url)))?;
        let optimistic = Optimistic::new(documents, &hub, options)?;
        Ok(Self::with_hub(optimistic, hub))
    }
}
