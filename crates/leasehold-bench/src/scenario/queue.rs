//! Readers that wait behind a writer, each of a client of its own: the memory and the work of a Redis server for them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::baseline::redis::RedisBaseline;
use crate::format::round;
use crate::target::{Session, Target};
use crate::usage::Usage;
use crate::{Result, failed};

/// How many readers request the lock at once.
///
/// The server compares each request with the whole queue. With all of them at once, the last replies would exceed the
/// response timeout on a busy machine.
const REQUESTS: usize = 500;

/// How often the length of the queue is read until all wait.
const INTERVAL: Duration = Duration::from_millis(10);

/// The longest time until all wait.
const QUEUED_MAX: Duration = Duration::from_secs(60);

/// Lets so many readers wait, and serves them. `None`: there is no server.
pub(super) async fn measure(
    target: &Target,
    session: &Session,
    readers: u16,
) -> Result<Option<Value>> {
    let Some(server) = session.baseline.server().await? else {
        return Ok(None);
    };
    let settings = server.log_slow_calls().await?;
    let served = serve(target, session, server, readers).await;
    let longest = match settings {
        Some(settings) => server.longest_script_us(settings).await?,
        None => None,
    };
    let [waiting, serving] = served?.map(|usage| usage.server);
    let each = |sum: f64| round(sum / f64::from(readers));
    let us_each = |time: Duration| each(time.as_secs_f64() * 1e6);
    Ok(Some(json!({
        "readers": readers,
        "memory_bytes_each": waiting.map(|stats| each(stats.memory as f64)),
        "server_cpu_us_each": serving.map(|stats| us_each(stats.cpu)),
        "script_us_each": serving.map(|stats| us_each(stats.script_time)),
        "longest_script_us": longest,
    })))
}

/// What is used until all wait, and then until all have read.
async fn serve(
    target: &Target,
    session: &Session,
    server: &RedisBaseline,
    readers: u16,
) -> Result<[Usage; 2]> {
    let name = format!("behind-a-writer/{readers}");
    let before = Usage::now(session).await?;
    let clients: Result<Vec<_>> = (0..readers).map(|_| target.reopen(session)).collect();
    // They end together: each end makes the connection compare its subscriptions with the clients.
    let clients = clients?;
    let writer = session.rw_lock(&name)?.write().await?;
    let mut tasks = JoinSet::new();
    let key = session.key(&name)?;
    let start = Instant::now();
    let mut queued = 0;
    for part in clients.chunks(REQUESTS) {
        for client in part {
            let lock = client.rw_lock(&name)?;
            tasks.spawn(async move { lock.read().await?.release().await });
        }
        queued += part.len() as u32;
        while server.queue_length(&key).await? < queued {
            if let Some(ended) = tasks.try_join_next() {
                ended.map_err(failed("a task of the bench"))??;
            }
            if start.elapsed() > QUEUED_MAX {
                return Err("the readers do not wait in the queue of the server".into());
            }
            sleep(INTERVAL).await;
        }
    }
    let waiting = Usage::now(session).await?;
    writer.release().await?;
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(failed("a task of the bench"))??;
    }
    let served = Usage::now(session).await?;
    Ok([waiting.since(&before), served.since(&waiting)])
}
