use super::*;
use crate::fixture::at;

/// The result of each reading is its number.
type Numbers = Reading<u64>;

fn state(result: u64) -> ReadReply<u64> {
    ReadReply::State {
        result,
        pushes: true,
        time_left: None,
    }
}

/// Readings whose first one has its reply, and their first observer, who waits.
fn read() -> (Numbers, Subscription) {
    let mut reading = Numbers::new(at(0));
    let mut observer = reading.subscribe();
    assert_eq!(reading.next(&mut observer, at(0)), None);
    assert_eq!(reading.poll(at(0)), ReadAction::Read);
    reading.handle_reply(state(1), at(1));
    assert_eq!(reading.next(&mut observer, at(1)), Some(Update::Read(1)));
    assert_eq!(reading.next(&mut observer, at(1)), None);
    (reading, observer)
}

#[test]
fn a_change_is_read_if_an_observer_waits_for_it() {
    let (mut reading, mut observer) = read();
    assert_eq!(reading.poll(at(100)), ReadAction::Wait);
    reading.handle_push();
    assert_eq!(reading.poll(at(100)), ReadAction::Read);
    reading.handle_reply(state(2), at(101));
    reading.handle_push();
    assert_eq!(reading.poll(at(200)), ReadAction::Wait);
    assert_eq!(reading.next_timeout(), None);
    assert_eq!(reading.next(&mut observer, at(300)), Some(Update::Read(2)));
    assert_eq!(reading.next(&mut observer, at(300)), None);
    assert_eq!(reading.poll(at(300)), ReadAction::Read);
    // Its reply is newer than this push.
    reading.handle_push();
    reading.handle_reply(state(3), at(301));
    assert_eq!(reading.next(&mut observer, at(301)), Some(Update::Read(3)));
    assert_eq!(reading.next(&mut observer, at(301)), None);
    assert_eq!(reading.poll(at(400)), ReadAction::Wait);
}

#[test]
fn the_first_result_of_an_observer_began_after_its_subscription() {
    let (mut reading, mut first) = read();
    // At once, although nothing has changed.
    let mut second = reading.subscribe();
    assert_eq!(reading.next(&mut second, at(100)), None);
    assert_eq!(reading.poll(at(100)), ReadAction::Read);
    // The reading in flight began before.
    let mut third = reading.subscribe();
    reading.handle_reply(state(2), at(101));
    for observer in [&mut first, &mut second] {
        assert_eq!(reading.next(observer, at(101)), Some(Update::Read(2)));
    }
    assert_eq!(reading.next(&mut third, at(101)), None);
    assert_eq!(reading.poll(at(101)), ReadAction::Read);
    reading.handle_reply(state(3), at(102));
    for observer in [&mut first, &mut second, &mut third] {
        assert_eq!(reading.next(observer, at(102)), Some(Update::Read(3)));
    }
    assert_eq!(reading.poll(at(103)), ReadAction::Wait);
}

#[test]
fn a_name_is_read_again_at_the_end_of_its_lease_and_now_and_then() {
    for (pushes, time_left, interval) in [
        (true, None, READ_INTERVAL_MAX),
        (false, None, POLL_INTERVAL),
        (true, Some(Duration::from_secs(60)), READ_INTERVAL_MAX),
        (
            true,
            Some(Duration::from_secs(9)),
            Duration::from_secs(9) + time::DRIFT_MIN,
        ),
    ] {
        let (mut reading, mut observer) = read();
        reading.handle_push();
        assert_eq!(reading.poll(at(100)), ReadAction::Read);
        let reply = ReadReply::State {
            result: 2,
            pushes,
            time_left,
        };
        reading.handle_reply(reply, at(100));
        assert!(reading.next(&mut observer, at(100)).is_some());
        assert!(reading.next(&mut observer, at(100)).is_none());
        let next = at(100).after(interval);
        assert_eq!(reading.next_timeout(), Some(next));
        let before = next.before(Duration::from_nanos(1));
        assert_eq!(reading.poll(before), ReadAction::Wait);
        assert_eq!(reading.poll(next), ReadAction::Read);
    }
}

/// How many readings of a name that changes all the time begin in 100 ms, if a pause passes on the clock or not.
fn readings(clock_runs: bool) -> (u32, Duration) {
    let (mut reading, mut observer) = read();
    let (mut now, mut real, mut count) = (at(1_000), Duration::ZERO, 0);
    while real < Duration::from_millis(100) {
        reading.handle_push();
        match reading.poll(now) {
            ReadAction::Read => {
                count += 1;
                reading.handle_reply(state(2), now);
                assert!(reading.next(&mut observer, now).is_some());
                assert!(reading.next(&mut observer, now).is_none());
            }
            ReadAction::Pause(pause) => {
                assert!(pause <= READ_INTERVAL_MIN);
                real += pause;
                now = if clock_runs { now.after(pause) } else { now };
                reading.end_pause();
            }
            ReadAction::Wait => panic!("it has changed"),
        }
    }
    (count, real)
}

