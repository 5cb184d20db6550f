//! Facts about a store, for [`doctor`](crate::doctor): plain data, without an assessment.

#[cfg(feature = "redis")]
mod fields;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(all(feature = "doctor", feature = "redis"))]
mod servers;

#[cfg(feature = "redis")]
pub(crate) use self::fields::Fields;
#[cfg(all(feature = "doctor", feature = "sqlite"))]
pub(crate) use self::file::FileFacts;
#[cfg(feature = "sqlite")]
pub(crate) use self::file::{FileSystem, LOG_MAX};
#[cfg(all(feature = "doctor", feature = "redis"))]
pub(crate) use self::servers::{
    ClockFacts, ClusterFacts, ClusterMember, MissingRight, NodeFacts, Purpose, QueryResult, Rights,
    SentinelFacts, ServerFacts, Topology,
};

/// The facts about a store.
#[cfg(feature = "doctor")]
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
