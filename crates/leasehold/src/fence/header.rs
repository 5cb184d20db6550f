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
//! let line = format!("{}: {token}", header::NAME);
//! assert_eq!(line, "fencing-token: 1763700000000000");
//! assert_eq!(header::parse(b"1763700000000000"), Some(token));
//! assert_eq!(header::parse(b"0x1F"), None);
//! ```

use crate::Token;

/// The name of the header, in lower case as HTTP/2 requires. HTTP/1.1 ignores case.
pub const NAME: &str = "fencing-token";

/// Parses a value of the header. Blanks around the token, which HTTP allows, are ignored.
///
/// `None` for every value that is not the decimal text of a token: signs, leading zeros, other digits, lists, numbers
/// from 2^53 on.
#[must_use]
pub fn parse(value: &[u8]) -> Option<Token> {
    let text = str::from_utf8(value).ok()?;
    let digits = text.trim_matches([' ', '\t']);
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    let number = digits.parse().ok().filter(|_| is_plain);
    number.and_then(Token::new)
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
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(parse(b" \t9007199254740991 "), Some(Token::MAX));
    }

    proptest! {
        #[test]
        fn nothing_that_comes_breaks_it(value in prop::collection::vec(any::<u8>(), 0..24)) {
            if let Some(token) = parse(&value) {
                let text = str::from_utf8(&value).unwrap();
                prop_assert_eq!(token.to_string(), text.trim_matches([' ', '\t']));
            }
        }
    }
}
