//! Facts about a store, for [`doctor`](crate::doctor): plain data, without an assessment.

#[cfg(all(feature = "doctor", feature = "object-store"))]
mod bucket;
#[cfg(all(feature = "doctor", any(feature = "redis", feature = "postgres")))]
mod clock;
#[cfg(all(feature = "doctor", feature = "postgres"))]
mod database;
#[cfg(all(feature = "doctor", feature = "etcd"))]
mod etcd;
#[cfg(any(feature = "redis", all(feature = "doctor", feature = "postgres")))]
mod fields;
#[cfg(feature = "sqlite")]
mod file;
#[cfg(all(feature = "doctor", feature = "redis"))]
mod servers;
#[cfg(all(feature = "doctor", feature = "zookeeper"))]
mod zookeeper;

#[cfg(all(feature = "doctor", feature = "object-store"))]
pub(crate) use self::bucket::BucketFacts;
#[cfg(all(feature = "doctor", any(feature = "redis", feature = "postgres")))]
pub(crate) use self::clock::{CLOCK_SAMPLES, ClockFacts};
#[cfg(all(feature = "doctor", feature = "postgres"))]
pub(crate) use self::database::{DatabaseFacts, Link, Standby, TableFacts};
#[cfg(all(feature = "doctor", feature = "etcd"))]
pub(crate) use self::etcd::{EtcdFacts, MemberFacts};
#[cfg(any(feature = "redis", all(feature = "doctor", feature = "postgres")))]
pub(crate) use self::fields::Fields;
#[cfg(all(feature = "doctor", feature = "sqlite"))]
pub(crate) use self::file::FileFacts;
#[cfg(feature = "sqlite")]
pub(crate) use self::file::{FileSystem, LOG_MAX};
#[cfg(all(feature = "doctor", feature = "redis"))]
pub(crate) use self::servers::{
    ClusterFacts, ClusterMember, MissingRight, NodeFacts, Purpose, QueryResult, Rights,
    SentinelFacts, ServerFacts, Topology,
};
#[cfg(all(feature = "doctor", feature = "zookeeper"))]
pub(crate) use self::zookeeper::ZookeeperFacts;

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
    /// It is in a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Database(Box<DatabaseFacts>),
    /// It is in etcd.
    #[cfg(feature = "etcd")]
    Etcd(EtcdFacts),
    /// It is in ZooKeeper.
    #[cfg(feature = "zookeeper")]
    Zookeeper(ZookeeperFacts),
    /// It is in a bucket of an object store.
    #[cfg(feature = "object-store")]
    Bucket(BucketFacts),
}
