//! How those are woken who were refused, where a server or a user's rights leave less than all.

use leasehold::store::{Event, WakeupMode};
use leasehold_testkit::{RedisOptions, RedisServer, eventually, eventually_async};

use super::event_log::{Asker, wait, watched};
use super::*;

/// Longer than a store that can tell of changes waits until it does.
const QUIET: Duration = Duration::from_millis(50);

const EVERYTHING: &str = "~app:* &app:* +@all";

/// A server where the user `alice` has these rights.
fn server(options: RedisOptions, rights: &str) -> RedisServer {
    options.acl("alice", "pw", rights).start()
}

/// Without `HELLO`, as servers before 6.0 and some hosted ones.
fn resp2() -> RedisOptions {
    RedisServer::options().config("rename-command HELLO \"\"")
}

/// A client as `alice`, after its first question.
async fn alice(server: &RedisServer, client: u8) -> Asker {
    let asker = Asker::connect(&server.url_of("alice", "pw"), client).await;
    works(&*asker.store).await;
    asker
}

/// Two who want one lock: the queue serves them.
async fn check_grants(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Grants);
    a.take("a", 1).await;
    assert_eq!(b.wait("a", 1).await, 0);
    a.release("a", 1).await;
    b.granted("a", 1).await;
    b.release("a", 1).await;
}

/// Who is refused does not stand in the queue, and is told when the lock is free.
async fn check_changes(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Changes);
    a.take("a", 1).await;
    assert_not_queued(&b).await;
    a.release("a", 1).await;
    b.hears(&Event::Changed(key("a"))).await;
    b.take("a", 2).await;
    assert_not_queued(&a).await;
    // The hint comes for every change, so whoever comes too late asks again, and is told again.
    eventually_async(SOON, async || watched(server) == 2).await;
    a.event_log.take();
    b.ask(renew("a", 2)).await;
    a.hears(&Event::Changed(key("a"))).await;
    assert_not_queued(&a).await;
    eventually_async(SOON, async || watched(server) == 2).await;
    a.event_log.take();
    b.release("a", 2).await;
    a.hears(&Event::Changed(key("a"))).await;
    drop((a, b));
    eventually_async(SOON, async || watched(server) == 0).await;
    check_losses(server, true).await;
}

/// Who is refused hears nothing.
async fn check_nothing(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Nothing);
    a.take("a", 1).await;
    assert_not_queued(&b).await;
    a.release("a", 1).await;
    works(&*b.store).await;
    assert_eq!(b.event_log.take(), []);
    check_losses(server, false).await;
}

async fn check_losses(server: &RedisServer, told: bool) {
    let a = alice(server, 1).await;
    a.take("lost", 1).await;
    if told {
        eventually_async(SOON, async || watched(server) == 1).await;
        server.cli(&["DEL", "app:{t:lost}"]);
        a.hears(&Event::Changed(key("lost"))).await;
    } else {
        server.cli(&["DEL", "app:{t:lost}"]);
        tokio::time::sleep(QUIET).await;
        assert_eq!((watched(server), a.event_log.take()), (0, vec![]));
    }
}

