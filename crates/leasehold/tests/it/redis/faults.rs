//! What becomes of requests when something breaks, and that it works again afterwards.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{self, OpenOptions};
use leasehold_testkit::{RedisServer, Restart, eventually_async};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_was_forgotten_is_sent_again() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    for _ in 0..2 {
        server.cli(&["SCRIPT", "FLUSH"]);
        works(&*store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_under_a_request_leaves_it_unknown() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    works(&*store).await;
    server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let asked = tokio::spawn({
        let store = Arc::clone(&store);
        async move { send(&*store, acquire("a", 1)).await }
    });
    eventually_async(SOON, async || {
        server
            .cli(&["INFO", "clients"])
            .contains("blocked_clients:1")
    })
    .await;
    cut(&server);
    let reply = asked.await.unwrap();
    let Reply::Unknown(error) = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error.to_string().contains(r#"lock "a" at redis://"#),
        "{error}"
    );
    server.cli(&["CLIENT", "UNPAUSE"]);
    works(&*store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_rejects_and_comes_back() {
    let mut server = RedisServer::start();
    let store = open(&server.url()).await;
    let first = granted(&*store, acquire("a", 1)).await;
    server.kill9();
    // The first request may have been under way when the connection broke.
    let reply = send(&*store, acquire("b", 1)).await;
    assert!(!matches!(reply, Reply::Applied { .. }), "{reply:?}");
    let error = rejected(&*store, acquire("b", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
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
    let options = OpenOptions::default()
        .connect_timeout(Duration::from_millis(400))
        .response_timeout(Duration::from_millis(400));
    let store = store::open(&server.url(), &options).await.unwrap();
    works(&*store).await;
    server.stop();
    let reply = send(&*store, acquire("late", 1)).await;
    let Reply::Unknown(error) = reply else {
        panic!("{reply:?}");
    };
    assert!(
        error.to_string().contains("no answer within 400ms"),
        "{error}"
    );
    // There is no new connection either, so the next one is certainly not sent.
    let error = rejected(&*store, acquire("never", 1)).await;
    assert!(
        error.to_string().contains("no connection within 400ms"),
        "{error}"
    );
    server.cont();
    assert_eq!(
        eventually_applied(&*store, renew("never", 1)).await,
        Outcome::Lost(Loss::Gone)
    );
    works(&*store).await;
    // The server runs what it had received, long after the client gave it up.
    let late = applied(&*store, acquire("late", 2)).await;
    assert!(matches!(late, Outcome::Refused { .. }), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_share_one_new_connection() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let before = connections(&server);
    cut(&server);
    for reply in ask_at_once(&store, 100).await {
        // Only what was sent before the cut was noticed may be unknown.
        assert!(!matches!(reply, Reply::Rejected(_)), "{reply:?}");
    }
    works(&*store).await;
    // Ours, the one that cut and the one that asks.
    assert_eq!(connections(&server) - before, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_callers_share_one_failed_attempt() {
    let server = RedisServer::start();
    let options = OpenOptions::default().connect_timeout(Duration::from_millis(300));
    let store = store::open(&server.url(), &options).await.unwrap();
    let before = connections(&server);
    cut(&server);
    // Takes connections and says nothing.
    server.stop();
    // May still go to the old connection; after it there is none.
    let reply = send(&*store, renew("a", 1)).await;
    assert!(!matches!(reply, Reply::Applied { .. }), "{reply:?}");
    for reply in ask_at_once(&store, 20).await {
        assert!(matches!(reply, Reply::Rejected(_)), "{reply:?}");
    }
    server.cont();
    // The one before, one for the twenty, the one that cut and the one that asks.
    assert!(connections(&server) - before <= 4);
    works(&*store).await;
}

/// A caller that gives up while it connects leaves the connecting to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gives_up_harms_no_other() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    cut(&server);
    server.stop();
    for _ in 0..3 {
        let asked = send(&*store, acquire("a", 1));
        let answer = tokio::time::timeout(Duration::from_millis(20), asked).await;
        assert!(!matches!(answer, Ok(Reply::Applied { .. })), "{answer:?}");
    }
    server.cont();
    eventually_applied(&*store, renew("a", 1)).await;
    works(&*store).await;
}

async fn ask_at_once(store: &Arc<dyn Store>, callers: u64) -> Vec<Reply> {
    let asked: Vec<_> = (0..callers)
        .map(|number| {
            let store = Arc::clone(store);
            tokio::spawn(async move { send(&*store, renew("a", number)).await })
        })
        .collect();
    let mut replies = Vec::new();
    for reply in asked {
        replies.push(reply.await.unwrap());
    }
    replies
}

/// How many connections a server has taken, this question's included.
fn connections(server: &RedisServer) -> u32 {
    let stats = server.cli(&["INFO", "stats"]);
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().trim().parse().unwrap()
}

/// Cuts every connection but the administrator's own.
fn cut(server: &RedisServer) {
    server.cli(&["CLIENT", "KILL", "USER", "default"]);
}

/// Asks until the connection stands again.
async fn eventually_applied(store: &dyn Store, request: Request) -> Outcome {
    let mut last = None;
    eventually_async(SOON, async || {
        if let Reply::Applied { outcome, .. } = send(store, request.clone()).await {
            last = Some(outcome);
        }
        last.is_some()
    })
    .await;
    last.unwrap()
}
