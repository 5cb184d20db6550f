//! What is sent, and that no answer breaks the client.

use std::num::NonZeroU32;

use leasehold_core::{ClientId, Name, ScopeName, TokenCount};
use proptest::prelude::*;

use super::super::keys::ClientKey;
use super::*;
use crate::store::api::Keyspace;

fn request(op: Op) -> Request {
    let scope = |text| ScopeName::parse(text).unwrap();
    let space = Keyspace::new(scope("app"), scope("t"));
    Request::new(space.key(Name::parse("n").unwrap()), op)
}

fn lease() -> LeaseId {
    LeaseId {
        client: ClientId::from_random([0; 16]),
        number: 7,
    }
}

fn ops() -> Vec<Op> {
    let (lease, ttl) = (lease(), Ttl::from_millis(5_000).unwrap());
    vec![
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
    ]
}

#[test]
fn the_script_and_the_rule_mean_the_same_numbers() {
    let script = include_str!("../scripts/mutex.lua");
    let (day, max) = (leasehold_core::token::RETENTION_MS, Token::MAX);
    assert!(script.contains(&format!("RETENTION_MS, TOKEN_MAX = '{day}', {max}")));
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

const PAGE: &str = include_str!("../../../../../../docs/redis.md");

/// The first two cells of each row of a table in `docs/redis.md`, without the marks of code.
fn table(header: &str) -> Vec<(String, String)> {
    let (_, table) = PAGE.split_once(header).unwrap();
    let rows = table
        .lines()
        .skip(2)
        .map_while(|line| line.strip_prefix("| "));
    let cells = rows.map(|row| row.split(" | ").map(|cell| cell.replace('`', "")));
    cells
        .map(|mut cells| (cells.next().unwrap(), cells.next().unwrap()))
        .collect()
}

#[test]
fn the_page_lists_every_operation() {
    let (lease, ttl) = (lease(), Ttl::USER_MIN);
    let (first, tokens, count) = (Token::MAX, TokenCount::MIN, NonZeroU32::MIN);
    let mut all = ops();
    all.push(Op::Enter { lease, count, ttl });
    all.push(Op::SetToken {
        lease,
        first,
        tokens,
    });
    let written = |op: &Op| {
        let mut cmd = Cmd::new();
        encode_op(&mut cmd, op, true);
        let Some(redis::Arg::Simple(verb)) = cmd.args_iter().next() else {
            panic!("{op:?} has no verb");
        };
        let name = format!("{op:?}").split(' ').next().map(str::to_owned);
        (String::from_utf8_lossy(verb).into_owned(), name.unwrap())
    };
    let mut expected: Vec<_> = all.iter().map(written).collect();
    expected.push(("continue".to_owned(), "-".to_owned()));
    let mut listed = table("| operation | `Op` |");
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn the_page_lists_every_reply_code() {
    let codes = [
        (LOST, "lost"),
        (GRANTED, "granted"),
        (REFUSED, "refused"),
        (RENEWED, "renewed"),
        (RELEASED, "released"),
        (REVOKED, "revoked"),
        (EXHAUSTED, "exhausted"),
        (FAILED, "failed"),
        (FENCED, "fenced"),
        (OUTDATED, "outdated"),
    ];
    let codes = codes.map(|(code, outcome)| (code.to_string(), outcome.to_owned()));
    assert_eq!(table("| code | outcome |"), codes);
}

#[test]
fn the_page_lists_every_key_and_script() {
    let key = request(Op::Revoke).key;
    let client = ClientKey(&key.space, lease().client).to_string();
    let own = [
        RecordKey(&key).to_string(),
        CounterKey(&key).to_string(),
        QueueKey(&key).to_string(),
        client.replace(&lease().client.to_string(), "<client id>"),
        AdmissionKey(key.space.namespace()).to_string(),
    ];
    let own = own.map(|key| key.replace("{t:n}", "{<tenant>:<name>}"));
    let own = own.map(|key| key.replace("app:", "<namespace>:"));
    let listed = table("| key | type |").into_iter().map(|(key, _)| key);
    assert_eq!(listed.collect::<Vec<_>>(), own);
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/redis/scripts");
    for script in std::fs::read_dir(scripts).unwrap() {
        let name = script.unwrap().file_name().into_string().unwrap();
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn a_request_is_three_keys_and_six_arguments() {
    let requests: Vec<_> = ops().into_iter().map(request).collect();
    let lease = "00000000000000000000000000000000:7";
    for (queued, wait) in [(true, "1"), (false, "0")] {
        let cmd = encode(
            "EVALSHA",
            "abc",
            &requests,
            CallOptions {
                queued,
                ..CallOptions::default()
            },
        );
        let mut expected = vec!["EVALSHA", "abc", "12"];
        expected.extend(["app:{t:n}", "app:{t:n}:token", "app:{t:n}:queue"].repeat(4));
        expected.extend(["acquire", lease, "1", "5000", "3", wait]);
        expected.extend(["renew", lease, "0", "5000", "0", "0"]);
        expected.extend(["release", lease, "2", "5000", "0", "0"]);
        expected.extend(["revoke", "", "0", "0", "0", "0"]);
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
fn who_waits_is_told_its_place() {
    let requests: Vec<_> = ops().into_iter().map(request).collect();
    let refused = |value: Value| {
        let answer = Value::Array(vec![Value::Int(1_000), Value::Int(REFUSED), value]);
        decode(&requests[..1], answer).remove(0)
    };
    let pair = |left, place| Value::Array(vec![Value::Int(left), Value::Int(place)]);
    for (value, told) in [(Value::Int(5), None), (pair(5, 3), Some(3))] {
        assert!(matches!(
            refused(value),
            Reply::Applied { outcome: Outcome::Refused { time_left: left, queue_position: place }, .. }
                if left == Duration::from_millis(5) && place == told
        ));
    }
    for value in [pair(5, -1), Value::Nil, Value::Array(vec![Value::Int(5)])] {
        assert!(matches!(refused(value), Reply::Unknown(_)));
    }
}

#[test]
fn each_part_of_an_answer_is_for_its_request() {
    let requests: Vec<_> = ops().into_iter().map(request).collect();
    let pair = |a: &str, b: &str| {
        Value::Array(vec![
            Value::BulkString(a.as_bytes().to_vec()),
            Value::BulkString(b.as_bytes().to_vec()),
        ])
    };
    let answer = Value::Array(vec![
        Value::Int(1_000),
        Value::Int(REFUSED),
        Value::Int(-1),
        Value::Int(FAILED),
        pair("HGET", "WRONGTYPE Operation against a key"),
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
            if *l == left && now.as_micros() == 1_000
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

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => (-2_i64..9).prop_map(Value::Int),
        1 => any::<i64>().prop_map(Value::Int),
        1 => any::<Vec<u8>>().prop_map(Value::BulkString),
        1 => any::<String>().prop_map(Value::SimpleString),
        1 => Just(Value::Nil),
        1 => Just(Value::Okay),
        1 => any::<f64>().prop_map(Value::Double),
        1 => any::<bool>().prop_map(Value::Boolean),
    ];
    leaf.prop_recursive(3, 24, 9, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..10).prop_map(Value::Array),
            prop::collection::vec((inner.clone(), inner.clone()), 0..3).prop_map(Value::Map),
            prop::collection::vec(inner, 0..3).prop_map(Value::Set),
        ]
    })
}

proptest! {
    #[test]
    fn no_answer_breaks_it_and_every_request_has_its_reply(
        answer in prop_oneof![
            any_value(),
            prop::collection::vec(any_value(), 9).prop_map(Value::Array),
        ],
    ) {
        let requests: Vec<_> = ops().into_iter().map(request).collect();
        prop_assert_eq!(decode(&requests, answer.clone()).len(), requests.len());
        prop_assert_eq!(decode(&[], answer).len(), 0);
    }

    /// Bytes as they may come from anything that listens on a port.
    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..64), tail in any::<bool>()) {
        let mut bytes = bytes;
        if tail {
            bytes.splice(0..0, *b"*9\r\n:1\r\n:1\r\n");
        }
        if let Ok(answer) = redis::parse_redis_value(&bytes) {
            let requests: Vec<_> = ops().into_iter().map(request).collect();
            prop_assert_eq!(decode(&requests, answer).len(), requests.len());
        }
    }
}
