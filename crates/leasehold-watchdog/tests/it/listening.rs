//! Where a node listens, and one clear sentence if it cannot.

use std::error::Error as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;

use leasehold_watchdog::{Error, Listen, Node, Settings};

use crate::fixture::Fixture;
use crate::raw::Raw;

async fn fails(settings: Settings) -> Error {
    match Node::start(settings).await {
        Ok(node) => panic!("it listens at {:?}", node.addresses()),
        Err(error) => error,
    }
}

fn at(fixture: &Fixture, listen: &str) -> Settings {
    Settings {
        listen: vec![Listen::parse(listen).unwrap()],
        ..fixture.settings()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_socket_is_only_its_users_and_goes_with_it() {
    let fixture = Fixture::make().await;
    let node = fixture.node().await;
    let about = fs::metadata(&fixture.socket).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let folder = fs::metadata(fixture.socket.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    assert_eq!(node.addresses(), [Listen::Unix(fixture.socket.clone())]);
    node.stop().await;
    node.stopped().await;
    assert!(!fixture.socket.exists());
    let open = Settings {
        socket_mode: 0o666,
        ..fixture.settings()
    };
    let node = Node::start(open).await.unwrap();
    let about = fs::metadata(&fixture.socket).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o666);
    drop(node);
    leasehold_testkit::eventually(crate::fixture::SOON, || !fixture.socket.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_was_left_behind_is_replaced_and_a_live_one_is_not() {
    let fixture = Fixture::make().await;
    fs::create_dir_all(fixture.socket.parent().unwrap()).unwrap();
    drop(UnixListener::bind(&fixture.socket).unwrap());
    assert!(fixture.socket.exists());
    let _node = fixture.node().await;
    let _ = Raw::observer(&fixture);
    let error = fails(fixture.settings()).await;
    let path = fixture.socket.display();
    assert_eq!(
        error.to_string(),
        format!("cannot listen at unix:{path}: somebody listens there already")
    );
    let _ = Raw::observer(&fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_socket_is_left_alone() {
    let fixture = Fixture::make().await;
    let file = fixture.folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let error = fails(at(&fixture, &format!("unix:{}", file.display()))).await;
    assert!(
        error
            .to_string()
            .ends_with("there is a file that is not a socket"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    let error = fails(at(
        &fixture,
        &format!("unix:{}/below/socket", file.display()),
    ))
    .await;
    assert!(
        error.to_string().ends_with("its folder cannot be made"),
        "{error}"
    );
    let long = fixture.folder.path().join("n".repeat(200));
    let error = fails(at(&fixture, &format!("unix:{}", long.display()))).await;
    assert!(
        error
            .to_string()
            .ends_with("the path is too long for a socket"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights_it_says_so() {
    let fixture = Fixture::make().await;
    // Nobody may make files there, whoever he is.
    let error = fails(at(&fixture, "unix:/sys/kernel/leasehold.sock")).await;
    assert!(
        error
            .to_string()
            .ends_with("this user may not write into its folder"),
        "{error}: {:?}",
        error.source()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_make_no_sense_are_refused() {
    let fixture = Fixture::make().await;
    let nowhere = Settings {
        listen: vec![],
        ..fixture.settings()
    };
    assert_eq!(
        fails(nowhere).await.to_string(),
        "a node needs an address to listen at"
    );
    let nothing = Settings {
        stores: vec![],
        ..fixture.settings()
    };
    assert_eq!(
        fails(nothing).await.to_string(),
        "a node needs a store to serve"
    );
    let error = fails(at(&fixture, "tcp://127.0.0.1:0")).await;
    assert!(error.to_string().contains("needs a certificate"), "{error}");
    let error = fails(at(&fixture, "systemd:")).await;
    assert!(error.to_string().contains("has given no socket"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_store_is_no_reason_not_to_start() {
    let mut fixture = Fixture::make().await;
    fixture.redis.kill9();
    let _node = fixture.node().await;
    let mut client = Raw::client(&fixture, 1);
    fixture.redis.restart(leasehold_testkit::Restart::Empty);
    // It is opened when it is there.
    fixture
        .acquire(1, 1, "lock", std::time::Duration::from_secs(2))
        .await;
    let registered = client.asks(&leasehold::__private::wire::ToNode::Changes(
        leasehold::__private::wire::Changes {
            batch: 1,
            register: vec![crate::raw::registration(1, "lock", 60_000)],
            unregister: vec![],
        },
    ));
    assert!(registered.is_some());
}
