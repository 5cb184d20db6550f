//! The slots of a cluster, and the buckets of names.

use std::fmt::{self, Write as _};

use leasehold_core::Name;

use crate::store::api::{Key, Keyspace};

/// The number of slots in every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of the record, the counter and the queue of a name. Their hash tag is the bucket of the name, or
/// `tenant:name` if the namespace has no buckets.
pub(crate) fn of(Key { space, name }: &Key) -> u16 {
    match bucket(space, name) {
        Some(bucket) => of_tag(format_args!("{bucket}")),
        None => of_name(space, name),
    }
}

/// The bucket of a name, if its namespace has buckets: the slot that the name would have without buckets, modulo
/// their number. Clients that compute it differently would not exclude each other.
pub(crate) fn bucket(space: &Keyspace, name: &Name) -> Option<u16> {
    let buckets = space.namespace().buckets()?;
    Some(of_name(space, name) % buckets)
}

/// The slot of the hash tag `tenant:name`.
fn of_name(space: &Keyspace, name: &Name) -> u16 {
    of_tag(format_args!("{}:{name}", space.tenant()))
}

fn of_tag(tag: fmt::Arguments<'_>) -> u16 {
    let mut crc = Crc16(0);
    crc.write_fmt(tag)
        .unwrap_or_else(|_| unreachable!("no part of a tag fails"));
    crc.0 % SLOTS
}

/// The slot of any key: of its hash tag between the first brace and the next closing one, unless that is
/// empty, otherwise of the whole key.
pub(crate) fn of_text(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map(|(tag, _)| tag)
        .filter(|tag| !tag.is_empty());
    of_tag(format_args!("{}", tag.unwrap_or(key)))
}

/// CRC-16 of the text written to it, as in the servers: XMODEM, with the polynomial 0x1021.
struct Crc16(u16);

impl fmt::Write for Crc16 {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 ^= u16::from(byte) << 8;
            for _ in 0..8 {
                let carry = self.0 & 0x8000 != 0;
                self.0 <<= 1;
                if carry {
                    self.0 ^= 0x1021;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::api::fixture;

    /// The first from the specification of Redis Cluster, the others from a server.
    #[test]
    fn slots_are_those_of_servers() {
        assert_eq!(of_text("123456789"), 0x31c3 % SLOTS);
        assert_eq!(of_text("app:{t:a}"), 4_625);
        assert_eq!(of_text("foo3"), 5_173);
        assert_eq!(of_text("zzz"), 10_118);
        assert_eq!(of_text("a1"), 7_785);
        // Only the first tag counts, unless it is empty.
        assert_eq!(of_text("x{a}{b}"), of_text("a"));
        assert_ne!(of_text("x{}{a}"), of_text("a"));
    }

    /// Numbered names use all buckets, and buckets are spread over three nodes.
    #[test]
    fn buckets_share_the_names_and_the_slots() {
        for (buckets, node_max) in [(16, 6), (64, 22), (256, 91), (1_024, 345)] {
            let space = fixture::space(&format!("app@{buckets}"), "t");
            let mut names = vec![0; buckets];
            for nth in 0..100 * buckets {
                let name = Name::parse(&format!("orders/{nth}")).unwrap();
                names[usize::from(bucket(&space, &name).unwrap())] += 1;
            }
            let mut shares = names.iter();
            assert!(shares.all(|share| (50..200).contains(share)), "{names:?}");
            let mut nodes = [0; 3];
            for bucket in 0..buckets {
                nodes[usize::from(of_text(&bucket.to_string())) * 3 / usize::from(SLOTS)] += 1;
            }
            assert_eq!(nodes.iter().max(), Some(&node_max), "{nodes:?}");
        }
    }
}
