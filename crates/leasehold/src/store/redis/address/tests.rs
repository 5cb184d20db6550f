//! What a URL means, and what an error about it does not contain. The fuzz target `address` makes up more.

use super::*;

#[test]
fn the_display_of_a_url_is_its_normal_form() {
    let tls = "rediss://h:6379/0?ca=/etc/c+a%20b.pem&cert=c.pem&key=k.pem";
    let socket = "redis+unix:/run/r.sock?db=2&user=a";
    for (url, displayed) in [
        ("redis://db.org", "redis://db.org:6379/0"),
        ("redis://al%69ce:p%40ss@db:7/3", "redis://alice@db:7/3"),
        ("redis://:secret@127.0.0.1:1/", "redis://127.0.0.1:1/0"),
        ("redis://[::1]:7/2", "redis://[::1]:7/2"),
        (&tls.replace(":6379/0", ""), tls),
        (socket, socket),
        ("redis+unix:///run/r.sock?user=a&db=2", socket),
    ] {
        assert_eq!(Address::parse(url).unwrap().to_string(), displayed);
    }
}

#[test]
fn a_password_and_a_host_are_decoded() {
    let address = Address::parse("redis://u:p%40ss%2Fw:rd%25@[::1]").unwrap();
    assert_eq!(address.password, Some(Secret::from("p@ss/w:rd%")));
    let Endpoint::Tcp { host, .. } = &address.endpoint else {
        unreachable!("{address}")
    };
    assert_eq!(host.as_str(), "::1");
}

#[test]
fn no_error_contains_the_password() {
    for url in [
        "",
        "redis:sEcret",
        "redis://u:sEcret@/1",
        "redis://u:sEcret@h:65536",
        "redis://u:sEcret@h:0",
        "redis://u:sEcret@h/+1",
        "redis://u:sEcret@h/4294967296",
        "redis://u:sEcret@h/1/2",
        "redis://u:sEcret@h h/0",
        "redis://u:sEcret@h%00/0",
        "redis://u:sEcret%ff@h/0",
        "redis://u:1#sEcret@h",
        "redis://u:\tsEcret@h",
        "rediss://u:1?sEcret@h",
        "rediss://u:sEcret@h/0?ca",
        "rediss://u:sEcret@h/0?ca=",
        "rediss://u:sEcret@h/0?ca=a&ca=b",
        "rediss://u:sEcret@h/0?cert=a",
        "rediss://u:sEcret@h/0?key=a",
        "redis+unix://",
        "redis+unix://run/sEcret.sock",
        "redis+unix:/r.sock#sEcret",
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
