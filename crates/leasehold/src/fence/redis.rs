//! Values in a Redis server that a late holder cannot write.
//!
//! [`WRITE`] is a script that writes a value unless a later holder has written it already. It needs no crate: any client
//! calls `EVAL` with [`WRITE`] and [`arguments`].
//!
//! With the crate feature `redis`, `write`, which has an example, does that over a connection of the `redis` crate,
//! version 1, to a single server, Sentinel or a cluster. A connection of another version does not compile as its argument.
//! A `ConnectionManager` (feature `connection-manager`) reconnects:
//!
//! ```toml
//! redis = { version = "1", features = ["tokio-comp"] }
//! ```

#[cfg(feature = "redis")]
use redis::aio::ConnectionLike;
#[cfg(feature = "redis")]
use redis::{ErrorKind as RedisErrorKind, RedisError, RedisResult, Script, Value};

#[cfg(feature = "redis")]
use super::Stale;
use crate::Token;

/// The script. The comment at its top describes its arguments and replies.
pub const WRITE: &str = include_str!("write.lua");

/// The suffix of the key of a fence.
const SUFFIX: &str = ":fence";

/// Writes a value unless a later holder has written it already.
///
/// The largest token is stored beside it, in the same slot of a cluster: under `{KEY}:fence`, or `KEY:fence` if the key has a
/// hash tag of its own. A few keys, such as `a}b` and `{}a`, can have no such key.
///
/// The outer result is that of the server, the inner one that of the check. After an outer error, the
/// value may have been written; a retry with the same token is safe.
///
/// ```
/// # use leasehold::Token;
/// use leasehold::fence::redis::{WRITE, arguments, write};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let server = leasehold_testkit::RedisServer::start();
/// # let url = server.url();
/// let client = redis::Client::open(url)?;
/// let mut connection = client.get_multiplexed_async_connection().await?;
/// # let (early, late) = (Token::new(7).unwrap(), Token::new(8).unwrap());
/// // early and late are guard.token() of two holders.
/// write(&mut connection, "stock:42", late, b"5 left").await??;
/// let stale = write(&mut connection, "stock:42", early, b"6 left").await?;
/// assert_eq!(stale.unwrap_err().newest, late);
///
/// // The same with any client.
/// let arguments = arguments("stock:42", late, b"4 left").expect("a key that has a fence key");
/// let mut eval = redis::cmd("EVAL");
/// eval.arg(WRITE).arg(&arguments[..]);
/// let reply: redis::Value = eval.query_async(&mut connection).await?;
/// assert_eq!(reply, redis::Value::Int(1)); // or the newest token as text: this holder is late
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Errors
///
/// The errors of the connection and of the server. A key that can have no key for its fence is a client error, and
/// nothing is sent.
///
/// # Cancel safety
///
/// If the future is dropped, the value may have been written, or may still be.
#[cfg(feature = "redis")]
pub async fn write(
    connection: &mut impl ConnectionLike,
    key: &str,
    token: Token,
    value: &[u8],
) -> RedisResult<Result<(), Stale>> {
    let fence = fence_key(key).ok_or_else(|| {
        let message = "the braces in the key leave no fence key in the same slot of a cluster";
        RedisError::from((RedisErrorKind::InvalidClientConfig, message))
    })?;
    let script = Script::new(WRITE);
    let mut call = script.key(key);
    call.key(fence).arg(token.get()).arg(value);
    let strange = || {
        let message = "the reply of the fence script is invalid";
        RedisError::from((RedisErrorKind::UnexpectedReturnType, message))
    };
    match call.invoke_async(connection).await? {
        Value::Int(1) => Ok(Ok(())),
        Value::BulkString(newest) => {
            let newest = str::from_utf8(&newest)
                .ok()
                .and_then(|text| text.parse().ok());
            let newest = newest.and_then(Token::new).ok_or_else(strange)?;
            Ok(Err(Stale { token, newest }))
        }
        _ => Err(strange()),
    }
}

/// The arguments of `EVAL` behind the script: the number of the keys, the key of the value, that of its fence, the token
/// and the value. `None`: the key can have no key for its fence.
///
/// The reply is the number 1 if the value was written. Otherwise it is the newest token as text: the caller is late, and
/// must stop.
#[must_use]
pub fn arguments(key: &str, token: Token, value: &[u8]) -> Option<[Vec<u8>; 5]> {
    let fence = fence_key(key)?;
    Some([
        b"2".to_vec(),
        key.into(),
        fence.into(),
        token.to_string().into(),
        value.to_vec(),
    ])
}

/// The key of the fence of a key, in the same slot of a cluster: `{KEY}:fence`, or `KEY:fence` if
/// the key has a hash tag of its own.
///
/// `None` for the few keys from which no other key in their slot can be derived, such as `a}b` and `{}a`.
fn fence_key(key: &str) -> Option<String> {
    let (_, rest) = key.split_once('{').unwrap_or_default();
    match rest.split_once('}') {
        Some((tag, _)) if !tag.is_empty() => Some(format!("{key}{SUFFIX}")),
        _ if key.is_empty() || key.contains('}') => None,
        _ => Some(format!("{{{key}}}{SUFFIX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_in_the_slot_of_its_value() {
        for (key, fence) in [
            ("stock", Some("{stock}:fence")),
            ("stock:{42}:left", Some("stock:{42}:left:fence")),
            ("stock{", Some("{stock{}:fence")),
            ("{a}{b}", Some("{a}{b}:fence")),
            ("", None),
            ("a}b", None),
            ("{}a", None),
        ] {
            assert_eq!(fence_key(key).as_deref(), fence, "{key}");
        }
    }
}
