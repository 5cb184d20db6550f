//! The scripts.

use std::sync::LazyLock;

use leasehold_core::job::LEAD_MAX;
use leasehold_core::lock_event::REVOCATION_RETENTION;
use leasehold_core::quorum::HIGH_STEP;
use leasehold_core::record::queue::ACCEPTANCE_MS;
use leasehold_core::token::RETENTION_MS;
use leasehold_core::{Access, Acquire, Claim, Op, Removal, Token};
use redis::{Cmd, RedisWrite as _, Value};

use super::reply::is_error;

/// The number of requests in one call of a script.
///
/// The server does nothing else during a call: 256 requests take about a millisecond. Larger calls are hardly
/// cheaper per request.
pub(crate) const REQUESTS_MAX: usize = 256;

/// A script. Each layout of a record has one of its own, because a call pays for every function that its script creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// The rule of a mutex. An operation on a record of another kind is left to the rule of that.
    Mutex,
    /// The rule of a semaphore and of a read-write lock. An operation on a mutex is left to the rule of that.
    Shares,
    /// The rule of a latch.
    Latch,
    /// Renewals in their usual form, at a third of the cost. It leaves all others to the rule.
    Renew,
    /// The same for semaphores and read-write locks.
    RenewShares,
    /// Inspects and admits one of many masters.
    Master,
}

/// The parts of the texts, in the order of the scripts.
const PARTS: [&[&str]; 6] = [
    &[
        include_str!("../scripts/plain.lua"),
        include_str!("../scripts/rule.lua"),
        include_str!("../scripts/mutex.lua"),
    ],
    &[
        include_str!("../scripts/shares_head.lua"),
        include_str!("../scripts/rule.lua"),
        include_str!("../scripts/shares.lua"),
    ],
    &[include_str!("../scripts/latch.lua")],
    &[include_str!("../scripts/renew.lua")],
    &[include_str!("../scripts/renew_shares.lua")],
    &[include_str!("../scripts/master.lua")],
];

/// The values of the names behind a `$` in the texts: those of the rule, so that no script contradicts it, and limits of the
/// scripts. As literals they cost a call nothing.
const CONSTANTS: [(&str, u64); 11] = [
    ("ACCEPTANCE_MS", ACCEPTANCE_MS),
    ("RETENTION_MS", RETENTION_MS),
    ("REVOCATION_MS", REVOCATION_RETENTION.as_secs() * 1000),
    ("TOKEN_MAX", Token::MAX.get()),
    ("HIGH_STEP", HIGH_STEP),
    // In microseconds.
    ("LEAD_MAX", LEAD_MAX.as_secs() * 1_000_000),
    // The permits of a read-write lock, which are all the writer's.
    ("ACCESS_LIMIT", Access::LIMIT),
    // About how many waiters one call passes over at most, and how many channels one `PUBSUB NUMSUB` has.
    ("PASS_MAX", 1024),
    ("PASS_CHUNK", 32),
    // As how many waiters one counts to which a message was sent, and one that was granted permits.
    ("PASS_MESSAGE", 4),
    ("PASS_GRANT", 16),
];

static TEXTS: LazyLock<[String; 6]> = LazyLock::new(|| PARTS.map(with_values));

static HASHES: LazyLock<[String; 6]> = LazyLock::new(|| {
    TEXTS
        .each_ref()
        .map(|text| redis::Script::new(text).get_hash().to_owned())
});

/// A text with the values of its names.
fn with_values(parts: &[&str]) -> String {
    let mut text = parts.concat();
    for (name, value) in CONSTANTS {
        text = text.replace(&format!("${name}"), &value.to_string());
    }
    text
}

impl Script {
    /// The script that applies an operation, if its name is a mutex or a free one. `None`: a command of its own.
    pub(crate) const fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Arrive { .. } | Op::Remove(Removal::Latch) => Some(Self::Latch),
            Op::Remove(Removal::Note(_)) | Op::Describe { .. } => None,
            Op::Convert { .. } | Op::SetLimit { .. } => Some(Self::Shares),
            Op::Acquire(Acquire {
                claim: Claim::Permits { .. } | Claim::Access(_),
                ..
            }) => Some(Self::Shares),
            _ => Some(Self::Mutex),
        }
    }

    /// Whether it applies renewals in their usual form only.
    pub(crate) const fn is_fast(self) -> bool {
        matches!(self, Self::Renew | Self::RenewShares)
    }

    /// The text of the script.
    #[must_use]
    pub fn text(self) -> &'static str {
        &TEXTS[self as usize]
    }

    /// The hash by which a server that has seen the text calls it.
    #[must_use]
    pub fn hash(self) -> &'static str {
        &HASHES[self as usize]
    }

    /// A call with room for arguments, by the hash of the script or by its text, which also loads it.
    pub(crate) fn call(self, by_text: bool, args: usize, bytes: usize) -> Cmd {
        let (verb, script) = match by_text {
            true => ("EVAL", self.text()),
            false => ("EVALSHA", self.hash()),
        };
        let mut cmd = Cmd::with_capacity(2 + args, script.len() + 8 + bytes);
        cmd.write_arg(verb.as_bytes());
        cmd.write_arg(script.as_bytes());
        cmd
    }
}

/// Whether a call was refused because the server does not know its script.
pub(crate) fn is_unknown_script(reply: &Value) -> bool {
    is_error(reply, "NOSCRIPT")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../../../docs/redis.md");

    /// The literal fields in the calls of `HSET`, `HMGET` and the like.
    fn fields(script: &str) -> impl Iterator<Item = &str> {
        script.split("('H").skip(1).flat_map(|call| {
            let mut depth = 1;
            let end = call.find(|c| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            // Behind the name of the command. A literal value is empty or a format.
            let literals = call[..end.unwrap()].split('\'').skip(2).step_by(2);
            literals.filter(|literal| !literal.is_empty() && !literal.contains('%'))
        })
    }

    #[test]
    fn every_name_behind_a_dollar_has_a_value() {
        let texts = TEXTS.iter().flat_map(|text| text.split('$').skip(1));
        let names: Vec<_> = texts
            .filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
            .collect();
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn the_page_lists_every_field_of_a_hash_and_no_other() {
        let rows = PAGE.lines().filter_map(|row| row.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split(" | ").nth(2));
        let pieces = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        // Without the part that is an id.
        let page = pieces.filter_map(|field| field.split('<').next());
        let page: BTreeSet<_> = page.filter(|field| !field.is_empty()).collect();
        let own: BTreeSet<_> = TEXTS.iter().flat_map(|text| fields(text)).collect();
        assert_eq!(page, own);
    }

    #[test]
    fn the_page_lists_every_suffix_that_a_script_puts_behind_a_key() {
        let lines = TEXTS.iter().flat_map(|text| text.lines());
        let code = lines.filter(|line| !line.starts_with("--"));
        let literals = code.flat_map(|line| line.split('\''));
        for suffix in literals.filter(|literal| literal.starts_with(':')) {
            assert!(PAGE.contains(suffix), "{suffix}");
        }
    }
}
