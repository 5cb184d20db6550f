//! Facts that `tests/it/doctor` cannot bring about with real servers, as a table.

use super::*;
use crate::doctor::Severity::{self, Danger, Note, Unknown, Warning};
use crate::doctor::finding::worst;
use crate::store::diagnose::{
    ClockFacts, ClusterFacts, ClusterMember, Fields, MissingRight, Purpose, Rights, SentinelFacts,
};

const INFO: &str = "redis_version:7.0.15\nrole:master\nused_memory:900\nmaxmemory:0\n";
const CONFIG: &str = "maxmemory-policy:noeviction\nappendonly:yes\nappendfsync:always\n";
const REPLICA: &str = "slave0:ip=10.0.0.2,port=6380,state=online,offset=42,lag=0\n";
const MASTER: &str = "name:mymaster\nip:10.0.0.1\nport:6379\nflags:master\n\
                      down-after-milliseconds:5000\nconfig-epoch:0\nnum-slaves:2\n\
                      num-other-sentinels:2\nquorum:2\n";

fn node(info: &str, config: &str) -> NodeFacts {
    NodeFacts {
        name: "10.0.0.1:6379".into(),
        info: Ok(Fields::of_lines(&(INFO.to_owned() + info))),
        config: Ok(Fields::of_lines(&(CONFIG.to_owned() + config))),
        clock: Some(ClockFacts { ahead: 0, error: 0 }),
        protocol: 3,
        rights: Rights {
            tried: true,
            ..Rights::default()
        },
    }
}

fn ttl() -> Ttl {
    Ttl::from_millis(30_000).unwrap()
}

fn findings(topology: Topology, nodes: Vec<NodeFacts>) -> Vec<Finding> {
    let servers = ServerFacts {
        name: "redis://10.0.0.1:6379/0".into(),
        topology,
        nodes,
        silent: Vec::new(),
        acl: "ACL SETUSER leasehold reset on >PASSWORD ~app:* &app:* +eval".into(),
        diagnosis_acl: "ACL SETUSER leasehold-doctor reset on >PASSWORD ~app:* &app:* +info".into(),
    };
    let findings = check(&servers, ttl());
    let is_complete =
        |it: &Finding| it.severity == Severity::Ok || it.consequence.is_some() && it.fix.is_some();
    assert!(findings.iter().all(is_complete), "{findings:#?}");
    findings
}

#[test]
fn each_fact_of_a_server_has_its_severity() {
    for (info, config, check, severity) in [
        ("", "", "", Severity::Ok),
        ("redis_version:5.0.14", "", "version", Warning),
        ("redis_version:6.0.5", "", "version", Warning),
        ("redis_version:6.0.6", "", "", Severity::Ok),
        ("redis_version:10.0.0", "", "", Severity::Ok),
        ("redis_version:unstable", "", "version", Note),
        ("loading:1", "", "role", Danger),
        ("used_memory:899", "maxmemory:1000", "", Severity::Ok),
        ("used_memory:900", "maxmemory:1000", "memory", Warning),
        ("aof_last_write_status:err", "", "persistence", Danger),
        ("rdb_last_bgsave_status:err", "", "persistence", Danger),
        (REPLICA, "", "replicas", Warning),
    ] {
        let mut findings = findings(Topology::Single, vec![node(info, config)]);
        findings.retain(|finding| finding.severity > Severity::Ok);
        assert_eq!(worst(&findings), severity, "{info} {config}");
        assert!(findings.iter().all(|finding| finding.check == check));
    }
    let mut hidden = node("maxmemory_policy:allkeys-lru\nmaxmemory:1000", "");
    hidden.config = Err("NOPERM".into());
    assert_eq!(worst(&memory::check(&hidden)), Danger);
    let mut old = node("", "");
    old.protocol = 2;
    assert_eq!(worst(&findings(Topology::Single, vec![old])), Note);
}

#[test]
fn replicas_that_are_behind_or_too_few_are_named() {
    let waits = "slave1:ip=10.0.0.3,port=6380,state=wait_bgsave,offset=0,lag=0";
    let found = replicas::check(&node(&format!("{REPLICA}{waits}"), ""), &Topology::Single);
    assert!(found[0].observed.contains("10.0.0.3:6380") && found.len() == 2);
    for (good, severity) in [("0", Danger), ("1", Warning)] {
        let info = format!("{REPLICA}min_slaves_good_slaves:{good}");
        let found = replicas::check(&node(&info, "min-replicas-to-write:1"), &Topology::Single);
        assert_eq!(worst(&found), severity);
    }
}

#[test]
fn servers_with_waitaof_are_warned_of_it() {
    for (info, warned) in [
        ("", false),
        ("redis_version:7.2.4", true),
        ("valkey_version:8.0.1", true),
    ] {
        let found = persistence::check(&node(info, "appendfsync:everysec"), &Topology::Single);
        let fix = found[0].fix.as_deref().unwrap();
        assert_eq!(fix.contains("WAITAOF"), warned, "{fix}");
    }
}

