//! Stores: where lock records live.
//!
//! Most programs name a store by its URL in [`Client::connect`](crate::Client::connect). [`open()`] opens a store that
//! several clients share. [`MemoryStore`] is for tests, which can move its clock.
//!
//! # Beside other crates that link SQLite
//!
//! A program links SQLite once: Cargo refuses two versions of `libsqlite3-sys`. The default features link no SQLite. The
//! feature `sqlite` accepts `rusqlite` 0.39 to 0.41, so that Cargo can choose the version of the other crate. Older ones
//! link a SQLite that may lose locks:
//!
//! | dependency | default features | with `sqlite` |
//! |---|---|---|
//! | `sqlx = { version = "0.8", features = ["sqlite"] }` | yes | no |
//! | `sqlx = { version = "0.9", features = ["sqlite"] }` | yes | yes |
//! | `sea-orm = { version = "1", features = ["sqlx-sqlite"] }` | yes | no |
//! | `sea-orm = { version = "2", features = ["sqlx-sqlite"] }` | yes | yes |
//! | `diesel = { version = "2", features = ["sqlite"] }` | yes | yes |
//! | `rusqlite = "0.41"` | yes | yes |
//! | `rusqlite = "0.38"` | yes | no |

mod api;
mod backend;
mod capabilities;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod clustered;
pub(crate) mod diagnose;
#[cfg(feature = "etcd")]
mod etcd;
mod event;
mod forwarding;
mod hub;
pub(crate) mod internal;
mod into_store;
mod key;
mod lock;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod members;
mod memory;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "__documents"))]
#[cfg_attr(
    not(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "etcd",
        feature = "zookeeper"
    )),
    expect(dead_code, reason = "object stores send no messages")
)]
mod message;
#[cfg(feature = "object-store")]
mod objects;
mod observers;
mod open;
#[cfg(feature = "__documents")]
mod optimistic;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod records;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(feature = "redis")]
mod redlock;
mod request;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "__documents"))]
mod rows;
mod rule_store;
#[cfg(any(feature = "postgres", feature = "etcd"))]
mod sessions;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod tables;
#[cfg_attr(
    not(any(feature = "redis", feature = "postgres", feature = "__documents")),
    expect(dead_code, reason = "the other stores have no connections")
)]
pub(crate) mod tasks;
#[cfg(any(feature = "postgres", feature = "__documents"))]
mod tls;
mod url_suggestion;
mod view;
mod work;
#[cfg(feature = "zookeeper")]
mod zookeeper;

pub use self::api::Store;
#[cfg(test)]
pub(crate) use self::api::fixture;
pub(crate) use self::api::{mismatch, unexpected};
pub(crate) use self::internal::*;
pub use self::into_store::IntoStore;
pub use self::memory::MemoryStore;
#[cfg(feature = "doctor")]
pub(crate) use self::open::diagnose;
pub use self::open::open;
#[cfg(all(feature = "doctor", feature = "postgres"))]
pub(crate) use self::open::postgres_setup;
