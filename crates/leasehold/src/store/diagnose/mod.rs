//! Facts about a store, for [`doctor`](crate::doctor): plain data, without an assessment.

#[cfg(feature = "sqlite")]
mod file;
#[cfg(feature = "redis")]
mod servers;

#[cfg(feature = "sqlite")]
pub(crate) use self::file::{FileFacts, FileSystem, LOG_MAX};
#[cfg(feature = "redis")]
pub(crate) use self::servers::{
    ClockFacts, ClusterFacts, ClusterMember, Fact, Fields, MissingRight, NodeFacts, Purpose,
    Rights, SentinelFacts, ServerFacts, Topology,
};

/// The facts about a store.
#[derive(Clone, Debug)]
pub(crate) enum DiagnosticFacts {
    /// It is in the memory of one client.
    Memory,
    /// It is a file.
    #[cfg(feature = "sqlite")]
    File(FileFacts),
    /// It is on Redis servers.
    #[cfg(feature = "redis")]
    Servers(ServerFacts),
}
