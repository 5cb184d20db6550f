//! A master that wakes after a failover: for seconds it takes itself for the master still.

use leasehold::store::{self, Event, OpenOptions};
use leasehold_testkit::eventually_async;

use super::super::event_log::wait;
use super::*;

/// How many locks are asked for while the old master is writable.
const ASKED: u64 = 200;

/// A set whose first master was stopped until another had its place.
fn asleep() -> (SentinelSet, usize) {
    let set = SentinelSet::start();
    set.until_in_sync();
    let master = set.master();
    (set, master)
}

fn is_writable(server: &RedisServer) -> bool {
    server.cli(&["SET", "probe", "1"]) == "OK"
}

/// Nothing is asked between the failover and its waking: the connection must be over by itself.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_granted_there() {
    let (set, old) = asleep();
    let asker = Asker::connect(&set.url(), 1).await;
    asker.settle().await;
    asker.event_log.take();
    assert_eq!(set.stop_master(), old);
    let new = set.master_after(old);
    asker.hears_of_interruption().await;
    set.servers()[old].cont();
    let late = open(&set.url()).await;
    for number in 0..ASKED {
        granted(&*asker.store, acquire(&format!("a/{number}"), 1)).await;
        granted(&*late, acquire(&format!("b/{number}"), 1)).await;
    }
    assert!(
        is_writable(&set.servers()[old]),
        "the old master was demoted too early to prove much"
    );
    assert_eq!(records(&set.servers()[old]), Vec::<String>::new());
    assert_eq!(
        records(&set.servers()[new]).len(),
        2 * usize::try_from(ASKED).unwrap()
    );
}

/// What was sent before the failover and is answered after it counts for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_ends_with_the_failover() {
    let (set, old) = asleep();
    let options = OpenOptions::default().with_response_timeout(Duration::from_secs(600));
    let store = store::open(&set.url(), &options).await.unwrap();
    works(&*store).await;
    assert_eq!(set.stop_master(), old);
    let asked = tokio::spawn({
        let store = Arc::clone(&store);
        async move { send(&*store, acquire("late", 1)).await }
    });
    set.master_after(old);
    let reply = tokio::time::timeout(FAILOVER, asked)
        .await
        .unwrap()
        .unwrap();
    let Reply::Unknown(error) = reply else {
        panic!("{reply:?}");
    };
    assert!(error.to_string().contains("name another master"), "{error}");
    set.servers()[old].cont();
    // It runs there all the same, and nobody believes in it.
    eventually_async(SOON, async || !records(&set.servers()[old]).is_empty()).await;
    assert!(is_writable(&set.servers()[old]));
    eventually_granted(&*store, acquire("late", 2)).await;
}

/// Whoever waited there may be granted the lock there by a holder that sees no other master.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_hears_of_a_grant_there() {
    let (set, old) = asleep();
    let there = format!("redis://127.0.0.1:{}", set.servers()[old].port());
    let holder = Asker::connect(&there, 1).await;
    holder.take("a", 1).await;
    let waiter = Asker::connect(&set.url(), 2).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    set.until_in_sync();
    assert_eq!(set.stop_master(), old);
    let new = set.master_after(old);
    waiter.hears_of_interruption().await;
    set.servers()[old].cont();
    eventually_async(SOON, async || {
        let asked = holder
            .store
            .apply(vec![holder.own(release("a", 1, 0))])
            .await;
        matches!(asked[0], Reply::Applied { .. })
    })
    .await;
    assert!(is_writable(&set.servers()[old]));
    let heard = waiter.event_log.take();
    assert!(
        !heard.iter().any(|event| matches!(event, Event::Notice(..))),
        "{heard:?}"
    );
    // By the new master the holder has it still.
    let refused = send(&*waiter.store, waiter.own(wait("a", 1))).await;
    assert!(
        matches!(
            refused,
            Reply::Applied {
                outcome: Outcome::Refused { .. },
                ..
            }
        ),
        "{refused:?}"
    );
    assert_eq!(records(&set.servers()[new]).len(), 1);
}
