//! The status of a latch: the last element of its list, so that one command reads it.

use leasehold_core::{LatchCount, LatchStatus};
use redis::{Cmd, Value, cmd};

use super::codec::text;
use super::keys::record_key;
use crate::store::api::Key;

/// The command that reads it, behind the key.
pub(super) fn command(key: &Key) -> (String, Cmd) {
    let (record, mut last) = (record_key(key).to_string(), cmd("LINDEX"));
    last.arg(&record).arg(-1);
    (record, last)
}

/// Parses the status of a latch. `None` if the value is not one of this library.
pub(super) fn parse(value: &Value) -> Option<LatchStatus> {
    let value = text(value)?;
    let (arrived, count) = value.strip_prefix("latch ")?.split_once(' ')?;
    let number = |text: &str| {
        let number = text.parse::<u32>().ok();
        number.filter(|number| number.to_string() == text)
    };
    let status = LatchStatus {
        arrived: number(arrived)?,
        count: LatchCount::new(number(count)?)?.get(),
    };
    (1..=status.count)
        .contains(&status.arrived)
        .then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_library_writes_is_a_latch() {
        let parsed = |text: &str| parse(&Value::BulkString(text.as_bytes().to_vec()));
        for (text, arrived, count) in [("latch 1 1", 1, 1), ("latch 7 10000", 7, 10_000)] {
            assert_eq!(parsed(text), Some(LatchStatus { arrived, count }));
        }
        for other in [
            "",
            "latch",
            "latch 1",
            "latch 1 2 3",
            "latch 0 2",
            "latch 3 2",
            "latch 01 2",
            "latch +1 2",
            "latch 1 10001",
            "latch 1 99999999999",
            ":latch 1 2",
        ] {
            assert_eq!(parsed(other), None, "{other}");
        }
        assert_eq!(parse(&Value::Nil), None);
    }
}
