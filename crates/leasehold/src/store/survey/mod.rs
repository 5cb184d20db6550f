//! What a store shows of itself, for [`doctor`](crate::doctor). Plain data: nothing here judges.

#[cfg(feature = "sqlite")]
mod file;
#[cfg(feature = "redis")]
mod servers;

#[cfg(feature = "sqlite")]
pub(crate) use self::file::{FileFacts, FileSystem, LOG_MAX};
#[cfg(feature = "redis")]
pub(crate) use self::servers::{
    ClockFacts, ClusterFacts, Fields, Lack, Member, Need, NodeFacts, Rights, Seen, Servers,
    Topology, Watch,
};
use super::{Keyspace, OpenOptions};
use crate::{Durability, Result};

/// What was seen of a store.
#[derive(Clone, Debug)]
pub(crate) enum Survey {
    /// The memory of one client.
    Memory,
    /// A file.
    #[cfg(feature = "sqlite")]
    File(FileFacts),
    /// Redis servers.
    #[cfg(feature = "redis")]
    Servers(Servers),
}

/// Looks at the store that a URL names. Nothing in it is changed.
#[cfg_attr(
    not(feature = "redis"),
    expect(unused_variables, reason = "only servers have spaces to look at")
)]
pub(crate) async fn survey(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
    durability: Durability,
) -> Result<Survey> {
    match url.split_once(':').map_or("", |(scheme, _)| scheme) {
        #[cfg(feature = "sqlite")]
        "sqlite" => super::sqlite::survey(url, options).await.map(Survey::File),
        #[cfg(feature = "redis")]
        scheme if super::is_redis(scheme) => {
            let servers = super::redis::survey(url, options, space, durability).await;
            servers.map(Survey::Servers)
        }
        // It also says what is wrong with a URL.
        _ => super::open(url, options).await.map(|_| Survey::Memory),
    }
}
