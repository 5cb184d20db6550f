//! Users who lack one right: clear errors, and no partial changes. `conformance::allowed` shows that the rights named
//! by `doctor` are enough.

use leasehold::__private::store::ClientInfo;

use super::*;
use crate::doctor::{self, PASSWORD};
use crate::store_ext::StoreExt as _;

/// The rights that the head of the script names.
const NEEDED: [&str; 7] = ["get", "set", "del", "time", "pexpire", "pttl", "lindex"];

/// A server with a user that has the rights named by `doctor`.
fn server() -> RedisServer {
    let server = RedisServer::start();
    allow(&server, "");
    server
}

/// Gives the user these rights, without one of them.
fn allow(server: &RedisServer, removed: &str) {
    doctor::allow(server, &["app"], &format!("+{removed}"));
}

fn url(server: &RedisServer) -> String {
    server.url_of("leasehold", PASSWORD)
}

/// The operations that need a right are rejected without it, and change nothing; the others are applied. A free lock is
/// granted without the rights that no release needs, because each check would cost every client a command.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_damages_no_record() {
    let server = server();
    for removed in NEEDED {
        let store = open(&url(&server)).await;
        granted(&*store, acquire("a", 1)).await;
        server.cli(&["DEL", "app:{t:free}", "app:{t:free}:token"]);
        allow(&server, removed);
        for (name, request, needs) in [
            ("free", acquire("free", 1), "get set del time"),
            ("a", acquire("a", 1), "time get pttl set"),
            // By the short script.
            ("a", renew("a", 1), "time"),
            ("a", enter("a", 1, 2), "time get pttl set"),
            ("a", release("a", 1), "get del"),
            ("a", revoke("a"), "time get del"),
        ] {
            let needs: Vec<_> = needs.split(' ').collect();
            let key = format!("app:{{t:{name}}}");
            let record = || server.cli(&["GET", &key]);
            let before = record();
            // The short script leaves a renewal that is not longer to the rule.
            server.cli(&["PEXPIRE", &key, "5000"]);
            match send(&*store, request).await {
                Reply::Rejected(error) if needs.contains(&removed) => {
                    assert_unauthorized(&error, removed);
                    assert_eq!(record(), before, "without {removed}");
                    assert_ne!(server.cli(&["PTTL", &key]), "-1", "without {removed}");
                }
                Reply::Applied { outcome, .. } if !needs.contains(&removed) => match outcome {
                    Outcome::Released => assert_eq!(record(), ""),
                    Outcome::Granted { .. } => assert_ne!(record(), ""),
                    _ if name == "free" => panic!("without {removed}: {outcome:?}"),
                    outcome => assert!(!matches!(outcome, Outcome::Lost(_)), "without {removed}"),
                },
                other => panic!("without {removed}: {other:?}"),
            }
        }
        allow(&server, "");
        applied(&*store, revoke("a")).await;
    }
}

