//! Addresses, users and what replies there.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use leasehold_testkit::RedisServer;

use super::*;
use crate::store_ext::StoreExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_a_certificate_of_the_client() {
    let cluster = EtcdCluster::options().tls().start(1);
    let url = cluster.url();
    let store = open(&url).await;
    works(&*store).await;
    assert_eq!(store.to_string(), url);

    let (base, query) = url.split_once('?').unwrap();
    let plain = base.replace("etcds://", "etcd://");
    let (ca, _) = query.split_once('&').unwrap();
    let with_ca = format!("{base}?{ca}");
    for (url, advice) in [
        (&*plain, "etcds://"),
        (base, "TLS handshake"),
        (&*with_ca, ""),
    ] {
        let error = refused(url).await;
        assert_error(&error, ErrorKind::Unreachable, &[advice]);
    }
    let cluster = EtcdCluster::start();
    let error = refused(&cluster.url().replace("etcd://", "etcds://")).await;
    assert!(error.to_string().contains("write etcd://"), "{error}");
}

/// What one prefix has is not in another.
#[tokio::test(flavor = "multi_thread")]
async fn below_a_prefix() {
    let cluster = EtcdCluster::start();
    let [one, two] = ["team/one", "two"].map(|prefix| format!("{}/{prefix}", cluster.url()));
    granted(&*open(&one).await, acquire("a", 1)).await;
    granted(&*open(&two).await, acquire("a", 2)).await;
    let again = applied(&*open(&one).await, acquire("a", 2)).await;
    assert!(matches!(again, leasehold_core::Outcome::Refused { .. }));
    let key = "team/one/doc/app/t/a";
    assert!(
        value(&cluster, key).contains('\n'),
        "{}",
        value(&cluster, key)
    );
    assert_eq!(
        cluster.ctl(&["get", "leasehold/", "--prefix", "--keys-only"]),
        ""
    );
}

/// More of them than a part of a list has, and none of them a name.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_goes_on_behind_keys_of_other_programs() {
    let cluster = EtcdCluster::start();
    let store = open(&cluster.url()).await;
    granted(&*store, acquire("a", 1)).await;
    let keys: Vec<_> = (0..1_001)
        .map(|number| format!("leasehold/doc/app/t/0{{{number:04}"))
        .collect();
    cluster.put_all(&keys);
    let listed = tokio::time::timeout(SOON, store.held(&space())).await;
    assert_eq!(listed.expect("the list ends").unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_user_that_has_the_rights_and_a_new_token_after_a_restart() {
    let mut cluster = EtcdCluster::start();
    let plain = cluster.url();
    let error = refused(&cluster.url_of("app", "s3cret")).await;
    assert_error(&error, ErrorKind::InvalidConfig, &["etcdctl auth enable"]);

    cluster.enable_auth("app", "s3cr:et", "leasehold/");
    assert_eq!(refused(&plain).await.kind(), ErrorKind::NoPassword);
    let no_password = plain.replace("etcd://", "etcd://app@");
    assert_eq!(refused(&no_password).await.kind(), ErrorKind::NoPassword);
    let wrong = refused(&cluster.url_of("app", "wr0ng")).await;
    assert_eq!(wrong.kind(), ErrorKind::WrongPassword);
    assert!(!format!("{wrong:?}{wrong}").contains("wr0ng"), "{wrong:?}");
    let url = cluster.url_of("app", "s3cr%3Aet");
    let other = refused(&format!("{url}/other")).await;
    assert_error(&other, ErrorKind::Unauthorized, &["role grant-permission"]);

    let store = open(&url).await;
    works(&*store).await;
    assert_eq!(store.to_string(), no_password);
    assert!(!format!("{store:?}").contains("s3cr"), "{store:?}");
    let options = OpenOptions::default().username("app").password("s3cr:et");
    let [near, far] = [open_with(&plain, options).await, open(&url).await];
    let [near, far] = [(&near, 1), (&far, 2)].map(|(store, number)| StoreClient::on(store, number));
    passes_on(&near, &far, "passed").await;

    // The server forgets its tokens.
    cluster.kill9(0);
    cluster.restart(0);
    until_works(&*store, "a").await;
}

/// Each error names the store, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_clear_error() {
    let redis = RedisServer::start();
    for (url, kind, advice) in [
        (
            "etcd://127.0.0.1:1".to_owned(),
            ErrorKind::Unreachable,
            "check host, port and firewall",
        ),
        (
            format!("etcd://127.0.0.1:{}", redis.port()),
            ErrorKind::Unreachable,
            "closed the connection",
        ),
        (impostor(), ErrorKind::Unreachable, "clients (2379)"),
        (
            "etcd://h?x=1".to_owned(),
            ErrorKind::InvalidConfig,
            "etcds://",
        ),
        (
            "etcds://h?ca=/none".to_owned(),
            ErrorKind::InvalidConfig,
            "/none",
        ),
    ] {
        assert_refused(&url, kind, advice, "etcd").await;
    }
}

/// A server of the older HTTP.
fn impostor() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A client may open several connections, and use a later one first.
            thread::spawn(move || {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
            });
        }
    });
    format!("etcd://127.0.0.1:{port}")
}