#[test]
fn a_name_that_changes_all_the_time_is_read_at_a_limited_pace() {
    for clock_runs in [true, false] {
        let (count, real) = readings(clock_runs);
        assert_eq!(count, READ_BURST + 20 - 1, "{real:?}");
    }
}

#[test]
fn new_observers_are_not_delayed_and_do_not_delay_a_change_for_longer() {
    let (mut reading, mut observer) = read();
    for number in 2..20 {
        let _ = reading.subscribe();
        assert_eq!(reading.poll(at(1)), ReadAction::Read);
        reading.handle_reply(state(number), at(1));
    }
    assert!(reading.next(&mut observer, at(1)).is_some());
    assert!(reading.next(&mut observer, at(1)).is_none());
    reading.handle_push();
    assert_eq!(reading.poll(at(1)), ReadAction::Pause(READ_INTERVAL_MIN));
    let _ = reading.subscribe();
    assert_eq!(reading.poll(at(2)), ReadAction::Read);
}

#[test]
fn a_reading_that_fails_is_repeated_and_a_refusal_is_a_result() {
    let (mut reading, mut observer) = read();
    reading.handle_push();
    let mut now = at(100);
    let mut intervals = Vec::new();
    for _ in 0..12 {
        assert_eq!(reading.poll(now), ReadAction::Read);
        reading.handle_reply(ReadReply::Failed(None), now);
        assert_eq!(reading.poll(now), ReadAction::Wait);
        let next = reading.next_timeout().unwrap();
        intervals.push(next.since(now));
        now = next;
    }
    assert!(intervals.is_sorted() && intervals[0] < intervals[11]);
    assert_eq!(reading.poll(now), ReadAction::Read);
    let named = Duration::from_secs(2);
    reading.handle_reply(ReadReply::Failed(Some(named)), now);
    assert_eq!(reading.next_timeout(), Some(now.after(named)));
    now = now.after(named);
    assert_eq!(reading.poll(now), ReadAction::Read);
    reading.handle_reply(ReadReply::Refused(0), now);
    assert_eq!(reading.next(&mut observer, now), Some(Update::Read(0)));
    assert_eq!(reading.poll(now), ReadAction::Wait);
    assert_eq!(reading.next(&mut observer, now), None);
    let later = now.after(Duration::from_secs(1));
    assert_eq!(reading.poll(later), ReadAction::Read);
}

#[test]
fn a_failure_that_lasts_is_notified_once_to_each_observer() {
    let (mut reading, mut observer) = read();
    reading.handle_push();
    assert_eq!(reading.poll(at(100)), ReadAction::Read);
    // Without a reply, and without further ones.
    let silence = at(100).after(SILENCE_MIN);
    assert_eq!(reading.next_timeout(), Some(silence));
    assert_eq!(reading.poll(at(3_099)), ReadAction::Wait);
    assert_eq!(reading.next(&mut observer, at(3_099)), None);
    assert_eq!(reading.poll(silence), ReadAction::Wait);
    assert_eq!(reading.next_timeout(), None);
    let silent = |millis| Some(Update::Silence(Duration::from_millis(millis)));
    // The last state was read at 1 ms.
    assert_eq!(reading.next(&mut observer, silence), silent(3_099));
    assert_eq!(reading.next(&mut observer, at(3_200)), None);
    let mut second = reading.subscribe();
    assert_eq!(reading.next(&mut second, at(4_001)), silent(4_000));
    reading.handle_reply(ReadReply::Failed(None), at(5_000));
    assert_eq!(reading.next(&mut observer, at(5_000)), None);
    assert_eq!(reading.poll(at(6_000)), ReadAction::Read);
    reading.handle_reply(state(2), at(6_001));
    for observer in [&mut observer, &mut second] {
        assert_eq!(reading.next(observer, at(6_001)), Some(Update::Read(2)));
        assert_eq!(reading.next(observer, at(6_001)), None);
    }
    // The next failure is another one.
    reading.handle_push();
    assert_eq!(reading.poll(at(7_000)), ReadAction::Read);
    reading.handle_reply(ReadReply::Failed(None), at(7_001));
    assert_eq!(reading.poll(at(10_000)), ReadAction::Read);
    assert_eq!(reading.next(&mut observer, at(10_000)), None);
    assert_eq!(reading.poll(at(10_001)), ReadAction::Wait);
    assert_eq!(reading.next(&mut observer, at(10_001)), silent(4_000));
}
