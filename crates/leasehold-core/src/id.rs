//! The ids of clients, leases and owners.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// One process's connection to a store: 128 random bits, drawn when the client is built.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId([u8; 16]);

impl ClientId {
    /// A client id from random bytes.
    #[must_use]
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatting it as a number takes ten times as long.
        let digit = |bits: u8| b"0123456789abcdef"[usize::from(bits)];
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        f.write_str(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClientId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if !hex {
            return Err(IdError);
        }
        u128::from_str_radix(text, 16)
            .map(|bits| Self(bits.to_be_bytes()))
            .map_err(|_| IdError)
    }
}

/// One acquisition: `<client id>:<number>`.
///
/// An id is used for one acquisition only. That makes every late, lost or repeated message about it harmless: it
/// can only concern this one grant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId {
    /// The client that acquires.
    pub client: ClientId,
    /// The number of its acquisition, from 1.
    pub number: u64,
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.number)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LeaseId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (client, number) = text.split_once(':').ok_or(IdError)?;
        let plain = number.bytes().all(|b| b.is_ascii_digit());
        Ok(Self {
            client: client.parse()?,
            number: number
                .parse()
                .ok()
                .filter(|_| plain && (number == "0" || !number.starts_with('0')))
                .ok_or(IdError)?,
        })
    }
}

/// An owner that may re-enter a lock: known inside one client only, never sent to a store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OwnerId(pub NonZeroU64);

/// A text that is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdError;

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an id written by leasehold")
    }
}

impl std::error::Error for IdError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_the_way_through_text() {
        let id = LeaseId {
            client: ClientId::from_random([0xab; 16]),
            number: 42,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", ":", "abab:1", "00:+1", &format!("{}:+4", id.client)] {
            assert_eq!(text.parse::<LeaseId>(), Err(IdError), "{text}");
        }
        assert_eq!(
            format!("{}:007", id.client).parse::<LeaseId>(),
            Err(IdError)
        );
    }
}
