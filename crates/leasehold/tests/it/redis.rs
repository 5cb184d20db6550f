//! The Redis store against real servers.

mod cluster;
mod connect;
mod event_log;
mod faults;
mod grants;
mod look;
mod losses;
mod queue;
mod records;
mod redlock;
mod refused;
mod replicas;
mod rights;
mod rule;
mod sentinel;
mod stopped;
mod tls;
mod transient;
mod wakes;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold::Error;
use leasehold::store::{self, Key, Keyspace, OpenOptions, Reply, Request, Store};
use leasehold_core::{
    ClientId, LeaseId, Loss, Name, Op, Outcome, ScopeName, StoreTime, TokenCount, Ttl,
};

/// Longer than any state of these tests takes to come about.
const SOON: Duration = Duration::from_secs(10);

async fn open(url: &str) -> Arc<dyn Store> {
    match try_open(url).await {
        Ok(store) => store,
        Err(error) => panic!("{error}"),
    }
}

async fn try_open(url: &str) -> Result<Arc<dyn Store>, Error> {
    store::open(url, &OpenOptions::default()).await
}

fn space() -> Keyspace {
    let scope = |text| ScopeName::parse(text).unwrap();
    Keyspace::new(scope("app"), scope("t"))
}

fn key(name: &str) -> Key {
    space().key(Name::parse(name).unwrap())
}

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([7; 16]),
        number,
    }
}

fn ttl(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn acquire(name: &str, number: u64) -> Request {
    Request::new(
        key(name),
        Op::Acquire {
            lease: lease(number),
            count: NonZeroU32::MIN,
            ttl: ttl(30_000),
            tokens: TokenCount::MIN,
            wait: false,
        },
    )
}

fn renew(name: &str, number: u64) -> Request {
    let (lease, ttl) = (lease(number), ttl(30_000));
    Request::new(key(name), Op::Renew { lease, ttl })
}

fn release(name: &str, number: u64, count: u32) -> Request {
    let (lease, ttl) = (lease(number), ttl(30_000));
    Request::new(key(name), Op::Release { lease, count, ttl })
}

fn revoke(name: &str) -> Request {
    Request::new(key(name), Op::Revoke)
}

async fn send(store: &dyn Store, request: Request) -> Reply {
    let mut replies = store.apply(vec![request]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

async fn applied(store: &dyn Store, request: Request) -> Outcome {
    applied_at(store, request).await.0
}

async fn applied_at(store: &dyn Store, request: Request) -> (Outcome, StoreTime) {
    match send(store, request.clone()).await {
        Reply::Applied { outcome, now } => (outcome, now),
        other => panic!("{request:?}: {other:?}"),
    }
}

async fn rejected(store: &dyn Store, request: Request) -> Error {
    match send(store, request.clone()).await {
        Reply::Rejected(error) => error,
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Acquires a free lock and gives its token.
async fn granted(store: &dyn Store, request: Request) -> u64 {
    match applied(store, request.clone()).await {
        Outcome::Granted { first } => first.get(),
        other => panic!("{request:?}: {other:?}"),
    }
}

/// Takes a lock and gives it back.
async fn works(store: &dyn Store) {
    granted(store, acquire("works", 1)).await;
    let released = applied(store, release("works", 1, 0)).await;
    assert_eq!(released, Outcome::Released { count: 0 });
}