/// A call of the rule takes the server three times as long for each renewal, so the calls are short.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_for_low_cost_leases_are_renewed_in_short_calls() {
    let server = server();
    let names: Vec<_> = (0..1_024).map(|nth| format!("lock {nth}")).collect();
    for removed in ["mget", "pexpireat", "exists"] {
        allow(&server, removed);
        let store = open(&url(&server)).await;
        let all = |request: fn(&str) -> Request| {
            store.apply(names.iter().map(|name| request(name)).collect())
        };
        all(|name| acquire(name, 1)).await;
        for round in 0..2 {
            server.cli(&["CONFIG", "RESETSTAT"]);
            for reply in all(|name| renew(name, 1)).await {
                assert_eq!(outcome(&reply), Some(Outcome::Kept), "without {removed}");
            }
            if (removed, round) == ("mget", 0) {
                // Of the short script, which the server does not know, and of the rule, each for 256.
                assert_eq!(script_calls(&server), 2 + 4);
            }
        }
        all(|name| release(name, 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_cost_no_more_after_a_refusal_for_a_moment() {
    let (server, store) = server_and_store().await;
    granted(&*store, acquire("a", 1)).await;
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    rejected(&*store, renew("a", 1)).await;
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    // Of the short script.
    assert_eq!(calls(&server, "mget"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_leaves_the_queue_as_it_was() {
    let server = server();
    let alice = StoreClient::connect(&url(&server), 1).await;
    let other = StoreClient::connect(&server.url(), 2).await;
    let queue = || server.cli(&["LRANGE", "app:{t:a}:queue", "0", "-1"]);
    works(&*alice.store).await;
    let refused = async |request: Request, command: &str| {
        allow(&server, command);
        let before = queue();
        let error = alice.rejected(request).await;
        assert_unauthorized(&error, command);
        assert!(error.to_string().contains("app:{t:a}"), "{error}");
        assert_eq!(queue(), before, "without {command}");
        allow(&server, "");
    };
    let lost = TAKEN_OVER;

    other.acquire("a", 1).await;
    other.wait("a", 2).await;
    for removed in ["lpos", "rpush"] {
        refused(wait("a", 1), removed).await;
    }
    alice.wait("a", 1).await;
    for removed in ["lpos", "lrem"] {
        refused(release("a", 1), removed).await;
    }

    allow(&server, "ltrim");
    assert_eq!(other.apply(renew("a", 2)).await, lost);
    other.release("a", 1).await;
    let grant = alice.granted("a", 1).await;
    other.wait("a", 3).await;
    // The release works, and the waiter is granted the lock by the next request of a user with the right.
    alice.release("a", 1).await;
    refused(acquire("a", 2), "ltrim").await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}"]), "0");
    assert_eq!(queue().lines().count(), 2);
    assert_eq!(alice.apply(renew("a", 2)).await, lost);
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
            let advice = "leasehold doctor --namespace app prints the line that allows them";
            assert_error(&error, ErrorKind::Unauthorized, &[advice]);
        }
        // The requests of holders need none of them.
        assert_eq!(alice.apply(renew("a", 1)).await, FREE);
        server.cli(&["ACL", "SETUSER", "alice", "&app:*", "+@all"]);
        alice.acquire("a", 1).await;
        alice.release("a", 1).await;
    }
}

/// Namespaces share a connection. The user `alice` of these servers has no channels of the namespace `other`.
pub(super) async fn check_namespaces(store: &Arc<dyn Store>, servers: &[RedisServer]) {
    let servers = servers.iter();
    let all = |command: &[&str]| {
        servers
            .clone()
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
    let server = server();
    let alice = StoreClient::connect(&url(&server), 1).await;
    let other = StoreClient::connect(&server.url(), 2).await;
    alice.acquire("a", 1).await;
    other.wait("a", 1).await;
    allow(&server, "publish");
    alice.release("a", 1).await;
    assert_eq!(server.cli(&["KEYS", "*"]), "app:{t:a}:token");
}

/// As with an older ACL line: messages are counted instead.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_count_subscribers_dead_waiters_are_passed_over() {
    let server = server();
    allow(&server, "pubsub|numsub");
    let url = url(&server);
    let [alice, bob, gone] = [1, 2, 3].map(|client| StoreClient::connect(&url, client));
    let (alice, bob, gone) = tokio::join!(alice, bob, gone);
    alice.acquire("a", 1).await;
    gone.wait("a", 1).await;
    queue_dead(&server, "a", 0..1_000);
    assert_eq!(bob.wait("a", 1).await, 1_001);
    let channel = gone.channel();
    drop(gone);
    eventually_async(SOON, async || {
        server.cli(&["PUBSUB", "NUMSUB", &channel]).ends_with('0')
    })
    .await;
    alice.release("a", 1).await;
    bob.granted_behind_dead("a", 1, &alice).await;
    assert_eq!(server.cli(&["EXISTS", "app:{t:a}:queue"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_another_namespace_are_refused() {
    let server = RedisServer::options().acl("alice", "pw", "~other:* +@all");
    let server = server.start();
    let store = open(&server.url_of("alice", "pw")).await;
    let error = rejected(&*store, acquire("a", 1)).await;
    assert!(error.to_string().contains("~NAMESPACE:*"), "{error}");
    for error in [
        error,
        store.inspect(&key("a")).await.unwrap_err(),
        register(&*store).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    }
}

async fn register(store: &dyn Store) -> Result<(), Error> {
    let request = ClientInfo::default().describe(&space(), lease(1).client, SOON);
    store.request(&request.key, request.op).await.map(drop)
}

fn assert_unauthorized(error: &Error, command: &str) {
    let parts = ["leasehold doctor prints", &command.to_uppercase()];
    assert_error(error, ErrorKind::Unauthorized, &parts);
}
