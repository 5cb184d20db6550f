//! Transactions of PostgreSQL under a lock in the same database.

use std::process::Command;
use std::time::Duration;

use leasehold::fence::postgres::{HELD, HELD_IN, LOST};
use leasehold::{Client, ErrorKind, Guard, LeaseOptions, Token};
use leasehold_testkit::{PostgresPair, PostgresServer, RunToEnd as _, eventually_async, python};
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{IsolationLevel, Transaction};

use super::paused::is_refused;
use super::resources::{session, write_checked};
use crate::fixture::{Fixture, two_clients};
use crate::waiters::{SOON, soon};

/// The number of times a holder is cut off while its transaction runs, unless `LEASEHOLD_TAKEOVERS` has another one.
const TAKEOVERS: usize = 100;

/// The lease of a holder that is cut off: much longer than a takeover takes.
const LEASE: Duration = Duration::from_secs(60);

/// By how much the clock of the server moves during the pause of a holder, in milliseconds: more than its lease.
const PAUSE_MS: i64 = 120_000;

/// The longest delay of a transaction behind the attempt to take its lock over, in turns of the runtime.
const TURNS_MAX: usize = 200;

/// Writes a row in a transaction under the lock. Returns whether it was committed.
async fn commit(session: &mut tokio_postgres::Client, name: &str, token: Token) -> bool {
    let token = i64::from(token);
    let insert = "INSERT INTO commits (token) VALUES ($1)";
    write_checked(session, (HELD, &[&name, &token]), (insert, &[&token])).await
}

/// Begins a transaction that relies on a holder.
async fn relying<'a>(session: &'a mut tokio_postgres::Client, guard: &Guard) -> Transaction<'a> {
    let transaction = session.transaction().await.unwrap();
    let (name, token) = (guard.name(), i64::from(guard.token()));
    transaction.execute(HELD, &[&name, &token]).await.unwrap();
    transaction
}

const COMMITS: &str = "CREATE TABLE commits (id BIGSERIAL, token BIGINT NOT NULL)";

#[tokio::test]
async fn only_the_holder_passes() {
    let server = PostgresServer::start();
    let url = server.url();
    let other = Client::builder().namespace("other").connect(&url).await;
    let other = other.unwrap();
    let client = Client::connect(&url).await.unwrap();
    let mutex = client.mutex("stock").unwrap();
    let mut session = session(&server.url()).await;
    server.run(&[COMMITS]);

    let early = mutex.lock().await.unwrap();
    assert!(commit(&mut session, "stock", early.token()).await);
    assert!(!commit(&mut session, "another", early.token()).await);
    let before = Token::new(early.token().get() - 1).unwrap();
    assert!(!commit(&mut session, "stock", before).await);

    let token = early.token();
    early.release().await.unwrap();
    assert!(!commit(&mut session, "stock", token).await);
    let late = mutex.lock().await.unwrap();
    assert!(!commit(&mut session, "stock", token).await);
    assert!(commit(&mut session, "stock", late.token()).await);

    let guard = other.mutex("stock").unwrap().lock().await.unwrap();
    let token = i64::from(guard.token());
    assert!(!commit(&mut session, "stock", guard.token()).await);
    for (namespace, is_held) in [("other", true), ("leasehold", false)] {
        let arguments: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&"stock", &token, &namespace, &"default"];
        assert_eq!(session.execute(HELD_IN, &arguments).await.is_ok(), is_held);
    }
}

