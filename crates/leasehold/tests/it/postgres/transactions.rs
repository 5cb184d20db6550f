//! What shares a transaction, what is delayed by those of users, and what is removed.

use super::*;

async fn open_store(server: &PostgresServer) -> PostgresStore {
    let options = OpenOptions::default().response_timeout(PATIENCE);
    PostgresStore::open_url(&server.url(), &options)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_names_share_a_commit() {
    let server = PostgresServer::start();
    let store = open_store(&server).await;
    let names: Vec<_> = (0..1_000).map(|number| format!("n{number}")).collect();
    let before = store.commits();
    let batch = names.iter().map(|name| acquire(name, 1)).collect();
    let replies = store.apply(batch).await;
    assert!(replies.iter().all(is_granted), "{}", words(&replies));
    assert_eq!(store.commits() - before, 1);
}

/// A transaction that keeps a record locked delays no other name, and is not waited for without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_record_delays_no_other() {
    let server = PostgresServer::start();
    let store: Arc<dyn Store> = Arc::new(open_store(&server).await);
    works(&*store).await;
    let mut psql = server.psql();
    psql.args([
        "-c",
        "BEGIN; SELECT pg_advisory_xact_lock(leasehold.key('app', 't', 'slow', 1)), pg_sleep(60)",
    ]);
    let mut session = psql.spawn().unwrap();
    let locked =
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock'";
    eventually_async(SOON, async || server.run(&[locked]) != "0").await;
    let slow = rejected(&*store, acquire("slow", 1));
    let others = async {
        for number in 1..20 {
            granted(&*store, acquire(&format!("n{number}"), number)).await;
        }
    };
    let (error, ()) = tokio::join!(slow, others);
    assert_eq!(
        (error.kind(), error.lock()),
        (ErrorKind::Unreachable, Some("slow"))
    );
    session.kill().unwrap();
    session.wait().unwrap();
    server.run(&["SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()"]);
    granted(&*store, acquire("slow", 2)).await;
}

/// What has ended is removed, and what has not stays.
#[tokio::test(flavor = "multi_thread")]
async fn ended_records_are_removed() {
    let server = PostgresServer::start_with_clock();
    let store: Arc<dyn Store> = Arc::new(open_store(&server).await);
    granted(&*store, acquire("held", 1)).await;
    for round in 0..4 {
        let names: Vec<_> = (0..250).map(|number| format!("{round}/{number}")).collect();
        for request in [acquire, release] {
            store
                .apply(names.iter().map(|name| request(name, 1)).collect())
                .await;
        }
    }
    server.step_clock(400_000);
    granted(&*store, acquire("last", 1)).await;
    eventually_async(SOON, async || {
        store
            .apply((0..100).map(|number| acquire("held", number)).collect())
            .await;
        server.run(&["SELECT count(*) < 10 FROM leasehold.heads"]) == "t"
    })
    .await;
    assert_eq!(
        server.run(&["SELECT count(*) FROM leasehold.heads WHERE name = 'last'"]),
        "1"
    );
}
