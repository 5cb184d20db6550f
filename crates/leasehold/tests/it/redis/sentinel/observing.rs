//! Observers live through failovers.

use super::*;
use crate::redis::annotations::{VALUE, annotate};
use crate::redis::observing::{noticed, observe, until_held_by};
use crate::store_ext::StoreExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_goes_on_after_a_failover() {
    let mut set = SentinelSet::start();
    set.until_in_sync();
    let [store, other] = [open(&set.url()).await, open(&set.url()).await];
    let key = key("a");
    granted(&*other, acquire("a", 1)).await;
    assert_eq!(annotate(&*other, &key, 1, "one").await.unwrap(), Ok(()));
    until_held_by(&*store, &key, lease(1)).await;
    set.until_in_sync();
    // First ordered, then by a crash.
    for number in 2..4 {
        let observation = observe(&*store, &key).await;
        let old = match number {
            2 => set.order_failover(),
            _ => set.kill_master(),
        };
        set.master_after(old);
        // Noticed although nobody changes the name.
        noticed(observation).await;
        let text = async || {
            let observed = store.observe(&key, &VALUE).await.ok();
            let annotation = observed.and_then(|observation| observation.annotation);
            annotation.map(|annotation| annotation.text.to_string())
        };
        eventually_async(LONG, async || text().await.as_deref() == Some("one")).await;
        eventually_applied(&*other, revoke("a")).await;
        let observing = until_held_by(&*store, &key, lease(number));
        let acquiring = eventually_applied(&*other, acquire("a", number));
        tokio::join!(observing, acquiring);
        if number == 2 {
            set.until_in_sync();
        }
    }
}
