//! Releases that fail, in virtual time.

use super::*;
use crate::fixture::{at, ms};

const FAILED: ReleaseReply<u32> = ReleaseReply::Failed(0);
const HELD: ReleaseReply<u32> = ReleaseReply::Applied { held: true };
const NOT_HELD: ReleaseReply<u32> = ReleaseReply::Applied { held: false };

fn releases() -> PendingReleases<&'static str, u32> {
    PendingReleases::default()
}

#[test]
fn a_failed_release_is_repeated_until_the_lease_has_expired() {
    let mut releases = releases();
    let number = releases.begin("a", at(30_000), None);
    let (mut now, mut sent) = (at(0), 0);
    while releases.handle_reply(number, FAILED, now, 1.0) == ReleaseProgress::Repeated {
        assert!(releases.has_failed());
        let next = releases.next_timeout().unwrap();
        assert!(next.since(now) >= ms(200), "{now:?} {next:?}");
        now = next;
        assert_eq!(releases.poll(now), [(Some(number), "a")]);
        assert!(!releases.has_failed(), "it is in flight");
        assert_eq!(releases.poll(now), [], "one at a time");
        sent += 1;
    }
    assert!(now >= at(30_000));
    assert!((10..40).contains(&sent), "{sent} at growing intervals");
    assert_eq!(releases.unconfirmed().len(), 0);
    assert!(!releases.has_failed());
    assert_eq!(releases.next_timeout(), None);
}

#[test]
fn the_releases_of_a_shard_are_repeated_together_and_those_of_another_by_themselves() {
    let mut releases = releases();
    let numbers = ["a", "b", "c"].map(|name| releases.begin(name, at(30_000), None));
    let [a, b, c] = numbers;
    releases.handle_reply(a, FAILED, at(0), 1.0);
    releases.handle_reply(b, FAILED, at(100), 1.0);
    releases.handle_reply(c, ReleaseReply::Failed(1), at(150), 1.0);
    assert_eq!(
        releases.poll(at(200)),
        [(Some(a), "a"), (Some(b), "b")],
        "the first interval of their shard"
    );
    releases.handle_reply(a, FAILED, at(210), 1.0);
    assert_eq!(releases.poll(at(1_000)), [(Some(c), "c")]);
    // All releases of a shard have a reply before the next repetition.
    releases.handle_reply(b, HELD, at(1_100), 1.0);
    assert_eq!(releases.next_timeout(), Some(at(1_300)));
    releases.handle_reply(c, HELD, at(1_200), 1.0);
    assert_eq!(releases.poll(at(1_300)), [(Some(a), "a")]);
    releases.handle_reply(a, NOT_HELD, at(1_301), 1.0);
    assert!(!releases.has_failed());
}

#[test]
fn a_request_without_a_reply_is_followed_by_a_late_release() {
    let late = |single| {
        Some(LateRelease {
            at: at(30_000),
            single,
        })
    };
    // Its grant was found: there is no other.
    let mut releases = releases();
    let number = releases.begin("a", at(30_000), late(true));
    releases.handle_reply(number, HELD, at(1), 1.0);
    assert_eq!(releases.next_timeout(), None);
    // It was not found, or there may be another.
    for (single, reply) in [(true, NOT_HELD), (false, HELD)] {
        let number = releases.begin("b", at(30_000), late(single));
        releases.handle_reply(number, reply, at(1), 1.0);
        assert_eq!(releases.unconfirmed().len(), 0, "nobody waits for it");
        assert_eq!(releases.next_timeout(), Some(at(30_000)));
        assert_eq!(releases.poll(at(29_999)), []);
        assert_eq!(releases.poll(at(30_000)), [(None, "b")]);
        assert_eq!(releases.next_timeout(), None);
    }
    // Nor was the release ever confirmed.
    let number = releases.begin("c", at(20_000), late(true));
    let progress = releases.handle_reply(number, FAILED, at(20_000), 1.0);
    assert_eq!(progress, ReleaseProgress::GivenUp);
    assert_eq!(releases.poll(at(30_000)), [(None, "c")]);
}
