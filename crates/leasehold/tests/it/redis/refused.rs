//! Every refusal at connect is an error with advice and without a secret.

use std::fs;
use std::net::TcpListener;

use leasehold::__private::store;
use leasehold_testkit::free_port;

use super::*;

pub(super) const SECRET: &str = "s3cret-w0rd";

/// Checks that a store cannot be opened, and the error: its kind, a part of its message, and that no secret is in it.
pub(super) async fn refused(url: &str, kind: ErrorKind, advice: &str) {
    let limit = OpenOptions::default().connect_timeout;
    refused_within(limit, url, kind, advice).await;
}

/// The same with a limit for connecting.
pub(super) async fn refused_within(limit: Duration, url: &str, kind: ErrorKind, advice: &str) {
    let options = OpenOptions::default().connect_timeout(limit);
    let error = store::open_with(url, &options).await.unwrap_err();
    let message = error.to_string();
    assert_eq!(error.kind(), kind, "{message}");
    assert!(message.contains(advice), "{advice:?}: {message}");
    let one_phrase = !message.contains('\n') && !message.ends_with('.');
    assert!(one_phrase, "{message}");
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        let text = format!("{error} {error:?}");
        assert!(!text.contains(SECRET), "{text}");
        cause = error.source();
        // A cause that the server has sent says more than the message.
        let again = cause.filter(|cause| message.contains(&cause.to_string()));
        assert!(
            kind == ErrorKind::Unreachable || again.is_none(),
            "{again:?}"
        );
    }
}

/// Their messages are in `cli::mistakes`.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_cannot_be_reached_or_do_not_suit_their_url() {
    let plain = RedisServer::start();
    let [tls, stranger] = [(); 2].map(|()| RedisServer::options().tls().start());
    let (url, other) = (tls.url_of("alice", SECRET), stranger.url());
    let (bare, ca) = url.split_once('?').unwrap();
    let (_, other_ca) = other.split_once('?').unwrap();
    for url in [
        format!("redis://:{SECRET}@127.0.0.1:{}", free_port()),
        format!("redis://u:{SECRET}@no-such-host.invalid"),
        "redis+unix:/no/such.sock".to_owned(),
        bare.to_owned(),
        bare.replace("rediss", "redis"),
        // A certificate is for names, and this one is for others.
        url.replace("localhost", "127.0.0.2"),
        format!("{bare}?{other_ca}"),
        format!("rediss://localhost:{}?{ca}", plain.port()),
    ] {
        refused(&url, ErrorKind::Unreachable, "").await;
    }
    let database = plain.url().replace("/0", "/99");
    refused(&database, ErrorKind::InvalidConfig, "").await;
}

/// Not even to the request that finds out whether it speaks TLS.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_reply_over_tls() {
    use tokio::io::AsyncReadExt as _;

    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
    let silent = silent.unwrap();
    let url = format!("rediss://:{SECRET}@{}", silent.local_addr().unwrap());
    let opening = tokio::spawn({
        let url = url.clone();
        let options = OpenOptions::default().connect_timeout(Duration::MAX);
        async move { store::open_with(&url, &options).await.map(drop) }
    });
    let accept = async || tokio::time::timeout(SOON, silent.accept()).await;
    let (_handshake, _) = accept().await.unwrap().unwrap();
    let (mut plain, _) = accept().await.unwrap().unwrap();
    let mut request = String::new();
    let read = tokio::time::timeout(SOON, plain.read_to_string(&mut request)).await;
    read.expect("it is closed in time").unwrap();
    assert_eq!(request, "*1\r\n$4\r\nPING\r\n");
    assert!(!opening.is_finished());
    opening.abort();

    let limit = Duration::from_millis(1_200);
    refused_within(limit, &url, ErrorKind::Unreachable, "that it speaks TLS").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_that_replies() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("redis://:{SECRET}@{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for reply in [
            "HTTP/1.1 400 Bad Request\r\n\r\n",
            "",
            "+OK\r\n+OK\r\n",
            "*1\r\n*",
        ] {
            let (mut stream, _) = listener.accept().unwrap();
            use std::io::{Read as _, Write as _};
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(reply.as_bytes());
        }
    });
    for advice in ["not a Redis server", "closed the connection", "", ""] {
        let error = store::open_with(&url, &OpenOptions::default()).await;
        let error = error.unwrap_err();
        assert!(error.to_string().contains(advice), "{error}");
        assert!(!format!("{error} {error:?}").contains(SECRET));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_and_missing_passwords() {
    let options =
        RedisServer::options()
            .requirepass("right")
            .acl("alice", "wonder", "~app:* +@all");
    let old = options.clone().config("rename-command HELLO \"\"").start();
    let server = options.start();
    for server in [&old, &server] {
        let nameless = format!("redis://127.0.0.1:{}", server.port());
        let advice = "ClientBuilder::password";
        refused(&nameless, ErrorKind::NoPassword, advice).await;
        let wrong = server.url().replace("right", SECRET);
        refused(&wrong, ErrorKind::WrongPassword, "check both").await;
    }
    for user in ["alice", "nobody"] {
        let wrong = server.url_of(user, SECRET);
        refused(&wrong, ErrorKind::WrongPassword, "check both").await;
    }
    let none = server.url_of("alice", "").replace(":@", "@");
    refused(&none, ErrorKind::WrongPassword, "check both").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_scripts() {
    let server = RedisServer::options()
        .config("rename-command EVALSHA \"\"")
        .start();
    refused(&server.url(), ErrorKind::Unsupported, "lacks a command").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_are_missing_or_broken() {
    let server = RedisServer::options().tls_clients().start();
    refused(&server.url(), ErrorKind::Unreachable, "?cert=FILE&key=FILE").await;

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let url = |name: &str| format!("rediss://u:{SECRET}@localhost:1?{name}={}", file.display());
    refused(&url("ca"), ErrorKind::InvalidConfig, "cannot be read").await;
    fs::write(&file, "not a certificate").unwrap();
    refused(
        &url("ca"),
        ErrorKind::InvalidConfig,
        "contains no CERTIFICATE block",
    )
    .await;
    let (begin, end) = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----");
    fs::write(&file, format!("{begin}\nAAAA\n{end}\n")).unwrap();
    refused(&url("ca"), ErrorKind::InvalidConfig, "cannot be used").await;
    let pair = format!("{}&key={}", url("cert"), file.display());
    refused(
        &pair,
        ErrorKind::InvalidConfig,
        "contains no PRIVATE KEY block",
    )
    .await;
}
