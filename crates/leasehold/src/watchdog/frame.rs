//! Frames: the encoding of messages in a stream of bytes.
//!
//! ```text
//! length: u32, big-endian    bytes that follow, version included: 1 to 65,536
//! version: u8                3
//! message                    postcard, to the last byte
//! ```

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version of the protocol. Ids of clients proved nothing in version 1. In version 2, clients kept using
/// a node that did not watch all of their processes.
pub const VERSION: u8 = 3;

/// The length of the longest frame in bytes, without the length field.
pub const FRAME_MAX: usize = 64 * 1024;

const LENGTH: usize = 4;

/// The capacity that an empty decoder keeps, in bytes: thousands of connections may be idle.
const IDLE_MAX: usize = 1_024;

/// An invalid frame. The rest of the stream cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// An empty frame.
    Empty,
    /// A frame of so many bytes, more than [`FRAME_MAX`].
    TooLong(usize),
    /// A frame of another version.
    Version(u8),
    /// Not exactly one message of the expected type.
    Message,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an empty frame"),
            Self::TooLong(length) => write!(f, "a frame of {length} bytes, at most {FRAME_MAX}"),
            Self::Version(version) => {
                write!(
                    f,
                    "the other side has version {version} of the protocol, this one version {VERSION}: \
                     use the same release of leasehold on both"
                )
            }
            Self::Message => f.write_str("a frame without a valid message"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Encodes a message as a frame.
///
/// # Errors
///
/// [`FrameError::TooLong`] if it does not fit.
pub fn encode(message: &impl Serialize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; LENGTH];
    frame.push(VERSION);
    let mut frame = postcard::to_extend(message, frame).map_err(|_| FrameError::Message)?;
    let length = frame.len() - LENGTH;
    match u32::try_from(length) {
        Ok(short) if length <= FRAME_MAX => {
            frame[..LENGTH].copy_from_slice(&short.to_be_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLong(length)),
    }
}

/// Decodes messages from a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    read: Vec<u8>,
    /// The number of bytes that were decoded.
    decoded: usize,
}

impl Decoder {
    /// Adds bytes that were read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.read.drain(..self.decoded);
        self.decoded = 0;
        if self.read.is_empty() {
            self.read.shrink_to(IDLE_MAX);
        }
        self.read.extend_from_slice(bytes);
    }

    /// The next message. `None`: it is not complete yet. After an error, nothing more can be decoded.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if the next frame is invalid.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = self.read.get(self.decoded..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > FRAME_MAX {
            return Err(FrameError::TooLong(length));
        }
        if let Some(version) = rest.first().filter(|version| **version != VERSION) {
            return Err(FrameError::Version(*version));
        }
        let Some(frame) = rest.get(..length) else {
            return Ok(None);
        };
        let (_, message) = frame.split_first().ok_or(FrameError::Empty)?;
        let (message, rest) =
            postcard::take_from_bytes(message).map_err(|_| FrameError::Message)?;
        if !rest.is_empty() {
            return Err(FrameError::Message);
        }
        self.decoded += LENGTH + length;
        Ok(Some(message))
    }

    /// Whether bytes are left that were not decoded.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.decoded < self.read.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_decoded_from_chunks_of_any_size() {
        let messages = ["", "a", "a longer message"];
        let frames = messages.map(|message| encode(&message).unwrap());
        let bytes = frames.concat();
        for step in 1..bytes.len() {
            let mut decoder = Decoder::default();
            let mut found = Vec::new();
            for part in bytes.chunks(step) {
                decoder.push(part);
                while let Some(message) = decoder.message::<String>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages);
            assert!(!decoder.is_inside());
        }
    }

    #[test]
    fn an_invalid_frame_is_refused_at_its_first_invalid_byte() {
        for (bytes, refused) in [
            (&[0, 0, 0][..], Ok(None)),
            (&[0, 0, 0, 0], Err(FrameError::Empty)),
            (&[0, 1, 0, 1], Err(FrameError::TooLong(65_537))),
            (&[0, 0, 0, 9, 1], Err(FrameError::Version(1))),
            (b"GET /", Err(FrameError::TooLong(0x4745_5420))),
            // A text of five bytes with only one of them, and a text with a byte too many.
            (&[0, 0, 0, 3, VERSION, 5, 1], Err(FrameError::Message)),
            (&[0, 0, 0, 4, VERSION, 1, 1, 2], Err(FrameError::Message)),
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert_eq!(decoder.message::<String>(), refused);
        }
        let long = encode(&"a".repeat(FRAME_MAX));
        assert_eq!(long, Err(FrameError::TooLong(FRAME_MAX + 4)));
    }
}
