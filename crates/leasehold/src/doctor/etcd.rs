//! Checks of an etcd cluster.

use std::time::Duration;

use super::Finding;
use crate::store::diagnose::{EtcdFacts, MemberFacts};

/// The first version that is tested, and the first one that still gets fixes of its errors.
const FIRST: (u32, u32) = (3, 4);
const SUPPORTED_SINCE: (u32, u32) = (3, 5);

/// The default of `--quota-backend-bytes`.
const QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// How long a dead waiter may delay those behind it.
const SESSION_MAX: Duration = Duration::from_secs(10);

pub(super) fn check(facts: &EtcdFacts) -> Vec<Finding> {
    let mut findings: Vec<_> = facts.statuses.iter().flat_map(member).collect();
    findings.extend(Finding::incomplete(
        &facts.missing,
        "a cluster that loses its data with one machine would not be found",
        "run doctor as a user with the role root",
    ));
    findings.extend(facts.voters.map(|voters| members(facts, voters)));
    findings.push(access(facts));
    findings.extend(facts.session.and_then(session));
    if let Some(error) = &facts.reading {
        findings.push(
            Finding::danger("quorum", format!("the keys cannot be read: {error}"))
                .because("no lock can be acquired")
                .fix(
                    "start the members that are down, or grant the user the rights in docs/etcd.md",
                ),
        );
    }
    findings
}

fn members(facts: &EtcdFacts, voters: usize) -> Finding {
    const CHECK: &str = "members";
    let named = facts.statuses.len();
    match voters {
        fewer if fewer < named => Finding::warning(CHECK, format!("the store URL names {named}, and {fewer} vote"))
            .because("if one of them is a cluster of its own with the same id, two clients can hold a lock")
            .fix("name each member once, and start other clusters with another --initial-cluster-token"),
        0 | 1 => Finding::warning(CHECK, "one member")
            .because("its disk is the only copy: if it is lost, all locks are, and tokens start again by the clock")
            .fix("add two members: etcdctl member add"),
        even if even.is_multiple_of(2) => Finding::note(CHECK, format!("{even} members, an even number"))
            .because("they survive no more failures than one member less")
            .fix("add or remove a member"),
        odd if named < 2 => {
            Finding::note(CHECK, format!("{odd} members, of which the store URL names one"))
                .because("while that one is down, this client has no locks")
                .fix("name all members in the store URL: etcd://HOST,HOST,HOST")
        }
        odd => Finding::ok(CHECK, format!("{odd} members")),
    }
}

fn access(facts: &EtcdFacts) -> Finding {
    const CHECK: &str = "access";
    match (facts.has_user, facts.has_tls) {
        (true, true) => Finding::ok(CHECK, "a user, over TLS"),
        (true, false) => Finding::note(CHECK, "the password is sent without TLS")
            .because("whoever reads the network can change every lock")
            .fix("start etcd with --cert-file and --key-file, and write etcds://"),
        (false, _) => Finding::warning(CHECK, "authentication is off")
            .because("everybody who reaches the port can change every lock")
            .fix("etcdctl user add root; etcdctl user grant-role root root; etcdctl auth enable; see docs/etcd.md"),
    }
}

/// A lease lasts at least one and a half election timeouts.
fn session(lasts: Duration) -> Option<Finding> {
    let observed = format!("sessions last {} s", lasts.as_secs());
    let finding = Finding::note("session", observed)
        .because("a dead waiter delays those behind it for so long")
        .fix("set --election-timeout=6000 or less");
    (lasts > SESSION_MAX).then_some(finding)
}

/// The findings about a member.
fn member(facts: &MemberFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(error) = &facts.error {
        findings.push(match facts.is_foreign {
            true => Finding::danger("cluster", error)
                .because("clients that start while the first member is down use another cluster than the others")
                .fix("name the members of one cluster in the store URL"),
            false => Finding::warning("member", format!("it does not reply: {error}"))
                .because("the cluster survives one failure less")
                .fix("start it, or remove it from the cluster and from the store URL"),
        });
    }
    findings.extend(version(facts));
    findings.extend(facts.alarms.iter().map(|it| alarm(it)));
    if facts.error.is_none() {
        findings.push(quota(facts));
    }
    let findings = findings.into_iter();
    findings.map(|it| it.at(&facts.address)).collect()
}