async fn assert_not_queued(asker: &Asker) {
    let refused = asker.ask(wait("a", 9)).await;
    assert!(
        matches!(
            refused,
            Outcome::Refused {
                queue_position: None,
                ..
            }
        ),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_rights() {
    let server = server(RedisServer::options(), EVERYTHING);
    check_grants(&server).await;
    check_losses(&server, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_and_a_unix_socket() {
    for options in [
        RedisServer::options().tls(),
        RedisServer::options().unix_socket(),
    ] {
        let server = options.start();
        let [a, b] = [
            Asker::connect(&server.url(), 1).await,
            Asker::connect(&server.url(), 2).await,
        ];
        a.take("a", 1).await;
        b.wait("a", 1).await;
        a.release("a", 1).await;
        b.granted("a", 1).await;
        server.cli(&["DEL", "app:{t:a}"]);
        assert_eq!(b.ask(renew("a", 1)).await, Outcome::Lost(Loss::Gone));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_right_that_watching_needs() {
    for rights in ["-client", "-client|tracking", "-client|caching"] {
        let rights = format!("{EVERYTHING} {rights}");
        let server = server(RedisServer::options(), &rights);
        check_grants(&server).await;
        check_losses(&server, false).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lacks_a_command() {
    for command in ["LPOS", "PUBLISH", "SUBSCRIBE"] {
        let line = format!("rename-command {command} \"\"");
        check_changes(&server(RedisServer::options().config(&line), EVERYTHING)).await;
        check_nothing(&server(resp2().config(&line), EVERYTHING)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_protocol_takes_two_connections() {
    let server = server(resp2(), EVERYTHING);
    check_grants(&server).await;
    check_losses(&server, false).await;
}

/// Whichever breaks, both are made anew, and it is told once.
#[tokio::test(flavor = "multi_thread")]
async fn the_two_connections_of_the_old_protocol_end_together() {
    let server = server(resp2(), EVERYTHING);
    let [a, b] = [alice(&server, 1).await, alice(&server, 2).await];
    a.take("a", 1).await;
    for kind in ["pubsub", "normal"] {
        b.wait("a", 1).await;
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "USER", "alice"]);
        if kind == "normal" {
            // In this protocol it is noticed when it is used.
            for asker in [&a, &b] {
                send(&*asker.store, asker.own(renew("a", 7))).await;
            }
        }
        for asker in [&a, &b] {
            asker.hears_of_interruption().await;
        }
        // The other one goes, too.
        b.wait("a", 1).await;
        a.ask(renew("a", 1)).await;
        eventually_async(SOON, async || connections(&server) == 4).await;
    }
    a.release("a", 1).await;
    b.granted("a", 1).await;
    drop((a, b));
    eventually_async(SOON, async || connections(&server) == 0).await;
}

/// How many connections `alice` has.
fn connections(server: &RedisServer) -> usize {
    let clients = server.cli(&["CLIENT", "LIST"]);
    clients.matches(" user=alice ").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_protocol_forgets_clients_too() {
    let server = server(resp2(), EVERYTHING);
    let [a, b, c] = [
        alice(&server, 1).await,
        alice(&server, 2).await,
        alice(&server, 3).await,
    ];
    a.take("a", 1).await;
    b.wait("a", 1).await;
    c.wait("a", 1).await;
    b.store.forget(b.lease(1).client);
    eventually_async(SOON, async || {
        server
            .cli(&["PUBSUB", "NUMSUB", &b.channel()])
            .ends_with('0')
    })
    .await;
    a.release("a", 1).await;
    c.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_taken_away_and_given_back_are_noticed() {
    let server = server(RedisServer::options(), EVERYTHING);
    let a = alice(&server, 1).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    // The server cuts those who listen to what they may not.
    server.cli(&["ACL", "SETUSER", "alice", "resetchannels"]);
    a.hears_of_interruption().await;
    a.settle().await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Changes);
    // What was refused for want of a right is tried again with each batch.
    server.cli(&["ACL", "SETUSER", "alice", "&app:*"]);
    works(&*a.store).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    check_grants(&server).await;
}

/// What a server refuses only for the moment is no reason to do without.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_is_asked_again() {
    let server = server(RedisServer::options(), EVERYTHING);
    server.cli(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let a = Asker::connect(&server.url_of("alice", "pw"), 1).await;
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_cli(&["EVAL", "while true do end", "0"]));
        eventually(SOON, || server.try_cli(&["PING"]).is_err());
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            handle.block_on(async {
                let mut told = String::new();
                eventually_async(SOON, async || {
                    if let Reply::Rejected(error) = send(&*a.store, renew("a", 1)).await {
                        told = error.to_string();
                    }
                    !told.is_empty()
                })
                .await;
                assert!(told.contains("busy with a slow script"), "{told}");
            });
        });
        server.cli(&["SCRIPT", "KILL"]);
    });
    works(&*a.store).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    check_grants(&server).await;
    check_losses(&server, true).await;
}