#[test]
fn missing_permissions_are_reported_with_the_rules_that_grant_them() {
    use Purpose::{Inspect, Lock, Renew, Wait};
    for (topology, purpose, missing, severity, rules) in [
        (Topology::Single, Lock, "~ +set", Danger, "~app:* +set"),
        (Topology::Single, Wait, "& +lpos", Danger, "&app:* +lpos"),
        (Topology::Single, Wait, "&", Danger, "&app:*"),
        (Topology::Masters, Wait, "&", Warning, "&app:*"),
        (Topology::Single, Wait, "+rpush", Warning, "+rpush"),
        (Topology::Single, Renew, "+mget", Note, "+mget"),
        (Topology::Single, Inspect, "+scan", Note, "+scan"),
        (Topology::Masters, Lock, "+hset", Danger, "+hset"),
    ] {
        let mut node = node("", "");
        node.rights.user = Some("alice".into());
        let missing = missing.split(' ').map(|rule| MissingRight {
            rule: rule.to_owned(),
            purpose,
        });
        node.rights.missing = missing.collect();
        let found = &rights::check(&node, &topology, "~app:* &app:*")[0];
        assert_eq!(found.severity, severity);
        let fix = format!("ACL SETUSER alice {rules}");
        assert_eq!(found.fix.as_ref(), Some(&fix));
    }
}

#[test]
fn only_a_difference_of_clocks_that_is_certain_counts() {
    const SECOND: i64 = 1_000_000;
    let node = |ahead, error| NodeFacts {
        clock: Some(ClockFacts { ahead, error }),
        ..node("", "")
    };
    for (ahead, error, alone, beside) in [
        (0, 100, Severity::Ok, Severity::Ok),
        (300_000, 100, Severity::Ok, Severity::Ok),
        (-400_000, 100, Severity::Ok, Warning),
        (-2 * SECOND, 100, Note, Warning),
        (2 * SECOND, 2 * SECOND, Severity::Ok, Severity::Ok),
        (-61 * SECOND, 100, Warning, Danger),
    ] {
        let server = node(ahead, error);
        assert_eq!(clock::check(server.clock.unwrap()).severity, alone);
        let nodes = [node(0, 100), server];
        for (topology, severity) in [
            (Topology::Sentinel(Vec::new()), beside),
            (Topology::Masters, beside.min(Warning)),
        ] {
            let found = findings(topology, nodes.to_vec());
            let apart = found.iter().find(|it| it.observed.contains(" apart "));
            assert_eq!(apart.unwrap().severity, severity, "{found:#?}");
        }
    }
    assert_eq!(
        clocks::between(&[node(0, 0)], ttl(), &Topology::Masters),
        None
    );
}

#[test]
fn masters_are_counted_and_have_one_version() {
    for (count, severity) in [(2, Danger), (3, Severity::Ok), (4, Note)] {
        let masters = vec![node("", ""); count];
        assert_eq!(worst(&masters::check(&masters, 0)), severity);
        assert_eq!(identity::versions(&masters), None);
    }
    for (count, silent, severity) in [(4, 1, Warning), (3, 2, Warning), (2, 3, Danger)] {
        let found = masters::check(&vec![node("", ""); count], silent);
        assert_eq!(worst(&found), severity);
    }
    let found = identity::versions(&[node("", ""), node("redis_version:6.2.1", "")]);
    let observed = found.unwrap().observed;
    assert!(observed.contains("Redis 6.2.1, Redis 7.0.15"), "{observed}");
}

#[test]
fn each_fact_of_a_cluster_has_its_severity() {
    let member = |nth: u16, follows: Option<u16>| ClusterMember {
        id: nth.to_string(),
        host: "10.0.0.1".into(),
        port: 7_000 + nth,
        flags: Vec::new(),
        follows: follows.map(|nth| nth.to_string()),
        has_slots: follows.is_none(),
    };
    let severity = |info: &str, config: &str, change: fn(&mut Vec<ClusterMember>)| {
        let masters = (0..3).map(|nth| member(nth, None));
        let mut members = masters
            .chain((3..6).map(|nth| member(nth, Some(nth - 3))))
            .collect();
        change(&mut members);
        let info = format!("cluster_state:ok\ncluster_slots_assigned:16384\n{info}");
        let info = Fields::of_lines(&info);
        let facts = Ok(ClusterFacts { info, members });
        let config = format!("cluster-node-timeout:5000\n{config}");
        worst(&cluster::check(&facts, &[node("", &config)], ttl()))
    };
    for (info, config, expected) in [
        ("", "", Severity::Ok),
        ("cluster_state:fail", "", Danger),
        ("cluster_slots_assigned:16383", "", Danger),
        ("", "cluster-require-full-coverage:yes", Note),
    ] {
        assert_eq!(severity(info, config, |_| {}), expected, "{info}");
    }
    let changes: [fn(&mut Vec<ClusterMember>); 3] = [
        |all| all[5].flags.push("fail".into()),
        |all| all.truncate(5),
        |all| all[2].has_slots = false,
    ];
    for change in changes {
        assert_eq!(severity("", "", change), Warning);
    }
    let hidden = Topology::Cluster(Err("NOPERM this user".into()));
    let found = findings(hidden, vec![node("", "")]);
    let observed = &found
        .iter()
        .find(|it| it.severity == Unknown)
        .unwrap()
        .observed;
    assert!(
        observed.contains("not checked: cluster (refused: CLUSTER INFO;"),
        "{observed}"
    );
}

