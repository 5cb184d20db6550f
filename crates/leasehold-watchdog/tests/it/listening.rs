//! The addresses of a node, and the errors of its start.

use std::error::Error as _;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;

use leasehold_testkit::{Certs, Restart, eventually};
use leasehold_watchdog::{Listen, Node, Settings, TlsFiles};

use crate::fixture::{Fixture, SOON, TTL};
use crate::peer::{Peer, registration};

/// Expects the start of a node to fail with a message that ends so.
async fn expect_error(settings: Settings, expected: &str) {
    match Node::start(settings).await {
        Ok(node) => panic!("it listens at {:?}", node.addresses()),
        Err(error) => {
            let message = error.to_string();
            assert!(
                message.ends_with(expected),
                "{message}: {:?}",
                error.source()
            );
        }
    }
}

fn at(fixture: &Fixture, listen: &str) -> Settings {
    let mut settings = fixture.settings();
    settings.listen = vec![Listen::parse(listen).unwrap()];
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_belongs_to_its_user_and_is_removed_with_the_node() {
    let (fixture, node) = Fixture::with_node().await;
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let socket = &*fixture.socket;
    assert!(fs::metadata(socket).unwrap().file_type().is_socket());
    assert_eq!(mode(socket), 0o600);
    assert_eq!(mode(socket.parent().unwrap()), 0o700);
    assert_eq!(node.addresses(), [Listen::Unix(socket.to_owned())]);
    node.stop().await;
    node.stopped().await;
    assert!(!socket.exists());
    let mut open = fixture.settings();
    open.socket_mode = 0o666;
    let node = Node::start(open).await.unwrap();
    assert_eq!(mode(socket), 0o666);
    drop(node);
    eventually(SOON, || !socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_without_a_listener_is_replaced_and_one_with_a_listener_is_not() {
    let fixture = Fixture::new().await;
    fs::create_dir_all(fixture.socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&fixture.socket).unwrap());
    assert!(fixture.socket.exists());
    let _node = fixture.node().await;
    let _ = Peer::observer(&fixture);
    let taken = "another process listens there already";
    expect_error(fixture.settings(), taken).await;
    let _ = Peer::observer(&fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_cannot_be_used_is_an_error() {
    let fixture = Fixture::new().await;
    let file = fixture.directory.path().join("file");
    fs::write(&file, "text").unwrap();
    let long = fixture.directory.path().join("n".repeat(200));
    let (file_path, long) = (file.display(), long.display());
    for (path, expected) in [
        (
            format!("{file_path}"),
            "there is a file that is not a socket; choose another path",
        ),
        (
            format!("{file_path}/below/socket"),
            "its directory cannot be created",
        ),
        (format!("{long}"), "the path is too long for a socket"),
        // No user may create files there.
        (
            "/sys/kernel/leasehold.sock".into(),
            "this user may not write into its directory",
        ),
    ] {
        expect_error(at(&fixture, &format!("unix:{path}")), expected).await;
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_are_refused() {
    let fixture = Fixture::new().await;
    let mut no_address = fixture.settings();
    no_address.listen.clear();
    expect_error(no_address, "a node needs an address to listen at").await;
    let mut no_store = fixture.settings();
    no_store.stores.clear();
    expect_error(no_store, "a node needs a store to serve").await;
    let no_tls = "needs a certificate: TCP connections always use TLS; name it and its key with --tls-cert and --tls-key";
    expect_error(at(&fixture, "tcp://127.0.0.1:0"), no_tls).await;
    let no_socket = "the service manager has given no socket to this process";
    expect_error(at(&fixture, "systemd:"), no_socket).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("tcp://{}", port.local_addr().unwrap());
    let certs = Certs::make();
    let mut settings = at(&fixture, &taken);
    settings.tls = Some(TlsFiles::new(&certs.server, &certs.server_key));
    let expected = format!("cannot listen at {taken}: the port is taken");
    expect_error(settings.clone(), &expected).await;
    settings.tls = Some(TlsFiles::new(&certs.server_key, &certs.server));
    expect_error(settings, "as a certificate: the file contains none").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_without_its_store() {
    let mut fixture = Fixture::new().await;
    fixture.redis.kill9();
    let _node = fixture.node().await;
    let mut client = Peer::client(&fixture, 1);
    fixture.redis.restart(Restart::Empty);
    fixture.acquire(1, 1, "lock", TTL).await;
    let registration = registration(1, "lock", TTL);
    assert_eq!(client.register([registration]), []);
    // It opens the store when that is reachable.
    fixture.wait_for_renewal("lock");
}
