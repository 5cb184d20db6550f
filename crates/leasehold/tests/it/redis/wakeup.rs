//! How refused clients are notified where a server lacks commands or a user lacks rights.

use leasehold::__private::store::WakeupMode;
use leasehold_testkit::RedisOptions;

use super::transient::while_busy;
use super::*;

/// Longer than a store waits before it has keys tracked.
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

/// A client as `alice`, after its first request.
async fn alice(server: &RedisServer, client: u8) -> StoreClient {
    let client = StoreClient::connect(&server.url_of("alice", "pw"), client).await;
    works(&*client.store).await;
    client
}

/// The queue serves two clients of one lock.
async fn check_grants(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Grants);
    // `until_tracked` changes this lock: a reading that comes too late would leave its key tracked.
    passes_on(&a, &b, "works").await;
}

/// A refused client does not join the queue, and is notified when the lock is free.
async fn check_changes(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Changes);
    a.acquire("a", 1).await;
    b.is_not_queued(wait("a", 9)).await;
    a.release("a", 1).await;
    b.until_changed("a").await;
    b.acquire("a", 2).await;
    a.is_not_queued(wait("a", 9)).await;
    // The hint comes with every change, so a client that is too late is notified again.
    until_tracked(server, 2).await;
    a.events();
    b.apply(renew("a", 2)).await;
    a.until_changed("a").await;
    a.is_not_queued(wait("a", 9)).await;
    until_tracked(server, 2).await;
    a.events();
    b.release("a", 2).await;
    a.until_changed("a").await;
    drop((a, b));
    until_tracked(server, 0).await;
    check_losses(server, true).await;
}

/// A refused client is not notified.
async fn check_nothing(server: &RedisServer) {
    let [a, b] = [alice(server, 1).await, alice(server, 2).await];
    assert_eq!(b.store.capabilities().wakeup, WakeupMode::Nothing);
    a.acquire("a", 1).await;
    b.is_not_queued(wait("a", 9)).await;
    a.release("a", 1).await;
    works(&*b.store).await;
    assert_eq!(b.events(), []);
    check_losses(server, false).await;
}

async fn check_losses(server: &RedisServer, notified: bool) {
    let a = alice(server, 1).await;
    a.acquire("lost", 1).await;
    if notified {
        until_tracked(server, 1).await;
        server.cli(&["DEL", "app:{t:lost}"]);
        a.until_changed("lost").await;
    } else {
        server.cli(&["DEL", "app:{t:lost}"]);
        tokio::time::sleep(QUIET).await;
        assert_eq!((tracked(server), a.events()), (0, vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_right_for_key_tracking() {
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

/// After the end of either both are replaced, and that is reported once.
#[tokio::test(flavor = "multi_thread")]
async fn the_two_connections_of_the_old_protocol_end_together() {
    let server = server(resp2(), EVERYTHING);
    let [a, b] = [alice(&server, 1).await, alice(&server, 2).await];
    a.acquire("a", 1).await;
    for kind in ["pubsub", "normal"] {
        b.wait("a", 1).await;
        server.cli(&["CLIENT", "KILL", "TYPE", kind, "USER", "alice"]);
        if kind == "normal" {
            // In this protocol it is noticed when it is used.
            for client in [&a, &b] {
                client.send(renew("a", 7)).await;
            }
        }
        for client in [&a, &b] {
            client.until_interrupted().await;
        }
        // The other one also ends.
        b.wait("a", 1).await;
        a.apply(renew("a", 1)).await;
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
    let (a, b) = (alice(&server, 1).await, alice(&server, 2).await);
    let c = alice(&server, 3).await;
    a.acquire("a", 1).await;
    b.wait("a", 1).await;
    c.wait("a", 1).await;
    b.unsubscribe();
    let channel = b.channel();
    let unsubscribed = async || server.cli(&["PUBSUB", "NUMSUB", &channel]).ends_with('0');
    eventually_async(SOON, unsubscribed).await;
    a.release("a", 1).await;
    c.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_revoked_and_restored_are_noticed() {
    let server = server(RedisServer::options(), EVERYTHING);
    let a = alice(&server, 1).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    // The server closes connections with forbidden subscriptions.
    server.cli(&["ACL", "SETUSER", "alice", "resetchannels"]);
    a.until_interrupted().await;
    a.settle().await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Changes);
    // A subscription without a right is tried again with each batch.
    server.cli(&["ACL", "SETUSER", "alice", "&app:*"]);
    works(&*a.store).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    check_grants(&server).await;
}

/// A feature that a server refuses for the moment is tried again.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_is_tried_again() {
    let server = server(RedisServer::options(), EVERYTHING);
    let a = StoreClient::connect(&server.url_of("alice", "pw"), 1).await;
    while_busy(&server, async || {
        let error = a.rejected(renew("a", 1)).await.to_string();
        assert!(error.contains("busy with a slow script"), "{error}");
        server.cli(&["SCRIPT", "KILL"]);
    });
    works(&*a.store).await;
    assert_eq!(a.store.capabilities().wakeup, WakeupMode::Grants);
    check_grants(&server).await;
    // The server may track keys of this client.
    drop(a);
    until_tracked(&server, 0).await;
    check_losses(&server, true).await;
}
