//! Random bytes of the system.

use crate::{Error, ErrorKind, Result};

/// Random bytes, or an error that names what they are for.
pub(crate) fn bytes<const N: usize>(what: &str) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("the system has no random numbers for {what}");
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    Ok(bytes)
}
