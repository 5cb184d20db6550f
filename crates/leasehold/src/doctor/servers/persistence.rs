//! Checks of the data that survives a restart of a server.

use super::{Finding, identity};
use crate::store::diagnose::{Fields, NodeFacts, Topology};

const CHECK: &str = "persistence";

const ALWAYS: &str = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and both in redis.conf; \
                      it costs about half a millisecond a write";

/// The first version with `WAITAOF`, which claims to wait for the disk.
const WAITAOF_SINCE: [u64; 3] = [7, 2, 0];

pub(super) fn check(node: &NodeFacts, topology: &Topology) -> Vec<Finding> {
    let is_one_of_many = matches!(topology, Topology::Masters);
    let info = node.info.as_ref().ok();
    let mut findings = Vec::new();
    findings.extend(info.and_then(|info| faults(info, is_one_of_many)));
    let config = node.config.as_ref().ok();
    if let Some(config) = config.filter(|config| config.get("appendonly").is_some()) {
        if is_one_of_many {
            findings.push(one_of_many(config));
        } else {
            findings.push(check_settings(config, info));
            findings.extend(details(config));
        }
    }
    findings
}

/// The finding that a majority of many masters may lose their counters of tokens at once. `silent` is the number
/// of further masters that do not reply.
pub(super) fn of_majority(nodes: &[NodeFacts], silent: usize) -> Option<Finding> {
    let count = nodes.len() + silent;
    let config = nodes.iter().filter_map(|node| node.config.as_ref().ok());
    let known = config.filter(|config| config.get("appendonly").is_some());
    let forgetful = known.filter(|config| !keeps_all(config)).count();
    let finding = Finding::warning(
        CHECK,
        format!("{forgetful} of {count} masters may forget tokens in a restart"),
    )
    .because(
        "after a restart of a majority at once, no lock is granted for the longest ttl; tokens \
         then grow by the clocks of the masters, and may repeat if these were set back",
    )
    .fix(format!(
        "restart one master at a time; at a majority of them {ALWAYS}"
    ));
    (forgetful > count / 2).then_some(finding)
}

/// The finding about one of many masters. Admission keeps a restarted one out until every lease that it may have
/// forgotten has ended, so only its counters of tokens are at stake.
fn one_of_many(config: &Fields) -> Finding {
    let observed = described(config);
    if keeps_all(config) {
        return Finding::ok(CHECK, observed);
    }
    Finding::note(CHECK, observed)
        .because(
            "a restart may lose its counters of tokens, but no lock: it grants none for the \
             longest ttl afterwards, with or without data",
        )
        .fix(format!(
            "none is needed as long as fewer than a majority restart at once; else {ALWAYS}"
        ))
}

/// The finding that the server cannot write its data.
fn faults(info: &Fields, is_one_of_many: bool) -> Option<Finding> {
    let failed = [
        "aof_last_write_status",
        "aof_last_bgrewrite_status",
        "rdb_last_bgsave_status",
    ];
    let failed = failed.iter().find(|name| info.is(name, "err"))?;
    let observed = format!("{failed} is err");
    let finding = match is_one_of_many {
        true => Finding::warning(CHECK, observed).because(
            "the server cannot write its data; if it refuses changes, the others must agree without it",
        ),
        false => Finding::danger(CHECK, observed).because(
            "the server cannot write its data; it may refuse every change, even releases",
        ),
    };
    Some(finding.fix("check its log and its disk"))
}

fn check_settings(config: &Fields, info: Option<&Fields>) -> Finding {
    let observed = described(config);
    let fsync = config.get("appendfsync").unwrap_or_default();
    match (config.is("appendonly", "yes"), fsync) {
        (true, "always") => Finding::ok(CHECK, observed),
        (true, "everysec") => Finding::warning(CHECK, observed)
            .because(
                "a crash forgets the changes of the last second, or of longer if the disk is slow: \
                 held locks are free, and released ones held",
            )
            .fix(format!("{ALWAYS}{}", waitaof(info))),
        (true, _) => Finding::danger(CHECK, observed)
            .because("a power failure forgets half a minute of grants and renewals")
            .fix(ALWAYS),
        (false, _) if saves(config) => Finding::danger(CHECK, observed)
            .because("a crash forgets every lock that was acquired since the last snapshot")
            .fix(ALWAYS),
        (false, _) => Finding::danger(CHECK, observed)
            .because("a restart of the server frees every lock")
            .fix(ALWAYS),
    }
}

fn described(config: &Fields) -> String {
    let fsync = config.get("appendfsync").unwrap_or_default();
    match (config.is("appendonly", "yes"), saves(config)) {
        (true, _) => format!("appendonly yes, appendfsync {fsync}"),
        (false, true) => "snapshots only, appendonly no".to_owned(),
        (false, false) => "none: appendonly no, no snapshots".to_owned(),
    }
}

fn saves(config: &Fields) -> bool {
    config.get("save").is_some_and(|save| !save.is_empty())
}

/// Whether a crash or power failure forgets nothing.
fn keeps_all(config: &Fields) -> bool {
    config.is("appendonly", "yes")
        && config.is("appendfsync", "always")
        && !config.is("no-appendfsync-on-rewrite", "yes")
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
