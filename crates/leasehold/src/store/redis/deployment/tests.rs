//! What the URLs of many servers mean, and that none of them leaks a password.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Deployment {
    Deployment::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    let error = Deployment::parse(text).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig);
    error.to_string()
}

#[test]
fn one_server_is_its_address() {
    let Deployment::Single(address) = parse("redis://h:1/2") else {
        unreachable!()
    };
    assert_eq!(address.to_string(), "redis://h:1/2");
}

#[test]
fn sentinels_are_named_with_their_master() {
    let text = "redis+sentinel://app:secret@a,b:1,[::1]/my%20master/3?sentinel-user=eye";
    let deployment = parse(text);
    let Deployment::Sentinel(set) = &deployment else {
        unreachable!()
    };
    assert_eq!(set.master, "my master");
    assert_eq!(set.user.as_deref(), Some("eye"));
    let servers: Vec<_> = set.sentinels.iter().map(ToString::to_string).collect();
    assert_eq!(
        servers,
        [
            "redis://app@a:26379/3",
            "redis://app@b:1/3",
            "redis://app@[::1]:26379/3"
        ]
    );
    let displayed = deployment.to_string();
    assert_eq!(
        displayed,
        "redis+sentinel://app@a:26379,b:1,[::1]:26379/my%20master/3?sentinel-user=eye"
    );
    let master = set.sentinels[0].at("::2", 7).to_string();
    assert_eq!(master, "redis://app@[::2]:7/3");
}

#[test]
fn a_cluster_is_found_by_any_of_its_nodes() {
    let deployment = parse("rediss+cluster://a:1,b?ca=/ca.pem");
    let Deployment::Cluster(seeds) = &deployment else {
        unreachable!()
    };
    assert_eq!(seeds[1].to_string(), "rediss://b:6379/0?ca=/ca.pem");
    assert_eq!(
        deployment.to_string(),
        "rediss+cluster://a:1,b:6379?ca=/ca.pem"
    );
}

#[test]
fn masters_are_independent() {
    let deployment = parse("redlock://:pw@a,b:2,c/4?longest-ttl=90s");
    let Deployment::Masters(masters) = &deployment else {
        unreachable!()
    };
    assert_eq!(masters.nodes.len(), 3);
    assert_eq!(masters.nodes[1].db, 4);
    assert_eq!(masters.longest_ttl, Ttl::from_millis(90_000));
    let displayed = deployment.to_string();
    assert_eq!(
        displayed,
        "redlock://a:6379,b:2,c:6379/4?longest-ttl=90000ms"
    );
    assert_eq!(parse(&displayed).to_string(), displayed);
}

#[test]
fn a_password_of_the_options_is_not_displayed() {
    for text in [
        "redis://h",
        "redis+sentinel://a,b/m",
        "redis+cluster://a",
        "redlock://a,b,c",
    ] {
        let mut deployment = parse(text);
        deployment.set_password(&Secret::new("hush"));
        assert!(!format!("{deployment} {deployment:?}").contains("hush"));
    }
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
            "redis+sentinel://a/m?sentinel-user=x&sentinel-user=y",
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
        let error = refused(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser_and_no_error_contains_the_password(
        scheme in prop::sample::select(vec!["redis+sentinel", "redis+cluster", "redlocks"]),
        rest in "[a-z0-9@:/?&=,#%\\[\\].-]{0,60}",
    ) {
        match Deployment::parse(&format!("{scheme}://user:hidden{rest}")) {
            Ok(deployment) => {
                let displayed = deployment.to_string();
                prop_assert_eq!(parse(&displayed).to_string(), displayed);
            }
            Err(error) => prop_assert!(!error.to_string().contains("hidden")),
        }
    }
}
