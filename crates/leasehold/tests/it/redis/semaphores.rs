//! Semaphores in a server: what a refused command leaves.

use std::num::NonZeroU32;

use leasehold::__private::store::{Claim, Op};

use super::*;

/// One of two permits.
fn permit(number: u64) -> Request {
    let mut request = acquire("a", number);
    if let Op::Acquire(acquire) = &mut request.op {
        acquire.claim = Claim::Permits {
            weight: NonZeroU32::MIN,
            limit: NonZeroU32::new(2).unwrap(),
        };
    }
    request
}

fn is_granted(reply: &Reply) -> bool {
    matches!(outcome(reply), Some(Outcome::Granted { .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory_refuses_no_renewal_and_no_release() {
    let (server, store) = server_and_store().await;
    for number in [1, 2] {
        assert!(is_granted(&send(&*store, permit(number)).await));
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let renewed = send(&*store, renew("a", 1)).await;
    assert_eq!(outcome(&renewed), Some(Outcome::Kept), "{renewed:?}");
    let released = send(&*store, release("a", 2)).await;
    assert_eq!(outcome(&released), Some(Outcome::Released), "{released:?}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(is_granted(&send(&*store, permit(3)).await));
    assert!(!is_granted(&send(&*store, permit(4)).await));
}

/// Its holders are counted again once the first end that was known has come.
#[tokio::test(flavor = "multi_thread")]
async fn holders_that_cannot_be_counted_are_kept() {
    let (server, store) = server_and_store().await;
    for number in [1, 2] {
        assert!(is_granted(&send(&*store, permit(number)).await));
    }
    server.cli(&["HSET", "app:{t:a}", "used", "2 1"]);
    for command in ["hgetall", "hdel"] {
        let denied = format!("-{command}");
        server.cli(&[
            "ACL", "SETUSER", "bob", "reset", "on", ">pw", "~app:*", "&*", "+@all", &denied,
        ]);
        let other = open(&server.url_of("bob", "pw")).await;
        let reply = send(&*other, permit(3)).await;
        assert!(!is_granted(&reply), "{command}: {reply:?}");
        assert_eq!(server.cli(&["EXISTS", "app:{t:a}"]), "1", "{command}");
    }
    for number in [1, 2] {
        let renewed = send(&*store, renew("a", number)).await;
        assert_eq!(outcome(&renewed), Some(Outcome::Kept), "{renewed:?}");
    }
    assert!(!is_granted(&send(&*store, permit(3)).await));
}
