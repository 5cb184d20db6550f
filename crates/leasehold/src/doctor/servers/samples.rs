//! Facts recorded from a real server, Redis 7.0.15.

pub(super) use crate::doctor::finding::worst;
use crate::store::diagnose::{ClockFacts, Fact, Fields, NodeFacts, Rights};

pub(super) const ACL: &str = "ACL SETUSER leasehold reset on >PASSWORD ~app:* &app:* +eval";

const INFO: [(&str, &str); 14] = [
    ("redis_version", "7.0.15"),
    ("redis_mode", "standalone"),
    ("role", "master"),
    ("loading", "0"),
    ("run_id", "3f0c62f8b8b7a4d6f3fd0e4de5e6f9b4a2c1d0e9"),
    ("used_memory", "1048576"),
    ("maxmemory", "0"),
    ("maxmemory_policy", "noeviction"),
    ("evicted_keys", "0"),
    ("aof_enabled", "1"),
    ("aof_last_write_status", "ok"),
    ("aof_last_bgrewrite_status", "ok"),
    ("rdb_last_bgsave_status", "ok"),
    ("connected_slaves", "0"),
];

const CONFIG: [(&str, &str); 9] = [
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("aof-load-truncated", "no"),
    ("save", ""),
    ("min-replicas-to-write", "0"),
    ("min-replicas-max-lag", "10"),
];

/// A server without problems.
pub(super) fn healthy() -> NodeFacts {
    node_with(&[], &[])
}

/// A healthy server with other fields and settings.
pub(super) fn node_with(info: &[(&str, &str)], config: &[(&str, &str)]) -> NodeFacts {
    let fields = |base: &[(&str, &str)], changed: &[(&str, &str)]| {
        let all = base.iter().chain(changed);
        Fact::Known(Fields(
            all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        ))
    };
    NodeFacts {
        name: "redis://127.0.0.1:6379/0".into(),
        info: fields(&INFO, info),
        config: fields(&CONFIG, config),
        clock: Some(ClockFacts {
            ahead: 40,
            error: 60,
        }),
        protocol: 3,
        rights: Rights::default(),
    }
}
