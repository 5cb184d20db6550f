//! Keys, values and requests in the JSON of the gateway: bytes are base64, and large numbers are texts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Bytes as the gateway takes them.
pub(super) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of a field, which is missing if it is empty. `None`: it is not base64.
pub(super) fn decoded(field: &Value) -> Option<Vec<u8>> {
    match field {
        Value::Null => Some(Vec::new()),
        Value::String(text) => STANDARD.decode(text).ok(),
        _ => None,
    }
}

/// As [`decoded`], with what is not UTF-8 replaced: a text like that is damaged, whatever it says.
pub(super) fn decoded_text(field: &Value) -> Option<String> {
    Some(String::from_utf8_lossy(&decoded(field)?).into_owned())
}

/// The text of a number, which is missing if it is 0. `None`: it is not a number.
pub(super) fn number(field: &Value) -> Option<String> {
    match field {
        Value::Null => Some("0".to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if text.parse::<i64>().is_ok() => Some(text.clone()),
        _ => None,
    }
}

/// The key behind all keys with a prefix, whose last byte is a slash.
pub(super) fn range_end(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    end.pop();
    end.push('0');
    end
}

pub(super) fn range(key: &str) -> Value {
    json!({ "request_range": { "key": encoded(key) } })
}

/// A key with a value, which goes with a lease. "0": no lease.
pub(super) fn put(key: &str, value: &str, lease: &str) -> Value {
    json!({ "request_put": { "key": encoded(key), "value": encoded(value), "lease": lease } })
}

pub(super) fn delete(key: &str) -> Value {
    json!({ "request_delete_range": { "key": encoded(key) } })
}

/// That a key has a value.
pub(super) fn has_value(key: &str, value: &str) -> Value {
    json!({ "key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value) })
}

/// That a key was changed last at a revision. "0": there is none.
pub(super) fn has_revision(key: &str, revision: &str) -> Value {
    json!({ "key": encoded(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision })
}

/// The first key in the reply to a range, or null. `None`: there is no such reply.
pub(super) fn first_of(reply: &Value, nth: usize) -> Option<&Value> {
    let range = &reply["responses"][nth]["response_range"];
    range.is_object().then(|| &range["kvs"][0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_empty_or_zero() {
        let reply = json!({ "responses": [{ "response_range": { "header": {} } }, {}] });
        assert_eq!(first_of(&reply, 0), Some(&Value::Null));
        assert_eq!(first_of(&reply, 1), None);
        assert_eq!(first_of(&Value::Null, 0), None);
        assert_eq!(number(&Value::Null).as_deref(), Some("0"));
        assert_eq!(number(&json!("12")).as_deref(), Some("12"));
        assert_eq!(number(&json!("x")), None);
        assert_eq!(decoded(&Value::Null), Some(Vec::new()));
        assert_eq!(decoded(&json!("%")), None);
        assert_eq!(range_end("leasehold/doc/"), "leasehold/doc0");
    }
}
