//! What may be the name of a lock.

use leasehold::{Client, ErrorKind};

use crate::fixture::Fixture;

pub(super) async fn valid_names_are_locked_and_listed(fixture: Fixture) {
    let client = fixture
        .client_with(Client::builder().namespace("names"))
        .await;
    let long = "n".repeat(512);
    let names = [
        "orders/42",
        "Aufträge: Zürich",
        "昼 夜 🔒",
        " spaces at the ends ",
        "*?[a-z]\\",
        "%00",
        "'; DROP TABLE records; --",
        ":token",
        &long,
    ];
    for name in names {
        let guard = client.mutex(name).unwrap().lock().await.unwrap();
        assert_eq!(guard.name(), name);
        let listed = client.locks().await.unwrap();
        assert_eq!(listed.len(), 1, "{name}");
        assert_eq!(listed[0].name, name);
        guard.release().await.unwrap();
    }
}

pub(super) async fn invalid_names_are_refused_before_the_store(fixture: Fixture) {
    let client = fixture.client().await;
    let long = "n".repeat(513);
    for name in ["", "a{b}", "}", "a\nb", "\u{7f}", "a\0", &long] {
        let error = client.mutex(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{name:?}");
    }
}
