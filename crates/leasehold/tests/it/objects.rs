//! The store in a bucket: its conditions, and what can happen between a client and a service.

use std::time::Duration;

use axum::Router;
use axum::http::header::ETAG;
use axum::http::{HeaderMap, StatusCode};
use leasehold::__private::store::{self, OpenOptions, Reply};
use leasehold::doctor::Severity;
use leasehold::{Client, ErrorKind};
use leasehold_core::Outcome;
use leasehold_testkit::{BucketServer, Proxy, Way};
use tokio::net::TcpListener;

use crate::store_client::*;

/// How often two clients race for a name that is new, and for one that exists.
const RACES: usize = 100;

/// The secret in the environment of the tests.
const SECRET: &str = "testkit-secret";

#[tokio::test(flavor = "multi_thread")]
async fn of_two_clients_that_race_one_wins() {
    let server = BucketServer::start();
    let url = server.url();
    let [a, b] = [open_patient(&url).await, open_patient(&url).await];
    assert_eq!(a.to_string(), url);
    assert!(!format!("{a:?}").contains(SECRET), "{a:?}");
    let race = async |name: &str, [first, second]: [u64; 2]| {
        let (first, second) = (acquire(name, first), acquire(name, second));
        let (a, b) = tokio::join!(applied(&*a, first), applied(&*b, second));
        let won = [a, b].map(|outcome| matches!(outcome, Outcome::Granted { .. }));
        assert_ne!(won[0], won[1], "{name}");
        won[0]
    };
    for round in 0..RACES {
        let name = format!("race/{round}");
        let released = match race(&name, [1, 2]).await {
            true => applied(&*a, release(&name, 1)).await,
            false => applied(&*b, release(&name, 2)).await,
        };
        assert_eq!(released, Outcome::Released);
        race(&name, [3, 4]).await;
    }
}

/// A repeated request finds what was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_reply_is_lost_is_unknown() {
    let server = BucketServer::start();
    let proxy = Proxy::before_port(server.port());
    let path = BucketServer::fresh_path();
    let client = open(&BucketServer::url_at(proxy.port(), &path)).await;
    let other = open(&BucketServer::url_at(server.port(), &path)).await;
    works(&*client).await;
    proxy.swallow(Way::ToClient);
    let error = unknown(&*client, acquire("works", 2)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(is_refused(&send(&*other, acquire("works", 3)).await));
    proxy.go_on();
    // The service may have ended a connection, which the proxy has swallowed.
    while matches!(send(&*client, acquire("works", 2)).await, Reply::Unknown(_)) {}
    let token = granted(&*client, acquire("works", 2)).await;
    assert_eq!(granted(&*client, acquire("works", 2)).await, token);
}

/// The status and the code with which a service replies to every request.
type Service = fn(&HeaderMap) -> (u16, &'static str);

/// Starts a service with the interface of S3, and gives the URL of a store there.
async fn start(service: Service) -> String {
    let reply = move |headers: HeaderMap| async move {
        let (status, code) = service(&headers);
        let body = format!("<Error><Code>{code}</Code></Error>");
        let status = StatusCode::from_u16(status).unwrap();
        (status, [(ETAG, "\"1\"")], body)
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().fallback(reply);
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("s3://locks?endpoint=http://127.0.0.1:{port}&allow-http")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_keeps_no_locks_is_refused() {
    let ignores_versions: Service = |headers| match headers.contains_key("if-none-match") {
        true => (412, "PreconditionFailed"),
        false => (200, ""),
    };
    let cases: [(Service, ErrorKind, &str); 9] = [
        (
            |_| (200, ""),
            ErrorKind::Unsupported,
            "ignores If-None-Match",
        ),
        (ignores_versions, ErrorKind::Unsupported, "ignores If-Match"),
        (
            |_| (501, "NotImplemented"),
            ErrorKind::Unsupported,
            "use Amazon S3",
        ),
        (
            |_| (403, "InvalidAccessKeyId"),
            ErrorKind::WrongPassword,
            "AWS_ACCESS_KEY_ID",
        ),
        (|_| (403, "AccessDenied"), ErrorKind::Unauthorized, "right"),
        (
            |_| (403, "RequestTimeTooSkewed"),
            ErrorKind::Store,
            "clock of this machine",
        ),
        (
            |_| (301, "PermanentRedirect"),
            ErrorKind::InvalidConfig,
            "region=",
        ),
        // Not the conflict with another client, which has the same status.
        (
            |_| (409, "BlobImmutableDueToPolicy"),
            ErrorKind::Store,
            "immutable",
        ),
        (|_| (503, "SlowDown"), ErrorKind::Unreachable, "is busy"),
    ];
    for (service, kind, words) in cases {
        let url = start(service).await;
        let error = refused(&url).await;
        assert_error(&error, kind, &[words]);
        assert_eq!(error.store(), Some(&*url));
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
    }
    let server = BucketServer::start();
    let missing = refused(&BucketServer::url_at(server.port(), "missing")).await;
    assert_error(&missing, ErrorKind::InvalidConfig, &["create it"]);
    let nobody = refused(&BucketServer::url_at(1, "locks")).await;
    assert_eq!(nobody.kind(), ErrorKind::Unreachable, "{nobody}");
    let options = OpenOptions::default().password("s3cret");
    let with_password = store::open_with(&server.url(), &options).await;
    let error = with_password.map(|store| store.to_string()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_checks_conditions_latency_versions_and_the_endpoint() {
    let server = BucketServer::start();
    // A reply is slow if it takes more than a quarter of the interval of renewals.
    let report = Client::builder()
        .ttl(Duration::from_secs(300))
        .response_timeout(PATIENCE)
        .diagnose(&server.url())
        .await
        .unwrap();
    let mut found: Vec<_> = report
        .findings
        .iter()
        .map(|it| (it.check, it.severity))
        .collect();
    found.sort_unstable_by_key(|(check, _)| *check);
    let expected = [
        ("conditions", Severity::Ok),
        ("endpoint", Severity::Warning),
        ("latency", Severity::Ok),
        ("versions", Severity::Ok),
    ];
    assert_eq!(found, expected, "{report:?}");
    // It checks the version before it writes, so that two writes at the same time both find it.
    let checks_first: Service = |headers| match headers.get("if-match") {
        Some(version) if version != "\"1\"" => (412, "PreconditionFailed"),
        None if headers.contains_key("if-none-match") => (412, "PreconditionFailed"),
        _ => (200, ""),
    };
    let ignores_all: Service = |_| (200, "");
    for service in [ignores_all, checks_first] {
        let bad = Client::builder().diagnose(&start(service).await).await;
        let found = bad.unwrap().findings;
        let mut dangers = found.iter().filter(|it| it.severity == Severity::Danger);
        assert!(dangers.any(|it| it.check == "conditions"), "{found:?}");
    }
}
