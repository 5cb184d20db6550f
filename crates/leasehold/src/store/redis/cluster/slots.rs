//! The slots of keys.

use crate::store::api::Key;

/// The number of slots in every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of the record, the counter and the queue of a name, which have the hash tag `tenant:name`.
pub(super) fn of(key: &Key) -> u16 {
    let tenant = key.space.tenant().as_str().as_bytes();
    let crc = crc16(0, tenant);
    let crc = crc16(crc, b":");
    crc16(crc, key.name.as_str().as_bytes()) % SLOTS
}

/// The slot of any key: of its hash tag between the first brace and the next closing one, unless that is
/// empty, otherwise of the whole key.
pub(super) fn of_text(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    crc16(0, tag.unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16 as in the servers: XMODEM, with the polynomial 0x1021.
fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, byte| {
        let at = usize::from((crc >> 8) as u8 ^ byte);
        (crc << 8) ^ TABLE[at]
    })
}

const TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = (at as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            let carry = crc & 0x8000 != 0;
            crc <<= 1;
            if carry {
                crc ^= 0x1021;
            }
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::super::super::keys::{counter_key, queue_key, record_key};
    use super::*;
    use crate::store::api::fixture;

    /// The first from the specification of Redis Cluster, the others from a server.
    #[test]
    fn slots_are_those_of_servers() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(of_text("app:{t:a}"), 4_625);
        assert_eq!(of_text("foo3"), 5_173);
        assert_eq!(of_text("zzz"), 10_118);
        assert_eq!(of_text("a1"), 7_785);
        // Only the first tag counts, unless it is empty.
        assert_eq!(of_text("x{a}{b}"), of_text("a"));
        assert_ne!(of_text("x{}{a}"), of_text("a"));
    }

    #[test]
    fn all_keys_of_a_name_are_in_its_slot() {
        for name in ["orders/42", "a:token", ":", "昼"] {
            let key = fixture::key(name);
            let keys = [
                record_key(&key).to_string(),
                counter_key(&key).to_string(),
                queue_key(&key).to_string(),
            ];
            for text in keys {
                assert_eq!(of_text(&text), of(&key), "{text}");
            }
        }
    }
}
