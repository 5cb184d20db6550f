//! A fencing token in a request over HTTP.
//!
//! The header [`NAME`] contains the token as a decimal number without sign or leading zero. The holder of
//! the lock sends it with each request that changes something; the resource of the request determines the
//! lock. The service responds with
//!
//! | status | when |
//! |---|---|
//! | 428 Precondition Required | the token is missing |
//! | 400 Bad Request | the token is invalid, or there are several |
//! | 412 Precondition Failed | the token is stale; the response has the newest token in the same header |
//!
//! A client that receives a 412 must stop: its lock is lost, and a retry does not help. The example
//! `fenced_http` is a layer for axum that does all of this.
//!
//! ```
//! use leasehold::Token;
//! use leasehold::fence::header;
//!
//! let token = Token::new(1_763_700_000_000_000).unwrap();
//! let line = format!("{}: {}", header::NAME, header::format(token));
//! assert_eq!(line, "fencing-token: 1763700000000000");
//! assert_eq!(header::parse(b"1763700000000000"), Ok(token));
//! assert!(header::parse(b"0x1F").is_err());
//! ```

use std::error::Error as StdError;
use std::fmt;

use crate::Token;

/// The name of the header, in lower case as HTTP/2 requires. HTTP/1.1 ignores case.
pub const NAME: &str = "fencing-token";

/// A value of the header that is not a token.
///
/// It contains no part of the value, which is untrusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadToken;

impl fmt::Display for BadToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = Token::MAX;
        write!(
            f,
            "the header {NAME} must be a decimal number from 1 to {max}"
        )
    }
}

impl StdError for BadToken {}

/// The value of the header for a token.
#[must_use]
pub fn format(token: Token) -> String {
    token.to_string()
}

/// Parses a value of the header. Blanks around the token, which HTTP allows, are ignored.
///
/// # Errors
///
/// [`BadToken`] for every value that [`format()`] does not produce: signs, leading zeros, other digits,
/// lists, numbers that are not tokens.
pub fn parse(value: &[u8]) -> Result<Token, BadToken> {
    let text = str::from_utf8(value).map_err(|_| BadToken)?;
    let digits = text.trim_matches([' ', '\t']);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| is_plain);
    number.and_then(Token::new).ok_or(BadToken)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_token_is_refused() {
        for value in [
            "",
            " ",
            "0",
            "01",
            "+1",
            "-1",
            "1 2",
            "1,2",
            "1.0",
            "1e3",
            "0x1",
            "\u{661}",
            "9007199254740992",
            "99999999999999999999",
        ] {
            assert_eq!(parse(value.as_bytes()), Err(BadToken), "{value:?}");
        }
        assert_eq!(parse(b" \t9007199254740991 "), Ok(Token::MAX));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_breaks_it(value in prop::collection::vec(any::<u8>(), 0..24)) {
            if let Ok(token) = parse(&value) {
                let text = str::from_utf8(&value).unwrap();
                prop_assert_eq!(format(token), text.trim_matches([' ', '\t']));
            }
        }
    }
}
