//! The blocking API.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::ClientBuilder;
use leasehold::blocking::Client;

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::PATIENCE;

/// Runs blocking code on a plain thread, as a program without a runtime would.
fn on_thread(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::spawn(work);
    tokio::task::block_in_place(|| thread.join()).unwrap();
}

fn connect(fixture: &Fixture, builder: ClientBuilder) -> Client {
    let url = fixture.url().unwrap_or_else(|| "memory:".to_owned());
    Client::connect_with(builder, url).unwrap()
}

pub(super) async fn threads_enter_again_and_exclude_each_other(fixture: Fixture) {
    on_thread(move || {
        let patient = ClientBuilder::default().response_timeout(PATIENCE);
        let client = connect(&fixture, patient);
        let mutex = client.mutex(fresh_name("thread")).unwrap();
        let outer = mutex.lock().unwrap();
        let inner = mutex.lock().unwrap();
        assert_eq!(inner.lease_id(), outer.lease_id());
        assert_eq!(client.block_on(mutex.inspect()).unwrap().unwrap().count, 2);
        std::thread::scope(|scope| {
            let stranger = scope.spawn(|| {
                assert!(mutex.try_lock().unwrap().is_none());
                let limited = mutex.lock_timeout(Duration::from_secs(1));
                assert!(limited.unwrap().is_none());
            });
            stranger.join().unwrap();
        });
        inner.release().unwrap();
        outer.release().unwrap();
        let again = mutex.try_lock().unwrap().unwrap();
        assert!(again.state().is_held());
        again.release().unwrap();

        let inside = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let guard = mutex.lock().unwrap();
                        assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                        std::thread::yield_now();
                        inside.store(false, Ordering::SeqCst);
                        guard.release().unwrap();
                    }
                });
            }
        });
    });
}

pub(super) async fn a_lease_is_renewed_while_its_thread_is_busy(fixture: Fixture) {
    on_thread(move || {
        let ttl = Duration::from_secs(9);
        let client = connect(&fixture, ClientBuilder::default().ttl(ttl));
        let guard = client.mutex(fresh_name("busy")).unwrap().lock().unwrap();
        let begun = Instant::now();
        // Busy with something that is not the library's: no call of ours drives the renewal.
        while begun.elapsed() < ttl * 3 / 2 {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        guard.release().unwrap();
    });
}
