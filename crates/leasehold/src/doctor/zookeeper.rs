//! Checks of a ZooKeeper ensemble.

use std::time::Duration;

use super::Finding;
use crate::store::diagnose::ZookeeperFacts;

/// How long a dead waiter may delay those behind it.
const SESSION_MAX: Duration = Duration::from_secs(15);

pub(super) fn check(facts: &ZookeeperFacts) -> Vec<Finding> {
    let findings = [Some(members(facts)), Some(access(facts)), session(facts)];
    findings.into_iter().flatten().collect()
}

fn members(facts: &ZookeeperFacts) -> Finding {
    const CHECK: &str = "members";
    match facts.voters {
        None => Finding::unknown(Finding::INCOMPLETE, "not checked: /zookeeper/config cannot be read")
            .because("an ensemble that loses its data with one machine would not be found")
            .fix("let this user read /zookeeper/config"),
        Some(0 | 1) => Finding::warning(CHECK, "one server")
            .because("its disk is the only copy: if it is lost, all locks are, and tokens start again by the clock")
            .fix("make an ensemble of three servers"),
        Some(even) if even.is_multiple_of(2) => {
            Finding::note(CHECK, format!("{even} servers that vote, an even number"))
                .because("they survive no more failures than one server less")
                .fix("add or remove a server")
        }
        Some(odd) if facts.named < 2 => {
            Finding::note(CHECK, format!("{odd} servers, of which the store URL names one"))
                .because("while that one is down, this client has no locks")
                .fix("name all servers in the store URL: zookeeper://HOST,HOST,HOST")
        }
        Some(odd) => Finding::ok(CHECK, format!("{odd} servers")),
    }
}

fn access(facts: &ZookeeperFacts) -> Finding {
    const CHECK: &str = "access";
    match (facts.has_user, facts.has_tls) {
        (true, true) => Finding::ok(CHECK, "a user, over TLS"),
        (true, false) => Finding::note(CHECK, "the password is sent without TLS")
            .because("whoever reads the network can change every lock")
            .fix("set secureClientPort, and write zookeepers://"),
        (false, _) => Finding::warning(CHECK, "the nodes are open to everybody")
            .because("everybody who reaches the port can change every lock")
            .fix("name a user: zookeeper://USER@HOST, with its password in LEASEHOLD_PASSWORD"),
    }
}

fn session(facts: &ZookeeperFacts) -> Option<Finding> {
    let observed = format!("sessions last {} s", facts.session.as_secs());
    let finding = Finding::note("session", observed)
        .because("a dead waiter delays those behind it for so long")
        .fix("set maxSessionTimeout or tickTime so that 10 s are allowed");
    (facts.session > SESSION_MAX).then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity::{Note, Ok, Warning};
    use crate::doctor::finding::{ChangeOf, assert_severities};

    fn healthy() -> ZookeeperFacts {
        ZookeeperFacts {
            name: "zookeeper://h".to_owned(),
            named: 3,
            voters: Some(3),
            session: Duration::from_secs(10),
            has_user: true,
            has_tls: true,
        }
    }

    const CHANGES: [ChangeOf<ZookeeperFacts>; 4] = [
        (Ok, "", |_| {}),
        (Warning, "members", |it| it.voters = Some(0)),
        (Warning, "access", |it| it.has_user = false),
        (Note, "session", |it| it.session = Duration::from_secs(40)),
    ];

    #[test]
    fn each_weakness_has_a_finding() {
        assert_severities(healthy, check, &CHANGES);
    }
}
