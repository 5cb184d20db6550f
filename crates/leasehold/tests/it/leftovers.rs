//! What is left of a lock in its store and in the clients that used it.

use leasehold::__private::store::{Key, Reply, Request, Store};
use leasehold::Client;
use leasehold_core::{ClientId, Outcome};
use leasehold_testkit::{RedisServer, eventually, eventually_async};
use rusqlite::Connection;

use crate::fixture::Fixture;
use crate::store_client::{release, wait};
use crate::store_ext::StoreExt as _;
use crate::waiters::SOON;

/// The key of a record in Redis.
pub(crate) fn record_key(key: &Key) -> String {
    let namespace = key.space.namespace();
    let tag = format!("{}:{}", key.space.tenant(), key.name);
    match namespace.buckets() {
        Some(buckets) => {
            let bucket = crc16(&tag) % 16_384 % buckets;
            format!("{namespace}:{{{bucket}}}:{{{tag}}}")
        }
        None => format!("{namespace}:{{{tag}}}"),
    }
}

/// CRC-16 XMODEM, bit by bit.
fn crc16(text: &str) -> u16 {
    let shift = |crc: u16| (crc << 1) ^ if crc >= 0x8000 { 0x1021 } else { 0 };
    text.bytes().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| shift(crc))
    })
}

/// Applies an operation of a client of its own to this lock.
async fn apply(store: &dyn Store, key: &Key, request: Request) -> Outcome {
    let request = Request::new(key.clone(), request.op);
    loop {
        match store.apply(vec![request.clone()]).await.remove(0) {
            Reply::Applied { outcome, .. } => return outcome,
            // Other tests keep the disk busy.
            Reply::Rejected(error) if error.is_transient_refusal() => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The number of leases in the queue of a held lock.
async fn queue_length(store: &dyn Store, key: &Key) -> u32 {
    let length = match apply(store, key, wait("probe", 2)).await {
        Outcome::Refused {
            queue_position: Some(length),
            ..
        } => length,
        other => panic!("{other:?}"),
    };
    apply(store, key, release("probe", 2)).await;
    length
}

/// Waits until an unused lock has left nothing but its counter: no lease, no queue, and no local queue in the clients.
pub(crate) async fn nothing_is_left(fixture: &Fixture, key: &Key, clients: &[&Client]) {
    let store = fixture.store().await;
    let free = async || store.inspect(key).await.unwrap().is_none();
    eventually_async(SOON, free).await;
    for client in clients {
        let idle = async || {
            let state = format!("{client:?}");
            let has = |part: &str| state.contains(part);
            has("LocalQueues { queues: 0 }") && has("Shares { leases: 0, readers: 0 }")
        };
        eventually_async(SOON, idle).await;
    }
    let record = record_key(key);
    let queue = format!("{record}:queue");
    match fixture {
        Fixture::Local(_) | Fixture::Etcd(_) | Fixture::Zookeeper(_) => {
            let first = apply(&*store, key, wait("probe", 1)).await;
            assert!(matches!(first, Outcome::Granted { .. }), "{first:?}");
            assert_eq!(queue_length(&*store, key).await, 0);
            apply(&*store, key, release("probe", 1)).await;
        }
        Fixture::Sqlite(directory) => {
            let file = Connection::open(directory.path().join("locks.db")).unwrap();
            let query = "SELECT count(*) FROM members WHERE name = ?1 AND place IS NOT NULL";
            let waiters = file.query_row(query, [key.name.as_str()], |row| row.get::<_, i64>(0));
            assert_eq!(waiters.unwrap(), 0);
        }
        Fixture::Postgres(server) => {
            let waiters = "SELECT count(*) FROM leasehold.members WHERE place IS NOT NULL AND name";
            assert_eq!(server.run(&[&format!("{waiters} = '{}'", key.name)]), "0");
        }
        Fixture::Cluster(cluster) | Fixture::Buckets(cluster) => {
            assert_eq!(cluster.cli_at(&queue, &["EXISTS", &queue]), "0");
        }
        Fixture::Redis(_) | Fixture::Allowed(_) | Fixture::Sentinel(_) => {
            assert_eq!(fixture.servers()[0].cli(&["EXISTS", &queue]), "0");
        }
        Fixture::Masters(masters) => {
            for server in masters.servers() {
                eventually(SOON, || server.cli(&["EXISTS", &record, &queue]) == "0");
            }
        }
        // Nobody waits in a bucket.
        Fixture::Objects(..) => {}
        Fixture::Other(_) => unreachable!("its creator checks this"),
    }
}

/// Whether a store can notify a client of its grants. Nothing shows that of the memory store.
pub(crate) fn is_subscribed(fixture: &Fixture, namespace: &str, client: ClientId) -> bool {
    if let Fixture::Sqlite(directory) = fixture {
        let sockets = directory.path().join("locks.db-wake");
        return sockets.join(client.to_string()).exists();
    }
    if let Fixture::Postgres(server) = fixture {
        let is_free = format!("leasehold.is_free(leasehold.key('', '', '{client}', 3))");
        return server.run(&[&format!("SELECT {is_free}")]) == "f";
    }
    if let Fixture::Etcd(cluster) = fixture {
        let key = format!("leasehold/client/{client}");
        return !cluster.ctl(&["get", &key]).is_empty();
    }
    if let Fixture::Zookeeper(server) = fixture {
        return server.has_ephemeral(&format!("/leasehold/client/{client}"));
    }
    let channels = format!("{namespace}:client:{client}*");
    let subscribed =
        |server: &RedisServer| !server.cli(&["PUBSUB", "CHANNELS", &channels]).is_empty();
    fixture.servers().iter().any(subscribed)
}
