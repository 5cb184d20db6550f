//! The scripts.

use std::sync::LazyLock;

use leasehold_core::{Acquire, Claim, Op, Removal};
use redis::{Cmd, RedisWrite as _, Value};

use super::reply::is_error;

/// The number of requests in one call of a script.
///
/// The server does nothing else during a call: 256 requests take about a millisecond. Larger calls are hardly
/// cheaper per request.
pub(crate) const REQUESTS_MAX: usize = 256;

/// A script. Each layout of a record has one of its own, because a call pays for every function that its script defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
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

/// The texts, in the order of the scripts.
const TEXTS: [&str; 6] = [
    concat!(
        include_str!("../scripts/plain.lua"),
        include_str!("../scripts/rule.lua"),
        include_str!("../scripts/mutex.lua"),
    ),
    concat!(
        include_str!("../scripts/shares_head.lua"),
        include_str!("../scripts/rule.lua"),
        include_str!("../scripts/shares.lua"),
    ),
    include_str!("../scripts/latch.lua"),
    include_str!("../scripts/renew.lua"),
    include_str!("../scripts/renew_shares.lua"),
    include_str!("../scripts/master.lua"),
];

static HASHES: LazyLock<[String; 6]> =
    LazyLock::new(|| TEXTS.map(|text| redis::Script::new(text).get_hash().to_owned()));

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
    pub(crate) const fn text(self) -> &'static str {
        TEXTS[self as usize]
    }

    /// A call with room for arguments, by the hash of the script or by its text, which also loads it.
    pub(crate) fn call(self, by_text: bool, args: usize, bytes: usize) -> Cmd {
        let (verb, script) = match by_text {
            true => ("EVAL", self.text()),
            false => ("EVALSHA", &*HASHES[self as usize]),
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
    fn the_page_lists_every_field_of_a_hash_and_no_other() {
        let rows = PAGE.lines().filter_map(|row| row.strip_prefix("| "));
        let cells = rows.filter_map(|row| row.split(" | ").nth(2));
        let pieces = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        // Without the part that is an id.
        let page = pieces.filter_map(|field| field.split('<').next());
        let page: BTreeSet<_> = page.filter(|field| !field.is_empty()).collect();
        let own: BTreeSet<_> = TEXTS.into_iter().flat_map(fields).collect();
        assert_eq!(page, own);
    }

    #[test]
    fn the_page_lists_every_suffix_that_a_script_puts_behind_a_key() {
        let lines = TEXTS.into_iter().flat_map(str::lines);
        let code = lines.filter(|line| !line.starts_with("--"));
        let literals = code.flat_map(|line| line.split('\''));
        for suffix in literals.filter(|literal| literal.starts_with(':')) {
            assert!(PAGE.contains(suffix), "{suffix}");
        }
    }
}