fn version(facts: &MemberFacts) -> Option<Finding> {
    const CHECK: &str = "version";
    let version = facts.version.as_deref()?;
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let number = (numbers.next()?, numbers.next()?);
    let observed = format!("etcd {version}");
    Some(if number < FIRST {
        Finding::danger(CHECK, observed)
            .because("the store is tested with 3.4 and later")
            .fix("upgrade etcd")
    } else if number < SUPPORTED_SINCE {
        Finding::note(CHECK, observed)
            .because("its errors are no longer fixed")
            .fix("upgrade etcd")
    } else {
        Finding::ok(CHECK, observed)
    })
}

fn alarm(alarm: &str) -> Finding {
    if alarm.contains("NOSPACE") {
        return Finding::danger("space", "the database has reached its quota (NOSPACE)")
            .because("no lock can be acquired or renewed")
            .fix("etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm; raise --quota-backend-bytes");
    }
    if alarm.contains("CORRUPT") {
        return Finding::danger("corruption", alarm)
            .because("members have different data, so two clients can hold a lock")
            .fix("remove the corrupt member and add it again");
    }
    Finding::danger("quorum", alarm)
        .because("no lock can be acquired without a majority of the members")
        .fix("start the members that are down, and check the network between them")
}

fn quota(facts: &MemberFacts) -> Finding {
    const CHECK: &str = "space";
    let quota = facts.quota.unwrap_or(QUOTA);
    let mib = |bytes: u64| bytes / (1024 * 1024);
    let observed = format!("{} MiB of {} MiB", mib(facts.size), mib(quota));
    match facts.size > quota / 5 * 4 {
        true => Finding::warning(CHECK, observed)
            .because("at its quota etcd refuses all writes, also renewals")
            .fix("set --auto-compaction-retention=1h, and run etcdctl defrag; or raise --quota-backend-bytes"),
        false => Finding::ok(CHECK, observed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{Danger, Note, Ok, Unknown, Warning};
    use crate::doctor::finding::{ChangeOf, assert_severities};

    fn healthy() -> EtcdFacts {
        let member = |host: &str| MemberFacts {
            address: format!("{host}:2379"),
            version: Some("3.6.1".into()),
            size: 20_480,
            quota: None,
            alarms: Vec::new(),
            error: None,
            is_foreign: false,
        };
        EtcdFacts {
            name: "etcds://app@a,b,c".into(),
            statuses: ["a", "b", "c"].map(member).into(),
            voters: Some(3),
            session: Some(SESSION_MAX),
            has_user: true,
            has_tls: true,
            reading: None,
            missing: Vec::new(),
        }
    }

    const CHANGES: [ChangeOf<EtcdFacts>; 17] = [
        (Ok, "", |_| {}),
        (Warning, "members", |it| it.voters = Some(1)),
        (Warning, "members", |it| {
            it.voters = Some(1);
            it.statuses.truncate(1);
        }),
        (Note, "members", |it| it.voters = Some(4)),
        (Note, "members", |it| it.statuses.truncate(1)),
        (Unknown, Finding::INCOMPLETE, |it| {
            it.voters = None;
            it.missing.push("the members".into());
        }),
        (Note, "session", |it| it.session = Some(2 * SESSION_MAX)),
        (Note, "access", |it| it.has_tls = false),
        (Warning, "access", |it| it.has_user = false),
        (Danger, "quorum", |it| it.reading = Some("no reply".into())),
        (Danger, "quorum", |it| {
            it.statuses[0].alarms.push("etcdserver: no leader".into());
        }),
        (Danger, "space", |it| {
            it.statuses[1]
                .alarms
                .push("memberID:1 alarm:NOSPACE".into());
        }),
        (Danger, "corruption", |it| {
            it.statuses[1]
                .alarms
                .push("memberID:1 alarm:CORRUPT".into());
        }),
        (Warning, "space", |it| it.statuses[2].size = QUOTA),
        (Note, "version", |it| {
            it.statuses[0].version = Some("3.4.23".into());
        }),
        (Warning, "member", |it| {
            it.statuses[0].version = None;
            it.statuses[0].error = Some("no reply".into());
        }),
        (Danger, "cluster", |it| {
            it.statuses[2].version = None;
            it.statuses[2].error = Some("it is of another cluster".into());
            it.statuses[2].is_foreign = true;
        }),
    ];

    #[test]
    fn each_fact_of_a_cluster_has_its_severity() {
        assert_severities(healthy, check, &CHANGES);
    }
}
