//! Acquires several locks at once: all or none.
//!
//! A round asks for all of them, without waiting, in one round trip. What is granted up to the first refusal is kept,
//! and what is granted behind it is given back: the locks are waited for in their order, so that no two clients wait
//! for each other. Then that lock is waited for, as any other, and the next round asks for the rest.

use std::sync::Arc;

use super::super::hold::Hold;
use super::super::{Driver, shares};
use super::attempt::{attempt, unless_overtaken};
use super::{AcquireRequest, Acquired, Contender, Wait, no_reply_in_time};
use crate::Result;
use crate::store::{Request, Shard};

/// Acquires locks, which are in their order and have different names. `None`: one of them was not free, and the caller
/// does not wait any longer.
///
/// If it fails or is dropped at any point, nothing stays held.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    requests: &[AcquireRequest],
) -> Result<Option<Vec<Hold>>> {
    let (mut held, mut has_waited) = (Vec::<Hold>::with_capacity(requests.len()), false);
    loop {
        // One was lost while another was waited for. Those behind it are acquired behind it again, in their order.
        if let Some(lost) = held.iter().position(|hold| hold.state().is_lost()) {
            held.truncate(lost);
        }
        let rest = &requests[held.len()..];
        let Some(first) = rest.first() else {
            return Ok(Some(held));
        };
        let asked = round(driver, rest, &mut held);
        let in_time = match first.wait {
            Wait::Until(end) => tokio::select! {
                biased;
                asked = asked => Some(asked),
                () = driver.context.clock.sleep_until(end) => None,
            },
            Wait::No | Wait::Forever => Some(asked.await),
        };
        match in_time {
            Some(asked) => asked?,
            None if has_waited => return Ok(None),
            None => return Err(no_reply_in_time(driver, &first.key)),
        }
        let Some(refused) = requests.get(held.len()) else {
            continue;
        };
        if let Wait::No = refused.wait {
            return Ok(None);
        }
        match super::acquire(driver, refused).await? {
            Acquired::Held(hold, _) => held.push(hold),
            Acquired::Complete(_) | Acquired::Refused => return Ok(None),
        }
        has_waited = true;
    }
}

/// An attempt of a round.
enum Attempt {
    /// The reader has joined others of this process.
    Joined(Hold),
    /// It has posted its request, or will send it.
    Contends(Contender, bool),
    /// This process holds the lock.
    Refused,
}

/// Asks for all locks, and keeps those up to the first that is refused.
async fn round(
    driver: &Arc<Driver>,
    requests: &[AcquireRequest],
    held: &mut Vec<Hold>,
) -> Result<()> {
    let _call = driver.releases.call();
    let attempts = begin(driver, requests)?;
    let mut is_refused = false;
    for (request, attempted) in requests.iter().zip(attempts) {
        let acquired = match attempted {
            Attempt::Joined(hold) => Acquired::Held(hold, None),
            Attempt::Refused => Acquired::Refused,
            Attempt::Contends(contender, past_the_queue) => {
                let waits = !matches!(request.wait, Wait::No);
                match Box::pin(contender.run()).await {
                    Ok(acquired) => unless_overtaken(driver, request, past_the_queue, acquired),
                    // It is waited for as a lock that is held.
                    Err(error) if waits && error.is_transient() => Acquired::Refused,
                    Err(error) => return Err(error),
                }
            }
        };
        match acquired {
            Acquired::Held(hold, _) if !is_refused => held.push(hold),
            // It is dropped, which gives it back.
            Acquired::Held(..) => {}
            Acquired::Complete(_) | Acquired::Refused => is_refused = true,
        }
    }
    Ok(())
}

/// Posts the requests of a round.
fn begin(driver: &Arc<Driver>, requests: &[AcquireRequest]) -> Result<Vec<Attempt>> {
    let mut attempts = Vec::with_capacity(requests.len());
    let (mut posted, mut shards): (Vec<Request>, Vec<(usize, Shard)>) = Default::default();
    for (position, request) in requests.iter().enumerate() {
        driver.check_open(&request.key)?;
        if let Some(hold) = shares::join(driver, &request.key, &request.options) {
            attempts.push(Attempt::Joined(hold));
            continue;
        }
        let Some((contender, past_the_queue)) = attempt(driver, request) else {
            attempts.push(Attempt::Refused);
            continue;
        };
        if let Some((shard, first)) = contender.first_request() {
            posted.push(first);
            shards.push((position, shard));
        }
        attempts.push(Attempt::Contends(contender, past_the_queue));
    }
    let replies = driver.batcher.post_all(posted);
    for ((position, shard), reply) in shards.into_iter().zip(replies) {
        if let Some(Attempt::Contends(contender, _)) = attempts.get_mut(position) {
            contender.posted = Some((shard, reply));
        }
    }
    Ok(attempts)
}
