//! What a person sees who looks.

use std::time::{Duration, SystemTime};

use leasehold::Client;
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};

const SOON: Duration = Duration::from_secs(10);

pub(super) async fn a_holder_is_described(fixture: Fixture) {
    let begun = SystemTime::now();
    let builder = Client::builder().program("report.sh").label("nightly");
    let client = fixture.client_with(builder).await;
    let mutex = client.mutex(fresh_name("described")).unwrap();
    let guard = mutex.lock().await.unwrap();
    let holder = async || mutex.holder().await.unwrap().unwrap();
    // Who a client is travels beside the lock, not with it.
    eventually_async(SOON, async || holder().await.client.is_some()).await;
    let info = holder().await;
    assert_eq!(info.name, mutex.name());
    assert_eq!(info.lease, guard.lease_id());
    assert_eq!(info.token, Some(guard.token()));
    assert_eq!(info.count, 1);
    let since = info.since.unwrap();
    let slack = Duration::from_secs(2);
    assert!(since + slack > begun && since < SystemTime::now() + slack);
    let who = info.client.unwrap();
    assert_eq!(who.pid, std::process::id());
    assert_eq!(
        (who.program.as_str(), who.label.as_str()),
        ("report.sh", "nightly")
    );
    assert!(!who.host.is_empty());
    assert!(who.since + slack > begun);
    guard.release().await.unwrap();
}

pub(super) async fn held_locks_are_listed_by_name(fixture: Fixture) {
    let namespace = fresh_name("list").replace('/', "-");
    let client = fixture
        .client_with(Client::builder().namespace(namespace))
        .await;
    assert!(client.locks().await.unwrap().is_empty());
    let mut guards = Vec::new();
    for name in ["b", "a", "c:token", "ä"] {
        guards.push(client.mutex(name).unwrap().lock().await.unwrap());
    }
    let free = client.mutex("free").unwrap().lock().await.unwrap();
    free.release().await.unwrap();
    let listed = client.locks().await.unwrap();
    let names: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c:token", "ä"]);
    assert!(listed.iter().all(|info| info.token.is_some()));
    client.shutdown(SOON).await.unwrap();
    assert!(client.locks().await.unwrap().is_empty());
}

pub(super) async fn spaces_know_nothing_of_each_other(fixture: Fixture) {
    let name = fresh_name("space");
    let builders = [
        Client::builder(),
        Client::builder().namespace("other"),
        Client::builder().tenant("other"),
    ];
    let mut guards = Vec::new();
    for builder in builders {
        let client = fixture.client_with(builder).await;
        let mutex = client.mutex(&name).unwrap();
        guards.push(mutex.try_lock().await.unwrap().unwrap());
        let listed = client.locks().await.unwrap();
        let ours = listed.iter().filter(|info| info.name == name).count();
        assert_eq!(ours, 1);
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}
