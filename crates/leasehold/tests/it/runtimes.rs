//! Clients in runtimes that do not suit them.

use std::time::Duration;

use leasehold::{Client, ErrorKind, blocking};
use tokio::runtime::Builder;

use crate::store_client::assert_error;

/// A task of the store would panic in it, and the client would wait for that task.
#[test]
fn a_runtime_without_timers_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    for url in ["memory:", &file, "redis://127.0.0.1:1"] {
        let runtime = Builder::new_current_thread().enable_io().build().unwrap();
        let connected = runtime.block_on(Client::connect(url));
        let error = connected.unwrap_err();
        let words = "has no timers; build it with enable_all";
        assert_error(&error, ErrorKind::InvalidConfig, &[words]);
    }
    assert!(!directory.path().join("locks.db").exists());
}

#[test]
fn no_runtime_is_an_error() {
    let mut connecting = Box::pin(Client::connect("memory:"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(connected) = connecting.as_mut().poll(&mut context) else {
        panic!("it waits for a runtime");
    };
    let error = connected.unwrap_err();
    assert!(error.to_string().contains("leasehold::blocking"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blocking_api_refuses_to_block_a_runtime() {
    let error = blocking::Client::connect("memory:").unwrap_err();
    assert_error(&error, ErrorKind::InvalidConfig, &["async runtime"]);
}

/// As a user does it who computes in an async function.
#[test]
fn work_that_blocks_the_runtime_is_named_with_its_fix() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(async {
        let client = Client::builder().ttl(Duration::from_millis(300));
        let client = client.connect("memory:").await.unwrap();
        let guard = client.mutex("job").unwrap().lock().await.unwrap();
        std::thread::sleep(Duration::from_millis(400));
        guard.ensure(Duration::ZERO).await.unwrap_err()
    });
    assert_error(&error, ErrorKind::Lost, &["spawn_blocking"]);
}
