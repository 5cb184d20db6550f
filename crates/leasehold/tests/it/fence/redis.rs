//! The script for values in Redis.

use leasehold::Token;
use leasehold::fence::redis::{WRITE, arguments, write};
use leasehold_testkit::{RedisOptions, RedisServer};

use crate::redis::connection;

fn token(value: u64) -> Token {
    Token::new(value).unwrap()
}

#[tokio::test]
async fn only_the_newest_writes() {
    let server = RedisServer::start();
    let mut connection = connection(&server.url()).await;
    for (value, written, left) in [
        (7, true, "a"),
        (7, true, "b"),
        (6, false, "b"),
        (9_007_199_254_740_990, true, "c"),
        (9_007_199_254_740_991, true, "d"),
        (9_007_199_254_740_990, false, "d"),
    ] {
        let wrote = write(&mut connection, "stock", token(value), left.as_bytes()).await;
        let wrote = wrote.unwrap();
        assert_eq!(wrote.is_ok(), written, "{value}");
        assert_eq!(server.cli(&["GET", "stock"]), left);
        if let Err(stale) = wrote {
            let fence = server.cli(&["GET", "{stock}:fence"]);
            assert_eq!(stale.newest.to_string(), fence);
            assert_eq!(stale.token, token(value));
        }
    }
    assert_eq!(server.cli(&["PTTL", "{stock}:fence"]), "-1");
    let unusable = write(&mut connection, "a}b", token(7), b"").await;
    assert!(unusable.is_err());
}

#[tokio::test]
async fn an_invalid_token_writes_nothing() {
    let server = RedisServer::start();
    let call = |token: &str| server.try_cli(&["EVAL", WRITE, "2", "a", "{a}:fence", token, "x"]);
    for token in ["", "0", "-1", "1.5", "1e9", "x", "9007199254740992"] {
        let error = call(token).unwrap_err();
        assert!(error.contains("no number"), "{token}: {error}");
    }
    server.cli(&["SET", "{a}:fence", "x"]);
    let error = call("7").unwrap_err();
    assert!(error.contains("something else"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "a"]), "0");
}

/// A node refuses a script whose keys are in several slots.
#[tokio::test]
async fn value_and_fence_are_in_one_slot_of_a_cluster() {
    let server = RedisOptions::default()
        .config("cluster-enabled yes")
        .start();
    for key in ["stock", "stock:{42}:left", "stock{", "{a}{b}", "\u{fc}"] {
        let [_, _, fence, ..] = arguments(key, token(7), b"").unwrap();
        let fence = String::from_utf8(fence).unwrap();
        let slot = |key: &str| server.cli(&["CLUSTER", "KEYSLOT", key]);
        assert_eq!(slot(key), slot(&fence), "{key}");
    }
}
