//! Real servers and processes for tests.
//!
//! A server that is missing is a failure, never a skipped test. Every process that is started here ends
//! with the test process, on Linux however that ends.

// Helpers of tests fail by panicking, as the tests themselves do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bucket;
mod certs;
mod clock;
mod cluster;
mod etcd;
pub mod helper;
mod masters;
mod members;
mod pgbouncer;
mod postgres;
mod postgres_pair;
mod process;
mod proxy;
mod redis;
mod resp;
mod sentinel;
mod shared_number;
mod supervised;
mod temp_dir;
mod wait;
mod zookeeper;

pub use self::bucket::{BucketServer, python};
pub use self::certs::Certs;
pub use self::cluster::{Cluster, Move};
pub use self::etcd::{Etcd, EtcdCluster};
pub use self::helper::Helper;
pub use self::masters::Masters;
pub use self::members::{Members, Program};
pub use self::postgres::PostgresServer;
pub use self::postgres_pair::PostgresPair;
pub use self::process::{OutputLines, RunToEnd, finish, kill, memory, within_deadline};
pub use self::proxy::{AfterLoss, Proxy, ProxyStats, Way};
pub use self::redis::{RedisOptions, RedisServer, Restart};
pub use self::sentinel::{SentinelOptions, SentinelSet};
pub use self::shared_number::shared_number;
pub use self::temp_dir::temp_dir;
pub use self::wait::{
    addresses, eventually, eventually_async, fill_connections, found_within, free_port, within,
};
pub use self::zookeeper::{Zookeeper, ZookeeperServer};
