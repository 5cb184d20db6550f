//! Users who lack one right: clear errors, and no partial changes.

use leasehold::ErrorKind;

use super::*;

/// The rights without which no lock is granted.
const NEEDED: [&str; 4] = ["get", "set", "del", "time"];

/// The rights that are not tried before a grant.
const HOLDING: [&str; 3] = ["pexpire", "pttl", "lindex"];

/// The further rights for the queue.
const QUEUE: [&str; 8] = [
    "lpos",
    "rpush",
    "lrem",
    "ltrim",
    "publish",
    "pubsub|numsub",
    "subscribe",
    "unsubscribe",
];

/// The further rights for plain operations and renewals at low cost. `EXISTS` is also needed to track keys.
const LOW_COST: [&str; 2] = ["mget", "exists"];

/// The further rights for key tracking.
const TRACKING: [&str; 2] = ["client|tracking", "client|caching"];

/// The rights to revoke.
const REVOKE: [&str; 2] = ["get", "del"];

/// A server on which `alice` may do only what locks need, without `removed`.
fn allow(server: &RedisServer, removed: &str) {
    let commands = ["evalsha", "eval", "hset"].iter().chain(&NEEDED);
    let commands = commands.chain(&HOLDING).chain(&QUEUE);
    let commands = commands.chain(&LOW_COST).chain(&TRACKING);
    let rules: Vec<_> = commands
        .filter(|command| **command != removed)
        .map(|command| format!("+{command}"))
        .collect();
    let mut acl = vec!["ACL", "SETUSER", "alice", "reset", "on", ">pw"];
    acl.extend(["~app:*", "&app:*"]);
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
    let [a, b] = [1, 2].map(|client| StoreClient::on(&store, client));
    a.acquire("b", 1).await;
    b.wait("b", 1).await;
    b.wait("b", 2).await;
    assert_eq!(
        b.apply(release("b", 1, 0)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    a.release("b", 1).await;
    b.granted("b", 2).await;
    a.unsubscribe();
    works(&*store).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_for_low_cost_leases_are_renewed_too() {
    let server = RedisServer::start();
    for removed in LOW_COST {
        allow(&server, removed);
        let store = open(&server.url_of("alice", "pw")).await;
        let names = ["a", "b"];
        for name in names {
            granted(&*store, acquire(name, 1)).await;
        }
        for _ in 0..2 {
            let replies = store.apply(names.map(|name| renew(name, 1)).into()).await;
            for reply in &replies {
                assert_eq!(outcome(reply), Some(Outcome::Renewed), "without {removed}");
            }
        }
        for name in names {
            applied(&*store, release(name, 1, 0)).await;
        }
    }
}

/// A call of the rule takes the server three times as long for each of them.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_for_low_cost_renewals_are_split_into_short_calls() {
    let server = RedisServer::start();
    allow(&server, "mget");
    let store = open(&server.url_of("alice", "pw")).await;
    let names: Vec<_> = (0..1_024).map(|nth| format!("lock {nth}")).collect();
    store
        .apply(names.iter().map(|name| acquire(name, 1)).collect())
        .await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let renewals = names.iter().map(|name| renew(name, 1));
    for reply in store.apply(renewals.collect()).await {
        assert_eq!(outcome(&reply), Some(Outcome::Renewed));
    }
    // Of the short script and of the rule, each for 256.
    assert_eq!(script_calls(&server), 4 + 4);
}

/// A free lock is granted without it, because the check would cost every client a command.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_set_an_expiry_leases_are_released_but_not_renewed() {
    let server = RedisServer::start();
    allow(&server, "pexpire");
    let store = open(&server.url_of("alice", "pw")).await;
    granted(&*store, acquire("a", 1)).await;
    assert_unauthorized(&rejected(&*store, renew("a", 1)).await, "pexpire");
    let released = applied(&*store, release("a", 1, 0)).await;
    assert_eq!(released, Outcome::Released { count: 0 });
}

/// The operations that need the right are rejected, and change nothing; the others are applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_taken_from_a_holder_damages_no_record() {
    let server = RedisServer::start();
    allow(&server, "");
    let record = || server.cli(&["GET", "app:{t:a}"]);
    for removed in NEEDED.into_iter().chain(HOLDING) {
        let store = open(&server.url_of("alice", "pw")).await;
        applied(&*store, revoke("a")).await;
        granted(&*store, acquire("a", 1)).await;
        let before = record();
        allow(&server, removed);
        for (request, needs) in [
            (acquire("a", 1), &["time", "get", "pttl", "set"][..]),
            // The fast path does without the others.
            (renew("a", 1), &["time", "pexpire"]),
            (release("a", 1, 2), &["time", "get", "pttl", "set"]),
            (release("a", 1, 0), &["get", "del"]),
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
                        server.cli(&["SET", "app:{t:a}", &before, "KEEPTTL"]);
                    }
                    outcome => assert!(!matches!(outcome, Outcome::Lost(_)), "without {removed}"),
                },
                other => panic!("without {removed}: {other:?}"),
            }
        }
        allow(&server, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_leaves_the_queue_as_it_was() {
    let server = RedisServer::start();
    allow(&server, "");
    let alice = StoreClient::connect(&server.url_of("alice", "pw"), 1).await;
    let other = StoreClient::connect(&server.url(), 2).await;
    let queue = || server.cli(&["LRANGE", "app:{t:a}:queue", "0", "-1"]);
    works(&*alice.store).await;
    let refused = async |request: Request, command: &str| {
        let error = alice.rejected(request).await;
        assert_unauthorized(&error, command);
        assert!(error.to_string().contains("app:{t:a}"), "{error}");
    };

    other.acquire("a", 1).await;
    other.wait("a", 2).await;
    let before = queue();
    for removed in ["lpos", "rpush"] {
        allow(&server, removed);
        refused(wait("a", 1), removed).await;
        assert_eq!(queue(), before, "without {removed}");
    }
    allow(&server, "");
    alice.wait("a", 1).await;
    let before = queue();
    for removed in ["lpos", "lrem"] {
        allow(&server, removed);
        refused(release("a", 1, 0), removed).await;
        assert_eq!(queue(), before, "without {removed}");
    }

    allow(&server, "ltrim");
    assert_eq!(
        other.apply(renew("a", 2)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    other.release("a", 1).await;
    let grant = alice.granted("a", 1).await;
    other.wait("a", 3).await;
    // The release works, and the waiter is granted the lock by the next request of a user with the right.
    alice.release("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}"]), "0");
    refused(acquire("a", 2), "ltrim").await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}"]), "0");
    assert_eq!(queue().lines().count(), 2);
    allow(&server, "");
    assert_eq!(
        alice.apply(renew("a", 2)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    assert!(other.granted("a", 3).await.first > grant.first);
}

/// Without notifications it would wait behind all others, and its releases would notify none.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_notifications_is_granted_nothing_until_they_are_allowed() {
    for rights in [
        "~app:* resetchannels +@all",
        "~app:* &other:* +@all",
        "~app:* &app:* +@all -subscribe",
        "~app:* &app:* +@all -publish",
        "~app:* &app:* +@all -lpos",
    ] {
        let server = RedisServer::options().acl("alice", "pw", rights).start();
        let alice = StoreClient::connect(&server.url_of("alice", "pw"), 1).await;
        for request in [acquire("a", 1), wait("a", 1)] {
            let error = alice.rejected(request).await;
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{rights}: {error}");
            let message = error.to_string();
            assert!(message.contains("allow them"), "{rights}: {message}");
            assert!(message.contains("leasehold doctor"), "{rights}: {message}");
        }
        // The requests of holders need none of them.
        assert_eq!(alice.apply(renew("a", 1)).await, Outcome::Lost(Loss::Gone));
        server.cli(&["ACL", "SETUSER", "alice", "&app:*", "+@all"]);
        alice.acquire("a", 1).await;
        alice.release("a", 1).await;
    }
}

/// Namespaces share a connection. The user `alice` of these servers has no channels of the namespace `other`.
pub(super) async fn check_namespaces(store: &Arc<dyn Store>, servers: &[RedisServer]) {
    let all = |command: &[&str]| {
        servers
            .iter()
            .map(|server| server.cli(command))
            .collect::<String>()
    };
    let other = keyspace("other", "t");
    let [a, b] = [1, 2].map(|number| StoreClient::on(store, number));
    let c = StoreClient::in_space(store, &other, 3);
    let elsewhere = |request: Request| {
        let key = other.key(request.key.name.clone());
        Request::new(key, c.own(request).op)
    };
    // In a cluster both keys are in one slot, so that one batch goes to one node.
    let batch = vec![a.own(acquire("a", 1)), elsewhere(acquire("a", 1))];
    let replies = store.apply(batch).await;
    let [Reply::Applied { .. }, Reply::Rejected(error)] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert_eq!(b.wait("a", 1).await, 0);
    // The missing right is not tried again for another namespace.
    all(&["ACL", "LOG", "RESET"]);
    a.release("a", 1).await;
    b.granted("a", 1).await;
    assert_eq!(all(&["ACL", "LOG"]), "");
    rejected(&**store, elsewhere(wait("a", 1))).await;
    all(&["ACL", "SETUSER", "alice", "&other:*"]);
    granted(&**store, elsewhere(acquire("a", 1))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_without_channels_does_not_keep_another_from_its_locks() {
    let old_protocol = RedisServer::options().config("rename-command HELLO \"\"");
    for options in [RedisServer::options(), old_protocol] {
        let rights = "~app:* ~other:* &app:* +@all";
        let server = options.acl("alice", "pw", rights).start();
        let store = open(&server.url_of("alice", "pw")).await;
        check_namespaces(&store, &[server]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_the_right_to_publish_frees_the_lock_and_grants_to_no_waiter() {
    let server = RedisServer::start();
    allow(&server, "");
    let alice = StoreClient::connect(&server.url_of("alice", "pw"), 1).await;
    let other = StoreClient::connect(&server.url(), 2).await;
    alice.acquire("a", 1).await;
    other.wait("a", 1).await;
    allow(&server, "publish");
    alice.release("a", 1).await;
    assert_eq!(server.cli(&["KEYS", "*"]), "app:{t:a}:token");
}

/// As with an older ACL line.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_count_subscribers_messages_are_counted() {
    let server = RedisServer::start();
    allow(&server, "pubsub|numsub");
    let url = server.url_of("alice", "pw");
    let alice = StoreClient::connect(&url, 1).await;
    let bob = StoreClient::connect(&url, 2).await;
    let gone = StoreClient::connect(&url, 3).await;
    alice.acquire("a", 1).await;
    gone.wait("a", 1).await;
    bob.wait("a", 1).await;
    let channel = gone.channel();
    drop(gone);
    eventually_async(SOON, async || {
        server.cli(&["PUBSUB", "NUMSUB", &channel]).ends_with('0')
    })
    .await;
    alice.release("a", 1).await;
    bob.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_count_subscribers_many_dead_waiters_are_passed_over() {
    let server = RedisServer::start();
    allow(&server, "pubsub|numsub");
    let url = server.url_of("alice", "pw");
    let [alice, bob] = [1, 2].map(|client| StoreClient::connect(&url, client));
    let (alice, bob) = tokio::join!(alice, bob);
    alice.acquire("a", 1).await;
    queue_dead(&server, "a", 0..1_000);
    assert_eq!(bob.wait("a", 1).await, 1_000);
    alice.release("a", 1).await;
    bob.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
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
        register(&*store).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_info_that_may_not_be_written_leaves_nothing() {
    let server = RedisServer::start();
    for removed in ["hset", "pexpire"] {
        allow(&server, removed);
        let store = open(&server.url_of("alice", "pw")).await;
        let error = register(&*store).await.unwrap_err();
        assert_unauthorized(&error, removed);
        assert_eq!(server.cli(&["KEYS", "*"]), "", "{removed}");
    }
}

async fn register(store: &dyn Store) -> Result<(), leasehold::Error> {
    let info = leasehold::store::ClientInfo::default();
    store
        .register_client(&space(), lease(1).client, &info, SOON)
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
