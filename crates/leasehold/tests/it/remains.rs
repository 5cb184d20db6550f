//! What is left of a lock in its store and in the clients that used it.

use std::num::NonZeroU32;

use leasehold::Client;
use leasehold::store::{Key, Keyspace, Reply, Request, Store};
use leasehold_core::{ClientId, LeaseId, Name, Op, Outcome, ScopeName, TokenCount, Ttl};
use leasehold_testkit::{eventually, eventually_async};
use rusqlite::Connection;

use crate::fixture::Fixture;
use crate::waiters::SOON;

/// A lease of nobody's, for questions.
fn probe(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([0xFE; 16]),
        number,
    }
}

fn key(name: &str) -> Key {
    let scope = |text| ScopeName::parse(text).unwrap();
    Keyspace::new(scope("leasehold"), scope("default")).key(Name::parse(name).unwrap())
}

async fn apply(store: &dyn Store, name: &str, op: Op) -> Outcome {
    let request = Request::new(key(name), op);
    loop {
        match store.apply(vec![request.clone()]).await.remove(0) {
            Reply::Applied { outcome, .. } => return outcome,
            // Other tests keep the disk busy.
            Reply::Rejected(error) if error.is_transient_refusal() => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn ask(store: &dyn Store, name: &str, number: u64) -> Outcome {
    let op = Op::Acquire {
        lease: probe(number),
        count: NonZeroU32::MIN,
        ttl: Ttl::from_millis(30_000).unwrap(),
        tokens: TokenCount::MIN,
        wait: true,
    };
    apply(store, name, op).await
}

async fn leave(store: &dyn Store, name: &str, number: u64) -> Outcome {
    let op = Op::Release {
        lease: probe(number),
        count: 0,
        ttl: Ttl::USER_MIN,
    };
    apply(store, name, op).await
}

/// How many leases wait in the store for a lock that somebody holds.
pub(crate) async fn queue_length(store: &dyn Store, name: &str) -> u32 {
    let place = match ask(store, name, 2).await {
        Outcome::Refused {
            queue_position: Some(place),
            ..
        } => place,
        other => panic!("{other:?}"),
    };
    leave(store, name, 2).await;
    place
}

/// Waits until a lock that nobody wants any more has left nothing but its counter: no lease, no
/// queue, and no line in the clients.
pub(crate) async fn nothing_is_left(fixture: &Fixture, name: &str, clients: &[&Client]) {
    let store = fixture.store().await;
    eventually_async(SOON, async || {
        store.inspect(&key(name)).await.unwrap().is_none()
    })
    .await;
    for client in clients {
        // Nothing else tells what a client remembers.
        eventually_async(SOON, async || {
            format!("{client:?}").contains("LocalQueues { queues: 0 }")
        })
        .await;
    }
    match fixture {
        Fixture::Memory(_) => {
            // Neither the first nor the second of two questions finds anybody before it.
            let first = ask(&*store, name, 1).await;
            assert!(matches!(first, Outcome::Granted { .. }), "{first:?}");
            assert_eq!(queue_length(&*store, name).await, 0);
            leave(&*store, name, 1).await;
        }
        Fixture::Sqlite(folder) => {
            let file = Connection::open(folder.path().join("locks.db")).unwrap();
            let query = "SELECT count(*) FROM waiters WHERE name = ?1";
            let waiters = file.query_row(query, [name], |row| row.get::<_, i64>(0));
            assert_eq!(waiters.unwrap(), 0);
        }
        Fixture::Redis(_) | Fixture::Allowed(_) | Fixture::Sentinel(_) => {
            let server = fixture.server();
            let queue = format!("leasehold:{{default:{name}}}:queue");
            assert_eq!(server.cli(&["EXISTS", &queue]), "0");
        }
        Fixture::Cluster(cluster) => {
            let queue = format!("leasehold:{{default:{name}}}:queue");
            assert_eq!(cluster.cli_at(&queue, &["EXISTS", &queue]), "0");
        }
        Fixture::Masters(masters) => {
            let record = format!("leasehold:{{default:{name}}}");
            let queue = format!("{record}:queue");
            for server in masters.servers() {
                eventually(SOON, || server.cli(&["EXISTS", &record, &queue]) == "0");
            }
        }
        Fixture::Other(_) => unreachable!("who set it up looks"),
    }
}

/// Whether the store has a way to tell a client of its grants. Nothing tells that of the memory store.
pub(crate) fn listens(fixture: &Fixture, client: ClientId) -> bool {
    match fixture {
        Fixture::Redis(_) | Fixture::Allowed(_) | Fixture::Sentinel(_) => {
            let server = fixture.server();
            let channel = format!("leasehold:client:{client}");
            let answer = server.cli(&["PUBSUB", "NUMSUB", &channel]);
            answer == format!("{channel}\n1")
        }
        Fixture::Sqlite(folder) => {
            let wake = folder.path().join("locks.db-wake");
            wake.join(client.to_string()).exists()
        }
        Fixture::Cluster(cluster) => {
            let channels = format!("leasehold:client:{client}:*");
            let channels = ["PUBSUB", "CHANNELS", &channels];
            let mut nodes = cluster.nodes().iter();
            nodes.any(|node| !node.cli(&channels).is_empty())
        }
        Fixture::Masters(masters) => {
            let channel = format!("leasehold:client:{client}");
            let listens = format!("{channel}\n1");
            let mut servers = masters.servers().iter();
            servers.any(|server| server.cli(&["PUBSUB", "NUMSUB", &channel]) == listens)
        }
        Fixture::Memory(_) | Fixture::Other(_) => false,
    }
}
