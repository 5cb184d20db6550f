//! Checks of the data that survives a restart of a server.

use super::{Finding, identity};
use crate::store::diagnose::{Fields, NodeFacts};

const CHECK: &str = "persistence";

const ALWAYS: &str = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and both in redis.conf; \
                      it costs about half a millisecond a write";

/// The first version with `WAITAOF`, which claims to wait for the disk.
const WAITAOF_SINCE: [u64; 3] = [7, 2, 0];

pub(super) fn check(node: &NodeFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(info) = &node.info {
        findings.extend(faults(info));
    }
    match &node.config {
        Ok(config) => {
            findings.push(check_settings(config, node.info.as_ref().ok()));
            findings.extend(details(config));
        }
        Err(message) => findings.push(
            Finding::note(
                CHECK,
                format!("the server does not show its settings: {message}"),
            )
            .because("the data that survives a crash could not be checked")
            .fix("run doctor as a user with +config|get"),
        ),
    }
    findings
}

/// The finding that the server cannot write its data.
fn faults(info: &Fields) -> Option<Finding> {
    let failed = [
        "aof_last_write_status",
        "aof_last_bgrewrite_status",
        "rdb_last_bgsave_status",
    ];
    let failed = failed.iter().find(|name| info.is(name, "err"))?;
    let finding = Finding::danger(CHECK, format!("{failed} is err"))
        .because("the server cannot write its data; it may refuse every change, even releases")
        .fix("check its log and its disk");
    Some(finding)
}

fn check_settings(config: &Fields, info: Option<&Fields>) -> Finding {
    let saves = config.get("save").is_some_and(|save| !save.is_empty());
    let fsync = config.get("appendfsync").unwrap_or_default();
    match (config.is("appendonly", "yes"), fsync) {
        (true, "always") => Finding::ok(CHECK, "appendonly yes, appendfsync always"),
        (true, "everysec") => Finding::warning(CHECK, "appendonly yes, appendfsync everysec")
            .because(
                "a crash forgets the changes of the last second, or of longer if the disk is slow: \
                 held locks are free, and released ones held",
            )
            .fix(format!("{ALWAYS}{}", waitaof(info))),
        (true, fsync) => Finding::danger(CHECK, format!("appendonly yes, appendfsync {fsync}"))
            .because("a power failure forgets half a minute of grants and renewals")
            .fix(ALWAYS),
        (false, _) if saves => Finding::danger(CHECK, "snapshots only, appendonly no")
            .because("a crash forgets every lock that was acquired since the last snapshot")
            .fix(ALWAYS),
        (false, _) => Finding::danger(CHECK, "none: appendonly no, no snapshots")
            .because("when the server is restarted, every lock is free at once")
            .fix(ALWAYS),
    }
}

/// The hint that `WAITAOF` is not an alternative, for servers that have it.
fn waitaof(info: Option<&Fields>) -> &'static str {
    let since = |info: &&Fields| {
        info.get("valkey_version").is_some()
            || identity::number(info).is_some_and(|version| version >= WAITAOF_SINCE)
    };
    match info.filter(since) {
        Some(_) => {
            ". WAITAOF is not an alternative: some servers confirm writes that they did not sync"
        }
        None => "",
    }
}

fn details(config: &Fields) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !config.is("appendonly", "yes") {
        return findings;
    }
    if config.is("no-appendfsync-on-rewrite", "yes") {
        findings.push(
            Finding::warning(CHECK, "no-appendfsync-on-rewrite yes")
                .because(
                    "nothing is synced while the log is rewritten: a power failure forgets those changes",
                )
                .fix("CONFIG SET no-appendfsync-on-rewrite no, and the same in redis.conf"),
        );
    }
    if config.is("aof-load-truncated", "yes") {
        findings.push(
            Finding::note(CHECK, "aof-load-truncated yes")
                .because("if the end of its AOF is truncated, the server starts without it and only logs a warning")
                .fix("aof-load-truncated no, if an operator can run redis-check-aof then"),
        );
    }
    findings
}
