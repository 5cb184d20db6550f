//! What is sent, and what an answer means.

use std::num::NonZeroU32;

use leasehold_core::TokenCount;

use super::*;
use crate::store::api::fixture;

fn requests() -> Vec<Request> {
    let (lease, ttl) = (fixture::lease(7), Ttl::from_millis(5_000).unwrap());
    let ops = [
        Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl,
            tokens: TokenCount::new(3).unwrap(),
            wait: true,
        },
        Op::Renew { lease, ttl },
        Op::Release {
            lease,
            count: 2,
            ttl,
        },
        Op::Revoke,
    ];
    ops.map(|op| Request::new(fixture::key("n"), op)).into()
}

#[test]
fn the_script_and_the_rule_have_the_same_numbers() {
    let script = include_str!("../scripts/mutex.lua");
    let (day, max) = (leasehold_core::token::RETENTION_MS, Token::MAX);
    assert!(script.contains(&format!("RETENTION_MS, TOKEN_MAX = '{day}', {max}")));
    let retention = format!("'PX', '{day}'");
    assert!(script.contains(&retention));
    let acceptance = leasehold_core::queue::ACCEPTANCE_MS;
    assert!(script.contains(&format!("ACCEPTANCE_MS = {acceptance}")));
    let ttl = Ttl::from_millis(7_000).unwrap();
    let retention = leasehold_core::queue::retention(ttl);
    assert_eq!(retention, 2 * ttl.as_duration() + Duration::from_secs(1));
    assert!(script.contains("retention = run('PTTL', queue), 2 * ttl + 1000"));
    let codes =
        "LOST, GRANTED, REFUSED, RENEWED, RELEASED, REVOKED, EXHAUSTED, FAILED, FENCED, OUTDATED =";
    assert!(script.contains(codes));
    let here = [
        LOST, GRANTED, REFUSED, RENEWED, RELEASED, REVOKED, EXHAUSTED, FAILED, FENCED, OUTDATED,
    ];
    assert!(here.iter().copied().eq(0..10));
    assert!(script.contains("0, 1, 2, 3, 4, 5, 6, 7, 8, 9"));
}

#[test]
fn a_request_is_three_keys_and_three_arguments() {
    let requests = requests();
    let lease = "00000000000000000000000000000000:7";
    for (queued, verb) in [(true, "queue 3 1"), (false, "acquire 3 1")] {
        let call = RuleCall {
            queued,
            ..RuleCall::new(&requests)
        };
        let cmd = encode("EVALSHA", "abc", &call);
        let mut expected = vec!["EVALSHA", "abc", "12"];
        expected.extend(["app:{t:n}", "app:{t:n}:token", "app:{t:n}:queue"].repeat(4));
        expected.extend([verb, lease, "5000"]);
        expected.extend(["renew", lease, "5000"]);
        expected.extend(["release 2", lease, "5000"]);
        expected.extend(["revoke", "", ""]);
        let sent: Vec<_> = cmd
            .args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(sent, expected);
    }
}

#[test]
fn plain_operations_have_one_answer() {
    let (lease, ttl) = (fixture::lease(7), Ttl::from_millis(5_000).unwrap());
    let acquire = |tokens| Op::Acquire {
        lease,
        count: NonZeroU32::MIN,
        ttl,
        tokens,
        wait: true,
    };
    let release = |count| Op::Release { lease, count, ttl };
    let time = Value::BulkString(b"1700000000000000".to_vec());
    for (op, at_a_time, timeless) in [
        (acquire(TokenCount::MIN), true, false),
        (acquire(TokenCount::new(2).unwrap()), false, false),
        (release(0), true, true),
        (release(1), false, false),
        (Op::Renew { lease, ttl }, false, false),
    ] {
        let requests = [Request::new(fixture::key("n"), op)];
        for (answer, applied) in [(&time, at_a_time), (&Value::Nil, timeless)] {
            let reply = decode(&requests, answer.clone()).remove(0);
            let is_applied = matches!(
                reply,
                Reply::Applied { outcome: Outcome::Granted { .. } | Outcome::Released { .. }, now }
                    if now.is_some() == (*answer != Value::Nil)
            );
            assert_eq!(is_applied, applied, "{op:?}: {reply:?}");
        }
    }
}

#[test]
fn a_waiter_receives_its_place() {
    let requests = requests();
    let refused = |value: Value| {
        let answer = Value::Array(vec![Value::Int(1_000), Value::Int(REFUSED), value]);
        decode(&requests[..1], answer).remove(0)
    };
    let pair = |left, place| Value::Array(vec![Value::Int(left), Value::Int(place)]);
    for (value, expected) in [(Value::Int(5), None), (pair(5, 3), Some(3))] {
        assert!(matches!(
            refused(value),
            Reply::Applied { outcome: Outcome::Refused { time_left, queue_position }, .. }
                if time_left == Duration::from_millis(5) && queue_position == expected
        ));
    }
    for value in [pair(5, -1), Value::Nil, Value::Array(vec![Value::Int(5)])] {
        assert!(matches!(refused(value), Reply::Unknown(_)));
    }
}

#[test]
fn each_part_of_an_answer_is_for_its_request() {
    let requests = requests();
    let words =
        |words: [&str; 3]| Value::Array(words.map(|word| Value::BulkString(word.into())).into());
    let answer = Value::Array(vec![
        Value::Int(1_000),
        Value::Int(REFUSED),
        Value::Int(-1),
        Value::Int(FAILED),
        words(["GET", "WRONGTYPE Operation against a key", "app:{t:n}"]),
        Value::Int(RELEASED),
        Value::Int(1),
        Value::Int(REVOKED),
        Value::Nil,
    ]);
    let replies = decode(&requests, answer);
    let left = Ttl::MAX.as_duration();
    assert!(matches!(
        &replies[0],
        Reply::Applied { outcome: Outcome::Refused { time_left: l, .. }, now }
            if *l == left && *now == Some(StoreTime::from_micros(1_000))
    ));
    assert!(matches!(&replies[1], Reply::Rejected(error)
        if error.to_string().contains(r#""app:{t:n}""#)));
    // Another count than the one that was asked for.
    assert!(matches!(&replies[2], Reply::Unknown(_)));
    assert!(matches!(
        &replies[3],
        Reply::Applied {
            outcome: Outcome::Revoked { cut_off: None },
            ..
        }
    ));
}

#[test]
fn an_answer_names_what_was_not_renewed() {
    let ints = |numbers: &[i64]| {
        let items = numbers.iter().map(|number| Value::Int(*number));
        Value::Array(items.collect())
    };
    let now = StoreTime::from_micros(7);
    assert_eq!(decode_renewals(&ints(&[7])), Some((now, vec![])));
    assert_eq!(decode_renewals(&ints(&[7, 1, 3])), Some((now, vec![0, 2])));
    for strange in [
        ints(&[]),
        ints(&[-1]),
        ints(&[7, 0]),
        ints(&[7, -1]),
        Value::Nil,
        Value::Array(vec![Value::BulkString(b"PEXPIRE".to_vec()), Value::Nil]),
        Value::Array(vec![Value::Int(7), Value::Nil]),
    ] {
        assert_eq!(decode_renewals(&strange), None, "{strange:?}");
    }
}
