//! A user who lacks one right gets a clear error and leaves nothing half done.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::ErrorKind;
use leasehold_testkit::RedisServer;

use super::*;

/// What the head of the script says it needs.
const NEEDED: [&str; 8] = [
    "hget", "hset", "hdel", "pexpire", "pttl", "get", "set", "time",
];

/// What an operator needs to revoke as well.
const REVOKE: [&str; 2] = ["hgetall", "del"];

/// A server on which `alice` may do only what locks need, without `removed`.
fn allow(server: &RedisServer, removed: &str) {
    let commands = ["evalsha", "eval"].iter().chain(&NEEDED).chain(&REVOKE);
    let rules: Vec<_> = commands
        .filter(|command| **command != removed)
        .map(|command| format!("+{command}"))
        .collect();
    let mut acl = vec!["ACL", "SETUSER", "alice", "reset", "on", ">pw", "~app:*"];
    acl.extend(rules.iter().map(String::as_str));
    server.cli(&acl);
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_these_rights_are_enough() {
    let server = RedisServer::start();
    allow(&server, "");
    let store = open(&server.url_of("alice", "pw")).await;
    works(&*store).await;
    granted(&*store, acquire("a", 1)).await;
    granted(&*store, acquire("a", 1)).await;
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Renewed);
    assert_eq!(
        applied(&*store, release("a", 1, 2)).await,
        Outcome::Released { count: 2 }
    );
    let cut_off = Some(lease(1));
    assert_eq!(
        applied(&*store, revoke("a")).await,
        Outcome::Revoked { cut_off }
    );
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_grants_nothing() {
    let server = RedisServer::start();
    allow(&server, "");
    let store = open(&server.url_of("alice", "pw")).await;
    works(&*store).await;
    for removed in NEEDED {
        allow(&server, removed);
        server.cli(&["DEL", "app:{t:a}", "app:{t:a}:token"]);
        let replies = store.apply(vec![acquire("a", 1), acquire("b", 1)]).await;
        for reply in replies {
            let Reply::Rejected(error) = reply else {
                panic!("without {removed}: {reply:?}");
            };
            assert_unauthorized(&error, removed);
        }
        let left = server.cli(&["EXISTS", "app:{t:a}", "app:{t:b}"]);
        assert_eq!(left, "0", "without {removed}");
    }
}

/// A right that is taken away from a holder stops the operations that need it and no other, and
/// what it stops changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_taken_from_a_holder_harms_no_record() {
    let server = RedisServer::start();
    allow(&server, "");
    let store = open(&server.url_of("alice", "pw")).await;
    let record = || server.cli(&["HGETALL", "app:{t:a}"]);
    for removed in NEEDED {
        applied(&*store, revoke("a")).await;
        granted(&*store, acquire("a", 1)).await;
        let before = record();
        allow(&server, removed);
        for (request, needs) in [
            (
                longer(acquire("a", 1)),
                &["time", "hget", "pttl", "get", "hset", "pexpire"][..],
            ),
            (longer(renew("a", 1)), &["time", "hget", "pttl", "pexpire"]),
            (
                longer(release("a", 1, 2)),
                &["time", "hget", "pttl", "hset", "pexpire"],
            ),
            (release("a", 1, 0), &["time", "hdel"]),
        ] {
            match send(&*store, request).await {
                Reply::Rejected(error) if needs.contains(&removed) => {
                    assert_unauthorized(&error, removed);
                    assert_eq!(record(), before, "without {removed}");
                    let left: i64 = server.cli(&["PTTL", "app:{t:a}"]).parse().unwrap();
                    assert!(left > 0, "without {removed}");
                }
                Reply::Applied { outcome, .. } if !needs.contains(&removed) => match outcome {
                    Outcome::Released { count: 0 } => assert_eq!(record(), ""),
                    Outcome::Released { .. } => {
                        // So that the next one finds what it must not change.
                        server.cli(&["HSET", "app:{t:a}", &lease(1).to_string(), "1"]);
                    }
                    outcome => assert!(!matches!(outcome, Outcome::Lost), "without {removed}"),
                },
                other => panic!("without {removed}: {other:?}"),
            }
        }
        allow(&server, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_revokes_nothing() {
    let server = RedisServer::start();
    allow(&server, "");
    let store = open(&server.url_of("alice", "pw")).await;
    granted(&*store, acquire("a", 1)).await;
    for removed in REVOKE {
        allow(&server, removed);
        let error = rejected(&*store, revoke("a")).await;
        assert_unauthorized(&error, removed);
        assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Renewed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_another_namespace_are_refused() {
    let server = RedisServer::start();
    server.cli(&["ACL", "SETUSER", "alice", "on", ">pw", "~other:*", "+@all"]);
    let store = open(&server.url_of("alice", "pw")).await;
    let error = rejected(&*store, acquire("a", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("~NAMESPACE:*"), "{error}");
    for error in [
        store.inspect(&key("a")).await.unwrap_err(),
        announce(&*store).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_announce_leaves_nothing() {
    let server = RedisServer::start();
    for removed in ["hset", "pexpire"] {
        allow(&server, removed);
        let store = open(&server.url_of("alice", "pw")).await;
        let error = announce(&*store).await.unwrap_err();
        assert_unauthorized(&error, removed);
        assert_eq!(server.cli(&["KEYS", "*"]), "", "{removed}");
    }
}

/// The same request for a ttl that is longer than any before, so that it must be written.
fn longer(mut request: Request) -> Request {
    static NEXT: AtomicU64 = AtomicU64::new(31_000);
    let longer = self::ttl(NEXT.fetch_add(1_000, Ordering::Relaxed));
    match &mut request.op {
        Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } | Op::Release { ttl, .. } => *ttl = longer,
        Op::Revoke => {}
    }
    request
}

async fn announce(store: &dyn Store) -> Result<(), leasehold::Error> {
    let about = leasehold::store::About::default();
    store
        .announce(&space(), lease(1).client, &about, SOON)
        .await
}

fn assert_unauthorized(error: &leasehold::Error, command: &str) {
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    let message = error.to_string();
    assert!(message.contains("allow it"), "{message}");
    assert!(
        message.contains(&command.to_uppercase()),
        "{command}: {message}"
    );
}
