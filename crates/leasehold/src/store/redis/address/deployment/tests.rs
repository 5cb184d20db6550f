//! What the URLs of many servers mean, and why one is refused. The fuzz target `address` makes up more.

use super::*;

#[test]
fn the_display_of_a_url_is_its_normal_form_without_a_password() {
    for (url, displayed) in [
        ("redis://h:1/2", "redis://h:1/2"),
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
fn an_invalid_url_is_refused_with_a_reason() {
    for (text, words) in [
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
    ] {
        let error = Deployment::parse(text).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig);
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
}
