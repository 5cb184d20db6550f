//! Parses the annotations of names: texts that holders keep beside the records of their locks.

use leasehold_core::annotation::ANNOTATION_BYTES_MAX;
use leasehold_core::{Annotation, Token};
use redis::Value;

/// Parses an annotation. `None` if the value is not one of this library.
pub(crate) fn parse(value: &Value) -> Option<Annotation> {
    match value {
        Value::BulkString(value) => parse_text(str::from_utf8(value).ok()?),
        _ => None,
    }
}

/// Parses the text of an annotation.
pub(crate) fn parse_text(value: &str) -> Option<Annotation> {
    let mut parts = value.splitn(4, ' ');
    let (lease, token) = (parts.next()?, parts.next()?);
    let (number, text) = (parts.next()?, parts.next()?);
    let first = token.parse().ok().and_then(Token::new)?;
    // A number has one spelling.
    let is_number = number.parse().is_ok_and(|it: u64| it.to_string() == number);
    let is_valid = is_number && first.to_string() == token && text.len() <= ANNOTATION_BYTES_MAX;
    is_valid.then_some(Annotation {
        lease: lease.parse().ok()?,
        token: first,
        text: text.into(),
    })
}
