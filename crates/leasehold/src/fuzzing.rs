//! Entry points of the fuzz targets: no input may break them. The tests run them on mutated inputs.

use leasehold_core::{ClientId, LeaseId, Name, Namespace, ScopeName};

pub use crate::store::redis::fuzzing::{address, key, push, reply};

/// Texts as names, scopes and ids: an accepted text is kept unchanged.
pub fn name(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else {
        return;
    };
    match Name::parse(text) {
        Ok(name) => {
            assert_eq!(name.as_str(), text);
            assert!(!text.chars().any(char::is_control));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
    match ScopeName::parse(text) {
        Ok(scope) => {
            assert_eq!(scope.as_str(), text);
            assert!(!text.contains([':', '{', '}', '*']));
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
    match Namespace::parse(text) {
        Ok(namespace) => {
            assert_eq!(namespace.as_str(), text);
            assert!(!text.contains([':', '{', '}', '*']));
            assert_eq!(namespace.buckets().is_some(), text.contains('@'));
        }
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control));
            assert!(ScopeName::parse(text).is_err());
        }
    }
    if let Ok(lease) = text.parse::<LeaseId>() {
        assert_eq!(lease.to_string(), text);
    }
    if let Ok(client) = text.parse::<ClientId>() {
        assert_eq!(client.to_string(), text);
    }
}

#[cfg(test)]
mod tests;