/// Readers have one token, so any of them keeps writers away for all. Both levels of isolation read the same.
#[tokio::test]
async fn shared_holders_pass() {
    let server = PostgresServer::start();
    let url = server.url();
    server.run(&[COMMITS]);
    let [client, other] = two_clients(&url).await;
    for level in ["read committed", "repeatable read"] {
        let set = format!("ALTER ROLE testkit SET default_transaction_isolation = '{level}'");
        server.run(&[&set]);
        let mut session = session(&url).await;
        let semaphore = client.semaphore("exports", 2).unwrap();
        let early = semaphore.acquire().await.unwrap();
        let late = semaphore.acquire().await.unwrap();
        let token = early.token();
        assert!(commit(&mut session, "exports", token).await);
        early.release().await.unwrap();
        assert!(!commit(&mut session, "exports", token).await);
        assert!(commit(&mut session, "exports", late.token()).await);
        late.release().await.unwrap();

        let [lock, elsewhere] = [&client, &other].map(|it| it.rw_lock("catalog").unwrap());
        let early = lock.read().await.unwrap();
        let late = elsewhere.read().await.unwrap();
        let readers = early.token();
        assert_eq!(late.token(), readers);
        early.release().await.unwrap();
        assert!(commit(&mut session, "catalog", readers).await);
        late.release().await.unwrap();
        assert!(!commit(&mut session, "catalog", readers).await);
        let writer = lock.write().await.unwrap();
        let token = writer.token();
        assert!(commit(&mut session, "catalog", token).await);
        assert!(!commit(&mut session, "catalog", readers).await);
        writer.release().await.unwrap();
        let next = elsewhere.read().await.unwrap();
        for late in [token, readers] {
            assert!(!commit(&mut session, "catalog", late).await);
        }
        assert!(commit(&mut session, "catalog", next.token()).await);
        next.release().await.unwrap();
    }
}

/// Otherwise readers would come before its commit.
#[tokio::test]
async fn a_downgrade_waits_for_the_transaction() {
    let server = PostgresServer::start();
    let url = server.url();
    let [first, second] = two_clients(&url).await;
    let [lock, elsewhere] = [&first, &second].map(|it| it.rw_lock("catalog").unwrap());
    let writer = lock.write().await.unwrap();
    let mut session = session(&url).await;
    let transaction = relying(&mut session, &writer).await;
    let downgrade = tokio::spawn(writer.downgrade());
    let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
    eventually_async(SOON, async || server.run(&[waits]) == "t").await;
    assert!(elsewhere.try_read().await.unwrap().is_none());
    transaction.commit().await.unwrap();
    let _reader = soon(downgrade).await.unwrap();
    assert!(elsewhere.try_read().await.unwrap().is_some());
}

/// It does not show who holds the lock.
#[tokio::test]
async fn a_snapshot_before_the_grant_is_refused() {
    let server = PostgresServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let lock = client.rw_lock("catalog").unwrap();
    lock.write().await.unwrap().release().await.unwrap();
    let mut session = session(&server.url()).await;
    let transaction = session.build_transaction();
    let transaction = transaction.isolation_level(IsolationLevel::RepeatableRead);
    let transaction = transaction.start().await.unwrap();
    transaction
        .batch_execute("SELECT FROM leasehold.version")
        .await
        .unwrap();
    let writer = lock.write().await.unwrap();
    let token = i64::from(writer.token());
    let refused = transaction.execute(HELD, &[&"catalog", &token]).await;
    let code = refused.unwrap_err().code().cloned();
    assert_eq!(code, Some(SqlState::T_R_SERIALIZATION_FAILURE));
}

#[tokio::test]
async fn a_standby_cannot_check() {
    let pair = PostgresPair::start(false);
    let url = pair.url();
    let client = Client::connect(&url).await.unwrap();
    let guard = client.mutex("stock").unwrap().lock().await.unwrap();
    let token = i64::from(guard.token());
    let (_, standby) = url.split_once(',').unwrap();
    let session = session(&format!("postgres://testkit@{standby}")).await;
    // It has the function a moment later.
    let is_refused = async || {
        let refused = session.execute(HELD, &[&"stock", &token]).await;
        let error = refused.unwrap_err();
        error.code().is_some_and(|code| code.code() == "LH002")
    };
    eventually_async(SOON, is_refused).await;
}