#[test]
fn facts_that_a_server_does_not_report_are_unknown() {
    let refused = || Err("NOPERM this user".into());
    let everything = "version, role, eviction, memory, persistence, replicas";
    for (hide, areas) in [
        ("INFO CONFIG", everything),
        ("INFO", "version, role, memory, persistence, replicas"),
        ("CONFIG", "eviction, persistence"),
        ("CLOCK", "clock"),
    ] {
        let mut server = node("", "");
        if hide.contains("INFO") {
            server.info = refused();
        }
        if hide.contains("CONFIG") {
            server.config = refused();
        }
        if hide.contains("CLOCK") {
            server.clock = None;
        }
        let found = findings(Topology::Single, vec![server]);
        assert_eq!(worst(&found), Unknown, "{hide}");
        let missing = found.iter().find(|it| it.check == "diagnosis").unwrap();
        let expected = format!("not checked: {areas} (");
        assert!(
            missing.observed.starts_with(&expected),
            "{}",
            missing.observed
        );
        let fix = missing.fix.as_deref().unwrap();
        assert!(fix.contains("ACL SETUSER leasehold-doctor "), "{fix}");
    }
    let replica = node(REPLICA, "");
    let hidden = NodeFacts {
        config: refused(),
        ..replica
    };
    let found = replicas::check(&hidden, &Topology::Single);
    assert_eq!(
        found[0].observed,
        "1 replica, min-replicas-to-write unknown"
    );
}

/// As the guarantees have it: a restarted master is kept out until all leases that it forgot have ended.
#[test]
fn many_masters_lose_no_lock_with_the_data_of_one() {
    let always = node("", "");
    for (info, check) in [
        ("role:slave", "role"),
        ("aof_last_write_status:err", "persistence"),
    ] {
        let nodes = vec![always.clone(), always.clone(), node(info, "")];
        let found = findings(Topology::Masters, nodes);
        assert_eq!(worst(&found), Warning, "{found:#?}");
        let mut warnings = found.iter().filter(|it| it.severity == Warning);
        assert!(warnings.any(|it| it.check == check), "{found:#?}");
    }
    let replica = vec![always.clone(), always.clone(), node(REPLICA, "")];
    assert_eq!(worst(&findings(Topology::Masters, replica)), Note);
}

#[test]
fn each_fact_of_a_sentinel_has_its_severity() {
    let sentinel = |changed: &str| SentinelFacts {
        name: "10.0.0.9:26379".into(),
        master: Ok(Fields::of_lines(&(MASTER.to_owned() + changed))),
    };
    let severity = |changed| {
        let all = [sentinel(changed), sentinel(changed), sentinel(changed)];
        worst(&sentinels::check(&all, ttl()))
    };
    assert_eq!(severity(""), Severity::Ok);
    for (changed, expected) in [
        ("quorum:4", Danger),
        ("quorum:1", Note),
        ("num-other-sentinels:1", Warning),
        ("num-slaves:0", Warning),
        ("flags:master,s_down", Danger),
    ] {
        assert_eq!(severity(changed), expected, "{changed}");
    }
    let other = [sentinel(""), sentinel(""), sentinel("ip:10.0.0.2")];
    assert_eq!(worst(&sentinels::check(&other, ttl())), Danger);
    let replica = || node("role:slave", "");
    assert_eq!(sentinels::no_master(&[node("", ""), replica()]), None);
    let found = sentinels::no_master(&[replica(), replica()]);
    assert_eq!(found.map(|found| found.severity), Some(Danger));
}

#[test]
fn a_failover_must_fit_into_a_third_of_the_ttl() {
    for (ttl, down_after, fix) in [
        (30, 8, None),
        (30, 30, Some("set 8000, or use a ttl of 1m 36s or longer")),
        (3, 1, Some("use a ttl of 9s or longer")),
    ] {
        let ttl = Ttl::from_millis(ttl * 1_000).unwrap();
        let set = |left| format!("set {left}");
        let found = slow_failover("x", Duration::from_secs(down_after), ttl, set);
        assert_eq!(found.fix.as_deref(), fix);
    }
}

#[test]
fn what_several_nodes_have_in_common_is_reported_once() {
    let [same, other] = ["memory", "version"].map(|check| Finding::ok(check, "observed"));
    let merged = merge(vec![
        ("a", vec![same.clone(), other.clone()]),
        ("b", vec![same.clone(), other]),
        ("c", vec![same]),
    ]);
    let nodes = merged.iter().map(|finding| finding.node.as_deref());
    assert!(nodes.eq([None, Some("a, b")]));
}
