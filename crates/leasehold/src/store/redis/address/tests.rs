//! What a URL means, and that no text breaks the parser or leaks a password.

use std::path::Path;

use proptest::prelude::*;

use super::super::fuzzing;
use super::*;

fn parse(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn tcp(host: &str, port: u16) -> Endpoint {
    let (host, tls) = (Server(host.to_owned()), None);
    Endpoint::Tcp { host, port, tls }
}

#[test]
fn parts_that_are_left_out_have_defaults() {
    let address = parse("redis://db.example.org");
    assert_eq!(address.endpoint, tcp("db.example.org", 6379));
    assert_eq!((address.user, address.password), (None, None));
    assert_eq!(address.db, 0);
}

#[test]
fn user_and_password_are_decoded() {
    let address = parse("redis://al%69ce:p%40ss%2Fw:rd%25@db:7000/3");
    assert_eq!(address.endpoint, tcp("db", 7000));
    assert_eq!(address.user.as_deref(), Some("alice"));
    assert_eq!(address.password, Some(Secret::new("p@ss/w:rd%")));
    assert_eq!(address.db, 3);
    let default = parse("redis://:secret@db/");
    assert_eq!(default.user, None);
    assert_eq!(default.password, Some(Secret::new("secret")));
}

#[test]
fn hosts_can_be_ip_addresses() {
    assert_eq!(parse("redis://127.0.0.1:1").endpoint, tcp("127.0.0.1", 1));
    let address = parse("redis://[::1]:7/2");
    let Endpoint::Tcp { host, .. } = &address.endpoint else {
        unreachable!("{address}")
    };
    assert_eq!(host.as_str(), "::1");
    assert_eq!(address.to_string(), "redis://[::1]:7/2");
}

#[test]
fn tls_takes_files() {
    let address = parse("rediss://h?ca=/etc/c+a%20b.pem&cert=c.pem&key=k.pem");
    let files = address.tls().unwrap();
    assert_eq!(files.ca.as_deref(), Some(Path::new("/etc/c+a b.pem")));
    let identity = files.identity.as_ref().unwrap();
    assert_eq!(identity.key, Path::new("k.pem"));
}

#[test]
fn a_socket_has_two_spellings() {
    for url in [
        "redis+unix:/run/r.sock?db=2&user=a",
        "redis+unix:///run/r.sock?user=a&db=2",
    ] {
        let address = parse(url);
        let path = PathBuf::from("/run/r.sock");
        assert_eq!(address.endpoint, Endpoint::Unix { path });
        assert_eq!(address.user.as_deref(), Some("a"));
        assert_eq!(address.db, 2);
    }
}

#[test]
fn no_error_contains_the_password() {
    for url in [
        "",
        "redis",
        "redis:",
        "redis:sEcret",
        "redis:///1",
        "redis://sEcret@",
        "redis://u:sEcret@/1",
        "redis://u:sEcret@h:port",
        "redis://u:sEcret@h:65536",
        "redis://u:sEcret@h:0",
        "redis://u:sEcret@h:-1",
        "redis://u:sEcret@h/one",
        "redis://u:sEcret@h/-1",
        "redis://u:sEcret@h/+1",
        "redis://u:sEcret@h/4294967296",
        "redis://u:sEcret@h/1/2",
        "redis://u:sEcret@h/0?db=1",
        "redis://u:sEcret@h/0#x",
        "redis://u:sEcret@h h/0",
        "redis://u:sEcret@h%00/0",
        "redis://u:sEcret%ff@h/0",
        "redis://u:s/sEcret@h",
        "redis://u:1/sEcret@h",
        "redis://u:1?sEcret@h",
        "redis://u:1#sEcret@h",
        "redis://u:\tsEcret@h",
        "rediss://u:1?sEcret@h",
        "rediss://u:sEcret@h/0?insecure=1",
        "rediss://u:sEcret@h/0?ca",
        "rediss://u:sEcret@h/0?ca=",
        "rediss://u:sEcret@h/0?ca=a&ca=b",
        "rediss://u:sEcret@h/0?cert=a",
        "rediss://u:sEcret@h/0?key=a",
        "redis+unix:",
        "redis+unix://",
        "redis+unix:?db=1",
        "redis+unix://u:sEcret@/run/r.sock",
        "redis+unix://run/sEcret.sock",
        "redis+unix:/r.sock#sEcret",
        "redis+unix:/r.sock?password=sEcret",
        "redis+unix:/r.sock?db=sEcret",
        "redis+unix:/r%00.sock",
    ] {
        let error = Address::parse(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
        let message = format!("{error} {error:?}");
        assert!(!message.contains("sEcret"), "{url}: {message}");
        assert!(!message.contains('\n') && !error.to_string().ends_with('.'));
    }
}

#[test]
fn a_password_is_never_displayed() {
    let address = parse("redis://u:sEcret@h");
    assert_eq!(address.to_string(), "redis://u@h:6379/0");
    assert!(!format!("{address:?}").contains("sEcret"));
}

fn any_url() -> impl Strategy<Value = String> {
    let scheme = prop::sample::select(vec!["redis://", "rediss://", "redis+unix:", "redis:", ""]);
    let part = prop_oneof![
        4 => prop::sample::select(vec![
            ":", "@", "/", "//", "?", "#", "%", "%41", "%2F", "[", "]", "::1", "127.0.0.1", "host",
            "6379", "0", "12", "ca=", "cert=", "key=", "db=", "user=", "&", "a", "..", "é", " ",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    (scheme, prop::collection::vec(part, 0..12))
        .prop_map(|(scheme, parts)| scheme.to_owned() + &parts.concat())
}

proptest! {
    #[test]
    fn no_text_breaks_it_and_what_it_displays_is_equivalent(url in any_url()) {
        fuzzing::address(url.as_bytes());
    }

    #[test]
    fn a_password_in_its_place_is_read_and_hidden(password in "[a-zA-Z0-9 %@:/?#é]{1,20}") {
        let encoded = utf8_percent_encode(&password, NON_ALPHANUMERIC).to_string();
        let address = parse(&format!("redis://u:{encoded}@h:1/2"));
        prop_assert_eq!(address.to_string(), "redis://u@h:1/2");
        prop_assert_eq!(address.password, Some(Secret::new(password)));
    }
}