/// Even if the lease ends meanwhile. Nobody ends it before.
#[tokio::test]
async fn a_takeover_waits_for_the_transaction() {
    let server = PostgresServer::start();
    let url = server.url();
    let [first, second] = two_clients(&url).await;
    let mutex = second.mutex("stock").unwrap();
    let mut session = session(&server.url()).await;

    let lease = LeaseOptions::new().fixed(Duration::from_secs(4));
    let fixed = first.mutex("stock").unwrap().with(lease).unwrap();
    let guard = fixed.lock().await.unwrap();
    let transaction = relying(&mut session, &guard).await;
    let refused = mutex.revoke().await.unwrap_err();
    let named = refused.to_string().contains("leasehold.held");
    assert!(named && refused.is_transient(), "{refused}");
    // For its holder, and in the store.
    let ended = async || guard.state().is_lost() && mutex.inspect().await.unwrap().is_none();
    eventually_async(SOON, ended).await;
    assert!(mutex.try_lock().await.unwrap().is_none());
    // Other locks are not affected.
    let other = second.mutex("another").unwrap().try_lock().await.unwrap();
    other.unwrap().release().await.unwrap();

    transaction.commit().await.unwrap();
    let next = timeout(SOON, mutex.lock()).await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_holder_is_renewed_during_its_transaction() {
    let server = PostgresServer::start();
    let ttl = Duration::from_secs(9);
    let client = Client::builder().ttl(ttl).connect(&server.url()).await;
    let client = client.unwrap();
    let guard = client.mutex("stock").unwrap().lock().await.unwrap();
    let mut session = session(&server.url()).await;
    let transaction = relying(&mut session, &guard).await;
    // By two renewals.
    let first = guard.deadline();
    let is_renewed = async || {
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        guard.deadline().since(first) > ttl / 2
    };
    eventually_async(SOON, is_renewed).await;
    guard.ensure(ttl / 2).await.unwrap();
    transaction.commit().await.unwrap();
    guard.release().await.unwrap();
}

/// It commits nothing, and keeps the lock from nobody.
#[tokio::test]
async fn a_transaction_that_is_idle_for_too_long_is_ended() {
    let server = PostgresServer::start();
    server.run(&[COMMITS]);
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("stock").unwrap().lock().await.unwrap();
    let token = i64::from(guard.token());
    let mut session = session(&server.url()).await;
    let transaction = relying(&mut session, &guard).await;
    let last = format!(
        "INSERT INTO commits (token) VALUES ({token}); SET idle_in_transaction_session_timeout = 1"
    );
    transaction.batch_execute(&last).await.unwrap();
    eventually_async(SOON, async || transaction.client().is_closed()).await;
    assert!(transaction.commit().await.is_err());
    assert_eq!(server.run(&["SELECT count(*) FROM commits"]), "0");
    guard.release().await.unwrap();
}

/// The release waits for the transaction, and fails after two seconds. Then it is repeated.
#[tokio::test]
async fn a_release_before_the_end_of_the_transaction_is_repeated() {
    let server = PostgresServer::start();
    let url = server.url();
    let [first, second] = two_clients(&url).await;
    let mutex = second.mutex("stock").unwrap();
    let guard = first.mutex("stock").unwrap().lock().await.unwrap();
    let mut session = session(&url).await;
    let transaction = relying(&mut session, &guard).await;
    let error = timeout(SOON, guard.release()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(mutex.try_lock().await.unwrap().is_none());
    transaction.commit().await.unwrap();
    // Sooner than the lease ends.
    let is_free = async || mutex.inspect().await.unwrap().is_none();
    eventually_async(SOON, is_free).await;
}

/// The tokens of the commits never decrease, and a late transaction is not committed. Holders are cut off by force and by a
/// pause in turn: their renewals stop, and they believe that they hold when the lease ends for the server.
#[tokio::test]
async fn no_commit_is_stale() {
    let server = PostgresServer::start_with_clock();
    server.run(&[COMMITS]);
    let url = server.url();
    let mut clients = two_clients(&url).await;
    let (mut early_session, mut late_session) =
        (session(&server.url()).await, session(&server.url()).await);
    let mut early_commits = 0;
    let takeovers = std::env::var("LEASEHOLD_TAKEOVERS");
    let takeovers = takeovers.map_or(TAKEOVERS, |number| number.parse().unwrap());
    for number in 0..takeovers {
        let [holder, next] = &clients;
        let by_force = number.is_multiple_of(2);
        let lease = LeaseOptions::new().fixed(LEASE);
        let mutex = holder.mutex("stock").unwrap().with(lease).unwrap();
        let early = mutex.lock().await.unwrap();
        let token = early.token();
        let late_work = async {
            for _ in 0..fastrand::usize(0..TURNS_MAX) {
                yield_now().await;
            }
            commit(&mut early_session, "stock", token).await
        };
        let takeover = async {
            let mutex = next.mutex("stock").unwrap();
            // Both are refused while the transaction of the holder is open.
            if by_force {
                while let Err(error) = mutex.revoke().await {
                    assert!(error.is_transient(), "{error}");
                }
            } else {
                server.step_clock(PAUSE_MS);
                assert!(early.state().is_held(), "{:?}", early.state());
            }
            let guard = loop {
                if let Some(guard) = mutex.try_lock().await.unwrap() {
                    break guard;
                }
            };
            assert!(guard.token() > token);
            assert!(commit(&mut late_session, "stock", guard.token()).await);
            guard
        };
        let (committed, guard) = tokio::join!(late_work, timeout(SOON, takeover));
        let guard = guard.unwrap();
        early_commits += usize::from(committed);
        assert!(!commit(&mut early_session, "stock", token).await);
        guard.release().await.unwrap();
        clients.swap(0, 1);
    }
    println!("{early_commits} of {takeovers} transactions were committed before the takeover");
    let stale =
        "SELECT count(*) FROM commits a JOIN commits b ON a.id < b.id AND a.token > b.token";
    assert_eq!(server.run(&[stale]), "0");
    let commits = server.run(&["SELECT count(*) FROM commits"]);
    assert_eq!(commits, (takeovers + early_commits).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_is_refused() {
    let server = PostgresServer::start();
    server.run(&[super::paused::ORDERS]);
    let read = async || server.run(&["SELECT state FROM orders"]);
    let (fixture, url) = (Fixture::Other(server.url()), server.url());
    is_refused(fixture, "postgres_held", &url, read).await;
}

/// By the call in the page about fencing.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_psycopg_is_refused_after_the_release() {
    let python = python().filter(|python| {
        let import = Command::new(python)
            .args(["-c", "import psycopg"])
            .run_to_end();
        import.status.success()
    });
    let Some(python) = python else {
        eprintln!("psycopg is missing: the call in Python is not tested");
        return;
    };
    let page = include_str!("../../../../../docs/fencing.md");
    let (_, call) = page.split_once("With psycopg:").unwrap();
    let call = call.split('`').nth(1).unwrap();
    let script = format!(
        "import psycopg, sys
url, name, token = sys.argv[1], sys.argv[2], int(sys.argv[3])
try:
    with psycopg.connect(url) as session, session.cursor() as cursor:
        {call}
        cursor.execute('INSERT INTO commits (token) VALUES (%s)', (token,))
except psycopg.Error as error:
    sys.exit(error.sqlstate or str(error))"
    );
    let server = PostgresServer::start();
    server.run(&[COMMITS]);
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("stock").unwrap().lock().await.unwrap();
    let token = guard.token().to_string();
    let url = server.url();
    // The rest is for clients of locks behind a pooler.
    let url = url.split('?').next().unwrap();
    let stderr = || {
        let mut command = Command::new(&python);
        command.args(["-c", &script, url, "stock", &token]);
        String::from_utf8(command.run_to_end().stderr).unwrap()
    };
    assert_eq!(stderr(), "");
    guard.release().await.unwrap();
    assert_eq!(stderr().trim(), LOST);
    assert_eq!(server.run(&["SELECT token FROM commits"]), token);
}

/// A user that only writes needs no right on the tables of the locks.
#[tokio::test]
async fn a_writer_needs_no_right_to_lock() {
    let server = PostgresServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("stock").unwrap().lock().await.unwrap();
    server.run(&[
        "CREATE ROLE writer",
        "GRANT USAGE ON SCHEMA leasehold TO writer",
    ]);
    let token = i64::from(guard.token());
    let session = session(&server.url()).await;
    session.batch_execute("SET ROLE writer").await.unwrap();
    session.execute(HELD, &[&"stock", &token]).await.unwrap();
    let read = session.execute("SELECT FROM leasehold.heads", &[]).await;
    assert!(read.is_err());
}
