//! Parses the annotations of names: texts that holders keep beside the records of their locks.

use leasehold_core::annotation::ANNOTATION_BYTES_MAX;
use leasehold_core::{Annotation, Token};
use redis::Value;

/// Parses an annotation. `None` if the value is not one of this library.
pub(super) fn parse(value: &Value) -> Option<Annotation> {
    match value {
        Value::BulkString(value) => parse_text(str::from_utf8(value).ok()?),
        _ => None,
    }
}

/// Parses the text of an annotation.
pub(super) fn parse_text(value: &str) -> Option<Annotation> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture::lease;

    #[test]
    fn only_what_this_library_writes_is_an_annotation() {
        let parsed = |text: &str| parse(&Value::BulkString(text.as_bytes().to_vec()));
        let lease = lease(7);
        for text in [
            "",
            " ",
            "a b  c",
            "昼\n\0",
            &"t".repeat(ANNOTATION_BYTES_MAX),
        ] {
            let annotation = parsed(&format!("{lease} 17 0 {text}")).unwrap();
            assert_eq!((annotation.lease, annotation.token.get()), (lease, 17));
            assert_eq!(&*annotation.text, text);
        }
        let long = "t".repeat(ANNOTATION_BYTES_MAX + 1);
        for other in [
            String::new(),
            "text".to_owned(),
            format!("{lease}"),
            format!("{lease} 17 0"),
            format!("{lease} 17 x text"),
            format!("{lease} 17 01 text"),
            format!("{lease}  17 0 text"),
            format!(" {lease} 17 0 text"),
            format!("{lease} 0 0 text"),
            format!("{lease} 017 0 text"),
            format!("{lease} +17 0 text"),
            format!("{lease} 9007199254740992 0 text"),
            format!("{lease}x 17 0 text"),
            format!("{lease} 17 0 {long}"),
        ] {
            assert_eq!(parsed(&other), None, "{other}");
        }
        let invalid = [format!("{lease} 17 0 ").as_bytes(), b"\xff"].concat();
        assert_eq!(parse(&Value::BulkString(invalid)), None);
        assert_eq!(parse(&Value::Nil), None);
    }
}
