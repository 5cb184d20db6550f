//! A client that dies frees its locks at once, however it dies; one that does not, does not.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::actor::Actor;
use crate::bed::Bed;

/// So long that nothing in these tests ends by itself.
const LONG: Duration = Duration::from_secs(600);

#[tokio::test(flavor = "multi_thread")]
async fn killed_it_frees_its_locks_at_once() {
    let bed = Bed::make().await;
    let _node = bed.node().await;
    let mut times = Vec::new();
    for round in 0..20 {
        let mut actor = Actor::introduced(&bed);
        let name = format!("lock/{round}");
        bed.acquire(actor.client, 1, &name, LONG).await;
        actor.registers(1, &name, LONG);
        let start = Instant::now();
        actor.signal(Signal::KILL);
        bed.is_free(&name).await;
        times.push(start.elapsed());
        actor.reap();
    }
    times.sort();
    println!(
        "kill -9 to free: median {:?}, worst {:?}",
        times[10], times[19]
    );
}
