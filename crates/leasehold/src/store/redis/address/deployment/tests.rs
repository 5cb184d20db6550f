//! What a URL means, why one is refused, and what the error does not contain. The fuzz target `address` makes up more.

use super::*;
use crate::ErrorKind;

#[test]
fn the_display_of_a_url_is_its_normal_form_without_a_password() {
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
        (
            "redis+sentinel://app:hush@a,b:1,[::1]/my%20master/3?sentinel-user=eye",
            "redis+sentinel://app@a:26379,b:1,[::1]:26379/my%20master/3?sentinel-user=eye",
        ),
        (
            "rediss+cluster://a:1,b?ca=/ca.pem",
            "rediss+cluster://a:1,b:6379?ca=/ca.pem",
        ),
        (
            "redlock://:hush@a,b:2,c/4?longest-ttl=90s",
            "redlock://a:6379,b:2,c:6379/4?longest-ttl=90000ms",
        ),
    ] {
        let options = OpenOptions::default().password("hush");
        let deployment = Deployment::of(url, &options).unwrap();
        assert_eq!(deployment.to_string(), displayed);
        assert!(!format!("{deployment} {deployment:?}").contains("hush"));
    }
}

#[test]
fn options_replace_what_the_url_names() {
    let options = OpenOptions::default().username("new").tls_ca("PEM");
    let deployment = Deployment::of("rediss+cluster://old:x@a,b?ca=/ca.pem", &options).unwrap();
    assert_eq!(deployment.to_string(), "rediss+cluster://new@a:6379,b:6379");
    for url in ["redis+sentinel://a,b/m", "redis+unix:/r.sock"] {
        let error = Deployment::of(url, &options).unwrap_err();
        assert!(error.to_string().contains("without TLS"), "{error}");
    }
}

#[test]
fn a_master_is_reached_as_its_sentinels_are() {
    let url = "redis+sentinel://app@a,b:1/m/3";
    let Deployment::Sentinel(set) = Deployment::parse(url).unwrap() else {
        unreachable!()
    };
    let master = set.sentinels[0].at("::2", 7).to_string();
    assert_eq!(master, "redis://app@[::2]:7/3");
}

#[test]
fn an_invalid_url_is_refused_with_a_reason_and_without_its_password() {
    let others = [
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
    ];
    let reasons = [
        ("redis+sentinel://a,b", "does not name the master"),
        ("redis+sentinel://a,b/", "does not name the master"),
        ("redis+sentinel://a,,b/m", "empty host"),
        ("redis+sentinel:///m", "empty host"),
        ("redis+sentinel://a/m/x", "must be a number"),
        (
            "redis+sentinel://a/m?sentinel-user=&sentinel-user=",
            "twice",
        ),
        ("redis+sentinel://a/m?user=x", "parameters"),
        ("redis+cluster://a/1", "no databases"),
        ("redis+cluster://a,a:6379", "twice"),
        ("redis+cluster://", "empty host"),
        ("redlock://a,b,a", "twice"),
        ("redlock://a,b,c?longest-ttl=1", "longest-ttl"),
        ("redlock://a,b,c?longest-ttl=99999999h", "longest-ttl"),
        ("redlock://a,b,c#x", "#"),
        ("redlock://a,b:0,c", "port"),
    ];
    for (url, words) in reasons.into_iter().chain(others.map(|url| (url, ""))) {
        let error = Deployment::parse(url).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
        let message = format!("{error} {error:?}");
        assert!(message.contains(words), "{url}: {message}");
        assert!(!message.contains("sEcret"), "{url}: {message}");
        assert!(!message.contains('\n') && !error.to_string().ends_with('.'));
    }
}
