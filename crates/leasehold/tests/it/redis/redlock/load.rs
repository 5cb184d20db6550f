//! The load by waiters while masters refuse or fail.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// The duration of the wait.
const WAIT: Duration = Duration::from_secs(3);

/// How many requests a waiter may send to a master in that time, with all that belongs to them. A waiter
/// that does not slow down sends several thousand.
const SCRIPTS_MAX: u64 = 300;

/// Waits for a lock that cannot be granted, and counts requests and tasks.
async fn cheap(client: &Client, servers: &[&RedisServer]) {
    let mutex = client.mutex("a").unwrap();
    let before: Vec<_> = servers.iter().map(|server| script_calls(server)).collect();
    let metrics = tokio::runtime::Handle::current().metrics();
    let tasks = || metrics.num_alive_tasks();
    let tasks_before = tasks();
    let waiting = tokio::spawn(async move { mutex.lock_timeout(LONG).await });
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < WAIT {
        most = most.max(tasks().saturating_sub(tasks_before));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!waiting.is_finished());
    for (server, before) in servers.iter().zip(before) {
        let sent = script_calls(server) - before;
        assert!(sent < SCRIPTS_MAX, "{sent} scripts in {WAIT:?}");
        assert!(sent > 0);
    }
    // Each call to a stopped master is a task, and its wait for a connection another one.
    assert!(most < 80, "{most} tasks");
    waiting.abort();
    drop(waiting.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_new_masters() {
    let masters = Masters::start(3);
    let client = client_at(&masters.url(), Duration::from_secs(30)).await;
    cheap(&client, &all(&masters)).await;
    client.shutdown(LONG).await.unwrap();
}

/// The remaining one grants each time, and is sent a release each time. The others have what they granted released when
/// they are back.
#[tokio::test(flavor = "multi_thread")]
async fn while_two_of_three_are_stopped() {
    let masters = Masters::aged(3);
    let client = client_at(&masters.url(), Duration::from_secs(30)).await;
    lock(&client, "a").await.release().await.unwrap();
    for nth in [1, 2] {
        masters.server(nth).stop();
    }
    cheap(&client, &[masters.server(0)]).await;
    for nth in [1, 2] {
        masters.server(nth).cont();
    }
    lock(&client, "a").await.release().await.unwrap();
    client.shutdown(LONG).await.unwrap();
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
}

/// How many clients want one lock, how often it is granted, and how many requests a master may get for each
/// grant. With pauses that do not grow it gets more than a hundred.
const CONTENDERS: usize = 50;
const GRANTS: u64 = 60;
const SCRIPTS_EACH_MAX: u64 = 50;

#[tokio::test(flavor = "multi_thread")]
async fn of_many_contenders_is_bounded_for_each_grant() {
    let masters = Masters::aged(3);
    let granted = Arc::new(AtomicU64::new(0));
    let mut contenders = tokio::task::JoinSet::new();
    for _ in 0..CONTENDERS {
        let client = client_at(&masters.url(), Duration::from_secs(30)).await;
        let granted = Arc::clone(&granted);
        contenders.spawn(async move {
            loop {
                lock(&client, "a").await.release().await.unwrap();
                granted.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let reach = async |grants: u64| {
        eventually_async(LONG * 2, async || granted.load(Ordering::Relaxed) >= grants).await;
        let scripts = script_calls(masters.server(0));
        (granted.load(Ordering::Relaxed), scripts)
    };
    // First they learn how many they are.
    let before = reach(GRANTS).await;
    let after = reach(before.0 + GRANTS).await;
    let each = (after.1 - before.1) / (after.0 - before.0);
    assert!(each <= SCRIPTS_EACH_MAX, "{each} scripts for each grant");
    contenders.shutdown().await;
}

/// How many tasks of each of two clients want one lock, how long they hold it, and how often each client is
/// to get it at least.
const TASKS: usize = 3;
const HOLD: Duration = Duration::from_millis(30);
const GRANTS_EACH: u64 = 5;

/// A release and the next acquisition of the same client leave a moment in which the other is granted the
/// lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_many_tasks_does_not_keep_the_lock() {
    let masters = Masters::aged(3);
    let url = masters.url();
    let granted = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for granted in &granted {
        let client = client_at(&url, Duration::from_secs(30)).await;
        for _ in 0..TASKS {
            let (client, granted) = (client.clone(), Arc::clone(granted));
            tasks.spawn(async move {
                loop {
                    let guard = lock(&client, "a").await;
                    granted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(HOLD).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    let each = || {
        let mut each = granted.iter();
        each.all(|granted| granted.load(Ordering::Relaxed) >= GRANTS_EACH)
    };
    eventually_async(LONG, async || each()).await;
    tasks.shutdown().await;
}
