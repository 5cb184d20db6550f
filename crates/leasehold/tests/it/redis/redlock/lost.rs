//! Some of the masters are away, fewer than a majority: nobody notices much.

use leasehold_testkit::Restart;

use super::*;

/// What an acquisition may take while a master is away: far less than any time after which a silent
/// server is given up.
const FAST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq)]
enum Away {
    Killed,
    Stopped,
}

fn go(masters: &mut Masters, nth: usize, away: Away) {
    match away {
        Away::Killed => masters.server_mut(nth).kill9(),
        Away::Stopped => masters.server(nth).stop(),
    }
}

fn come_back(masters: &mut Masters, nth: usize, away: Away) {
    match away {
        Away::Killed => masters.server_mut(nth).restart(Restart::Kept),
        Away::Stopped => masters.server(nth).cont(),
    }
}

/// All goes on with these away, and they are used again when they are back.
async fn goes_on_without(count: usize, gone: &[usize], away: Away) {
    let mut masters = Masters::aged(count);
    let [a, b] = [
        client(&short(&masters), TTL).await,
        client(&short(&masters), TTL).await,
    ];
    let held = lock(&a, "held").await;
    let wanted = lock(&a, "wanted").await;
    let waiting = tokio::spawn({
        let mutex = b.mutex("wanted").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    for nth in gone {
        go(&mut masters, *nth, away);
    }
    renewed(&held).await;
    // Handed over from one client to the other.
    let first = wanted.token();
    wanted.release().await.unwrap();
    let wanted = tokio::time::timeout(LONG, waiting).await.unwrap().unwrap();
    assert!(wanted.token() > first);
    let refused = a.mutex("wanted").unwrap().try_lock().await.unwrap();
    assert!(refused.is_none());
    let median = median_of(&b, "free", 101).await;
    assert!(median < FAST, "{median:?}");
    renewed(&held).await;
    assert!(is_held(&held), "{:?}", held.state());

    for nth in gone {
        come_back(&mut masters, *nth, away);
    }
    // Each of them has all that is granted now, by and by.
    let back: Vec<_> = gone.iter().map(|nth| masters.server(*nth)).collect();
    eventually_async(LONG, async || {
        let guard = lock(&b, "again").await;
        let everywhere = records(&back, "again") == back.len();
        guard.release().await.unwrap();
        everywhere
    })
    .await;
    // What was taken without them has come to them too.
    eventually_async(LONG, async || records(&all(&masters), "held") == count).await;
    let token = wanted.token();
    for guard in [held, wanted] {
        assert!(is_held(&guard), "{:?}", guard.state());
        guard.release().await.unwrap();
    }
    assert!(lock(&a, "wanted").await.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_is_killed() {
    goes_on_without(3, &[0], Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_three_is_stopped() {
    goes_on_without(3, &[1], Away::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_are_killed() {
    goes_on_without(5, &[0, 4], Away::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_are_stopped() {
    goes_on_without(5, &[1, 2], Away::Stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_five_is_killed() {
    goes_on_without(5, &[3], Away::Killed).await;
}

/// They have kept all that they have acknowledged. Nobody can tell, so the wait is the same; and then all
/// of them are there to say what they know.
#[tokio::test(flavor = "multi_thread")]
async fn masters_that_are_all_started_again_are_admitted_when_the_wait_is_over() {
    let mut masters = Masters::aged(3);
    let client = client(&short(&masters), TTL).await;
    let guard = lock(&client, "a").await;
    let first = guard.token();
    guard.release().await.unwrap();
    for nth in 0..3 {
        masters.server_mut(nth).restart(Restart::Kept);
    }
    let begun = Instant::now();
    let guard = lock_in_time(&client, "a").await;
    assert!(begun.elapsed() >= TTL, "{:?}", begun.elapsed());
    assert!(guard.token() > first);
    guard.release().await.unwrap();
}
