//! The load by waiters while masters refuse or fail.

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
