//! URLs, credentials and protocols at connect.

use super::*;
use crate::store_ext::StoreExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn over_tcp_and_into_a_database() {
    let (server, store) = server_and_store().await;
    works(&*store).await;
    assert_eq!(store.to_string(), server.url());

    let third = server.url().replace("/0", "/3");
    let store = open(&third).await;
    granted(&*store, acquire("here", 1)).await;
    assert_eq!(store.to_string(), third);
    assert!(server.cli(&["INFO", "keyspace"]).contains("db3:keys=2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_unix_socket() {
    let server = RedisServer::options()
        .unix_socket()
        .acl("alice", "wonder", "~app:* +@all")
        .start();
    works(&*open(&server.url()).await).await;
    works(&*open(&server.url().replace("unix:", "unix://")).await).await;

    let url = format!("{}?db=2&user=alice", server.url());
    let store = open_as(&url, "wonder").await;
    granted(&*store, acquire("here", 1)).await;
    assert!(server.cli(&["INFO", "keyspace"]).contains("db2:"));
    assert!(server.cli(&["CLIENT", "LIST"]).contains("user=alice"));
    assert_eq!(store.to_string(), url);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_password_from_the_url_or_beside_it() {
    let server = RedisServer::options().requirepass("s3cret").start();
    works(&*open(&server.url()).await).await;
    let without = format!("redis://127.0.0.1:{}", server.port());
    works(&*open_as(&without, "s3cret").await).await;
    let wrong = server.url().replace("s3cret", "wrong");
    let store = open_as(&wrong, "s3cret").await;
    works(&*store).await;
    for text in [store.to_string(), format!("{store:?}")] {
        let secret = text.contains("s3cret") || text.contains("wrong");
        assert!(!secret, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_a_user_with_odd_characters() {
    let server = RedisServer::options().start();
    let password = "p@ss:w/rd#?%é";
    let secret = format!(">{password}");
    server.cli(&["ACL", "SETUSER", "a@b", "on", &secret, "~app:*", "+@all"]);
    let encoded = "p%40ss%3Aw%2Frd%23%3F%25%C3%A9";
    works(&*open(&server.url_of("a%40b", encoded)).await).await;
    let nameless = server.url_of("a%40b", "").replace(":@", "@");
    works(&*open_as(&nameless, password).await).await;

    server.cli(&["ACL", "SETUSER", "open", "on", "nopass", "~app:*", "+@all"]);
    let open_user = server.url_of("open", "").replace(":@", "@");
    works(&*open(&open_user).await).await;
    assert!(server.cli(&["ACL", "LOG"]).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_a_certificate_of_the_client() {
    let server = RedisServer::options().tls_clients().start();
    let url = format!("{}&{}", server.url(), server.client_certificate());
    let store = open(&url).await;
    works(&*store).await;
    works(&*open(&store.to_string()).await).await;
}

/// With a user and a password that are not in the URL, and certificates in memory.
#[tokio::test(flavor = "multi_thread")]
async fn with_credentials_beside_the_url() {
    let rules = "~leasehold:* &leasehold:* +@all";
    let acl = RedisServer::options().acl("alice", "wonder", rules);
    let builder = || Client::builder().username("alice").password("wonder");
    let server = acl.clone().tls_clients().start();
    let [ca, cert, key] = server.certificates();
    let url = format!("rediss://localhost:{}/3", server.port());
    let trusting = || builder().tls_ca(&ca);
    let known = || trusting().tls_identity(&cert, key.as_str());
    let client = known().connect(&url).await.unwrap();
    lock(&client, "here").await.release().await.unwrap();
    assert!(server.cli(&["INFO", "keyspace"]).contains("db3:"));
    assert!(server.cli(&["CLIENT", "LIST"]).contains("user=alice"));
    let shown = format!("rediss://alice@localhost:{}/3", server.port());
    assert_eq!(client.store().to_string(), shown);
    let shown_by_debug = format!("{:?} {client:?}", known());
    for secret in ["PRIVATE KEY", "wonder"] {
        assert!(!shown_by_debug.contains(secret), "{shown_by_debug}");
    }
    // Certificates in memory replace those in the URL, which need not exist.
    let none = format!("{shown}?ca=/none&cert=/none&key=/none");
    known().connect(&none).await.unwrap();

    let error = trusting().connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    for (builder, wrong) in [
        (
            builder().tls_ca("no PEM"),
            "ClientBuilder::tls_ca contains no CERTIFICATE block",
        ),
        (
            trusting().tls_identity(&cert, "no PEM"),
            "ClientBuilder::tls_identity contains no PRIVATE KEY block",
        ),
    ] {
        let error = builder.connect(&url).await.unwrap_err();
        assert_error(&error, ErrorKind::InvalidConfig, &[wrong]);
    }
    let plain = format!("redis://localhost:{}", server.port());
    let error = known().connect(&plain).await.unwrap_err();
    assert!(error.to_string().contains("without TLS"), "{error}");

    let server = acl.unix_socket().start();
    let client = builder().connect(server.url()).await.unwrap();
    lock(&client, "here").await.release().await.unwrap();
    assert!(server.cli(&["CLIENT", "LIST"]).contains("user=alice"));
}

/// As servers before 6.0 and some hosted ones.
#[tokio::test(flavor = "multi_thread")]
async fn to_a_server_that_does_not_know_hello() {
    let server = RedisServer::options()
        .requirepass("s3cret")
        .acl("alice", "wonder", "~app:* +@all")
        .config("rename-command HELLO \"\"")
        .start();
    works(&*open(&server.url()).await).await;
    works(&*open(&server.url_of("alice", "wonder")).await).await;
    let store = open(&server.url().replace("/0", "/3")).await;
    granted(&*store, acquire("here", 1)).await;
    let entry = store.inspect(&key("here")).await.unwrap().unwrap();
    assert_eq!(entry.lease, lease(1));
    assert!(server.cli(&["INFO", "keyspace"]).contains("db3:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_timeouts_of_any_length() {
    let server = RedisServer::start();
    let options = OpenOptions::default()
        .connect_timeout(Duration::MAX)
        .response_timeout(Duration::MAX);
    works(&*open_with(&server.url(), options).await).await;
}

async fn open_as(url: &str, password: &str) -> Arc<dyn Store> {
    open_with(url, OpenOptions::default().password(password)).await
}
