//! Replies while connections and servers fail, and recovery afterwards.

use futures_util::future::join_all;
use leasehold_testkit::Restart;

use super::*;
use crate::waiters::poll_once;

/// Longer than a running server takes, also on a busy machine.
const AMPLE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_the_server_has_forgotten_is_sent_again() {
    let (server, store) = server_and_store().await;
    granted(&*store, acquire("held", 1)).await;
    for _ in 0..2 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(applied(&*store, renew("held", 1)).await, Outcome::Kept);
        works(&*store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_under_a_request_leaves_it_unknown() {
    let (server, store) = server_and_store().await;
    works(&*store).await;
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let request = tokio::spawn({
        let store = Arc::clone(&store);
        async move { unknown(&*store, acquire("a", 1)).await }
    });
    let blocked =
        async || info(&server, "clients", "blocked_clients").is_some_and(|count| count == "1");
    eventually_async(SOON, blocked).await;
    cut(&server);
    let error = request.await.unwrap();
    assert_error(&error, ErrorKind::Unreachable, &[r#"lock "a" at redis://"#]);
    server.cli(&["CLIENT", "UNPAUSE"]);
    works(&*store).await;
}

/// The others connect while the caller that was first is no longer polled. In one thread: no task runs within that poll.
#[tokio::test]
async fn a_caller_that_is_not_polled_keeps_no_other_from_connecting() {
    let (server, store) = server_and_store().await;
    let client = StoreClient::listening(&store, 9).await;
    cut(&server);
    client.until_interrupted().await;
    let mut stopped = store.apply(vec![acquire("stopped", 1)]);
    assert!(poll_once(&mut stopped).is_pending());
    granted(&*store, acquire("other", 2)).await;
    assert!(is_granted(&stopped.await[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_dead_server_are_rejected_until_it_is_back() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    let client = StoreClient::listening(&store, 9).await;
    let first = granted(&*store, acquire("a", 1)).await;
    server.kill9();
    client.until_interrupted().await;
    for _ in 0..2 {
        let error = rejected(&*store, acquire("b", 1)).await;
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    }
    // A failed attempt to connect interrupts no client: an interrupted waiter tries again without a pause.
    assert_eq!(client.events(), []);
    server.restart(Restart::Empty);
    let next = granted(&*store, acquire("a", 2)).await;
    assert!(next > first);
    server.restart(Restart::Kept);
    let refused = eventually_applied(&*store, acquire("a", 3)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_leaves_requests_unknown_and_may_run_them_later() {
    let server = RedisServer::start();
    // The last quarter of the connect timeout is for the check whether the server accepts connections.
    let options = OpenOptions::default()
        .connect_timeout(AMPLE * 4)
        .response_timeout(AMPLE);
    let store = open_with(&server.url(), options).await;
    let client = StoreClient::listening(&store, 9).await;
    works(&*store).await;
    server.stop();
    let error = unknown(&*store, acquire("late", 1)).await.to_string();
    assert!(error.contains("no reply within 2s"), "{error}");
    client.until_interrupted().await;
    // There is no new connection either, so the next one is certainly not sent.
    let error = rejected(&*store, acquire("never", 1)).await.to_string();
    assert!(
        error.contains("connected, but no reply within 8s"),
        "{error}"
    );
    assert_eq!(client.events(), []);
    server.cont();
    assert_eq!(eventually_applied(&*store, renew("never", 1)).await, FREE);
    works(&*store).await;
    // The server applies what it had received, long after the client gave it up.
    let late = applied(&*store, acquire("late", 2)).await;
    assert!(matches!(late, Outcome::Refused { .. }), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_share_one_new_connection() {
    let (server, store) = server_and_store().await;
    let before = connections(&server);
    cut(&server);
    for reply in send_at_once(&store, 100).await {
        // Only what was sent before the cut was noticed may be unknown.
        assert!(!matches!(reply, Reply::Rejected(_)), "{reply:?}");
    }
    works(&*store).await;
    // The store's, the one that cut the others and the one of this query.
    assert_eq!(connections(&server) - before, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_share_one_failed_attempt() {
    let server = RedisServer::start();
    let options = OpenOptions::default().connect_timeout(AMPLE);
    let store = open_with(&server.url(), options).await;
    let before = connections(&server);
    cut(&server);
    // It accepts connections and does not reply.
    server.stop();
    // May be sent over the old connection, the last one.
    let reply = send(&*store, renew("a", 1)).await;
    assert!(!matches!(reply, Reply::Applied { .. }), "{reply:?}");
    for reply in send_at_once(&store, 20).await {
        assert!(matches!(reply, Reply::Rejected(_)), "{reply:?}");
    }
    server.cont();
    // The one that cut the others, the one of this query, and two for an attempt of the first and of the twenty:
    // towards its end, an attempt connects again to see whether the server accepts.
    assert!(connections(&server) - before <= 6);
    works(&*store).await;
}

/// A caller that gives up while it connects leaves the connecting to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_affects_no_other() {
    let (server, store) = server_and_store().await;
    cut(&server);
    server.stop();
    for _ in 0..3 {
        let request = send(&*store, acquire("a", 1));
        let reply = tokio::time::timeout(Duration::from_millis(20), request).await;
        assert!(!matches!(reply, Ok(Reply::Applied { .. })), "{reply:?}");
    }
    server.cont();
    eventually_applied(&*store, renew("a", 1)).await;
    works(&*store).await;
}

async fn send_at_once(store: &Arc<dyn Store>, callers: u64) -> Vec<Reply> {
    let requests = (0..callers).map(|number| {
        let store = Arc::clone(store);
        tokio::spawn(async move { send(&*store, renew("a", number)).await })
    });
    let replies = join_all(requests).await;
    replies.into_iter().map(Result::unwrap).collect()
}

/// The number of connections that a server has accepted, with that of this query.
fn connections(server: &RedisServer) -> u32 {
    let count = info(server, "stats", "total_connections_received");
    count.unwrap().parse().unwrap()
}

/// Cuts every connection but the administrator's own.
fn cut(server: &RedisServer) {
    server.cli(&["CLIENT", "KILL", "USER", "default"]);
}
