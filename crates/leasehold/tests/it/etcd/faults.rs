//! Members that are killed, a cluster that restarts, and a full database.

use leasehold::__private::store::Reply;
use leasehold_core::Outcome;

use super::*;

/// Whichever member is killed, the next one is used, for requests and for messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_killed_is_replaced() {
    let mut cluster = EtcdCluster::options().start(3);
    let [holder, waiter] = StoreClient::two(&cluster.url()).await;
    passes_on(&holder, &waiter, "a").await;
    let leader = cluster.leader();
    for (round, killed) in [leader, (leader + 1) % 3].into_iter().enumerate() {
        cluster.kill9(killed);
        for client in [&holder, &waiter] {
            until_works(&*client.store, "works").await;
            until_wakeup(&*client.store, WakeupMode::Grants).await;
        }
        // They may be told later that they have missed something.
        let name = format!("b{round}");
        holder.acquire(&name, 1).await;
        eventually_async(SOON, async || {
            outcome(&waiter.send(wait(&name, 1)).await).is_some()
        })
        .await;
        eventually_async(SOON, async || {
            outcome(&holder.send(release(&name, 1)).await).is_some()
        })
        .await;
        eventually_async(SOON, async || {
            is_granted(&waiter.send(wait(&name, 1)).await)
        })
        .await;
        waiter.events();
        cluster.restart(killed);
    }
}

/// A member without a leader refuses a request, which is sent again until there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_waits_for_an_election() {
    let mut cluster = EtcdCluster::options().start(3);
    let store = open_patient(&format!("etcd://{}", cluster.host(0))).await;
    granted(&*store, acquire("a", 1)).await;
    cluster.kill9(1);
    cluster.kill9(2);
    eventually_async(SOON, async || {
        let status = cluster.try_ctl(&["endpoint", "status"]);
        status.is_ok_and(|status| status.contains("no leader"))
    })
    .await;
    let renewed = tokio::spawn(async move { applied(&*store, renew("a", 1)).await });
    cluster.restart(1);
    assert_eq!(renewed.await.unwrap(), Outcome::Kept);
}

/// The cluster that replies first is the store. Another one grants nothing, and says what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_cluster_is_refused() {
    let mut first = EtcdCluster::start();
    let other = EtcdCluster::start();
    let url = format!("{},{}", first.url(), other.host(0));
    let store = open(&url).await;
    let token = granted(&*store, acquire("a", 1)).await;
    first.kill9(0);
    eventually_async(SOON, async || match send(&*store, acquire("b", 1)).await {
        Reply::Rejected(error) if error.kind() == ErrorKind::InvalidConfig => {
            assert_error(&error, ErrorKind::InvalidConfig, &["etcd cluster", &url]);
            true
        }
        Reply::Rejected(_) | Reply::Unknown(_) => false,
        granted @ Reply::Applied { .. } => panic!("{granted:?}"),
    })
    .await;
    first.restart(0);
    until_works(&*store, "works").await;
    until_wakeup(&*store, WakeupMode::Grants).await;
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    assert_eq!(applied(&*store, release("a", 1)).await, Outcome::Released);
    assert!(granted(&*store, acquire("a", 2)).await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_survive_a_restart_of_the_cluster() {
    let mut cluster = EtcdCluster::start();
    let store = open(&cluster.url()).await;
    let holder = StoreClient::on(&store, 1);
    let token = holder.acquire("a", 1).await;
    cluster.kill9(0);
    // It may be sent before the end of the connection is seen.
    let error = rejected_or_unknown(&*store, acquire("b", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!(
        (error.lock(), error.store()),
        (Some("b"), Some(&*cluster.url()))
    );
    until_wakeup(&*store, WakeupMode::Nothing).await;
    cluster.restart(0);
    until_works(&*store, "works").await;
    until_wakeup(&*store, WakeupMode::Grants).await;
    assert_eq!(holder.apply(renew("a", 1)).await, Outcome::Kept);
    let other = open(&cluster.url()).await;
    let refused = applied(&*other, acquire("a", 2)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    holder.release("a", 1).await;
    assert!(granted(&*other, acquire("a", 2)).await > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_database_says_how_to_make_room() {
    let options = EtcdCluster::options().argument("--quota-backend-bytes=1000000");
    let cluster = options.start(1);
    let store = open(&cluster.url()).await;
    granted(&*store, acquire("a", 1)).await;
    let value = "x".repeat(100_000);
    let is_full = async || cluster.try_ctl(&["put", "other", &value]).is_err();
    eventually_async(SOON, is_full).await;
    // A mark takes a lease, which a full database refuses in any case.
    let other = open(&cluster.url()).await;
    let error = rejected_or_unknown(&*other, renew("a", 1)).await;
    assert_error(&error, ErrorKind::Store, &["alarm disarm"]);
}
