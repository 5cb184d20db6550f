//! Single servers, each with one thing that is wrong.

use leasehold::doctor::Severity::{self, Danger, Note, Warning};
use leasehold::{Client, ErrorKind};
use leasehold_testkit::{RedisServer, eventually};

use super::{SOON, assert_found, diagnose, diagnose_in_step, found, healthy, in_step, only};

#[tokio::test(flavor = "multi_thread")]
async fn a_healthy_server_is_healthy_and_not_changed() {
    let server = healthy().start();
    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let report = diagnose(&server.url()).await;
    assert_eq!(report.severity(), Severity::Ok, "{report:#?}");
    assert_eq!(client.locks().await.unwrap().len(), 1);
    guard.release().await.unwrap();
    client.shutdown(SOON).await.unwrap();
    drop(client);
    server.cli(&["FLUSHALL"]);
    diagnose(&server.url()).await;
    let checks = "version eviction memory persistence replicas rights protocol clock";
    for check in checks.split(' ') {
        found(&report, check);
    }
    assert_eq!(server.cli(&["KEYS", "*"]), "");
    assert_eq!(server.cli(&["PUBSUB", "CHANNELS"]), "");
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

/// Settings that let the server evict locks, and their severity.
const EVICTION: [(&str, Severity); 3] = [
    ("maxmemory=100mb; maxmemory-policy=allkeys-lru", Danger),
    ("maxmemory=100mb; maxmemory-policy=volatile-ttl", Danger),
    ("maxmemory-policy=volatile-lru", Note),
];

/// Settings with which a restart forgets locks, their severity, and the fix.
const PERSISTENCE: [(&str, Severity, &str); 6] = [
    ("appendfsync=everysec", Warning, "appendfsync always"),
    ("appendfsync=no", Danger, "appendfsync always"),
    ("no-appendfsync-on-rewrite=yes", Warning, "on-rewrite no"),
    ("aof-load-truncated=yes", Note, "aof-load-truncated no"),
    ("appendonly=no", Danger, "appendonly yes"),
    ("appendonly=no; save=3600 1", Danger, "appendonly yes"),
];

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_locks() {
    let server = healthy().start();
    let noeviction = "maxmemory-policy noeviction";
    let eviction = |(settings, severity)| ("eviction", (settings, severity, noeviction));
    let persistence = PERSISTENCE.map(|case| ("persistence", case));
    for (check, (settings, severity, fix)) in EVICTION.map(eviction).into_iter().chain(persistence)
    {
        let settings = settings.split("; ");
        let settings: Vec<_> = settings.map(|text| text.split_once('=').unwrap()).collect();
        let before = set(&server, &settings);
        let report = diagnose(&server.url()).await;
        only(&report, check, severity, "", fix);
        for ((name, _), value) in settings.iter().zip(before) {
            server.cli(&["CONFIG", "SET", name, &value]);
        }
        // It is enabled again as soon as its file is written.
        eventually(SOON, || {
            let info = server.cli(&["INFO", "persistence"]);
            info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
        });
    }
    assert_eq!(diagnose(&server.url()).await.severity(), Severity::Ok);
}

/// Settings with which the server refuses to write.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_refuse_writes() {
    for (setting, check, severity, reply) in [
        (("maxmemory", "1kb"), "memory", Warning, "OOM"),
        (("min-replicas-to-write", "1"), "replicas", Danger, ""),
    ] {
        let server = healthy().start();
        set(&server, &[setting]);
        let report = diagnose(&server.url()).await;
        assert_found(&report, "writes", Danger, reply, "");
        assert_found(&report, check, severity, "", setting.0);
    }
}

/// Changes settings. Returns their previous values.
fn set(server: &RedisServer, settings: &[(&str, &str)]) -> Vec<String> {
    let names = settings.iter().map(|(name, _)| *name);
    let before = names.map(|name| value(server, name)).collect();
    for (name, value) in settings {
        server.cli(&["CONFIG", "SET", name, value]);
    }
    before
}

fn value(server: &RedisServer, name: &str) -> String {
    let reply = server.cli(&["CONFIG", "GET", name]);
    reply.lines().nth(1).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_with_replicas_and_its_replica() {
    let master = healthy().start();
    let replica = healthy().replica_of(&master).start();
    in_step(&master, 1);
    let report = diagnose_in_step(&master.url()).await;
    only(&report, "replicas", Warning, "1 replica", "");

    let report = diagnose(&replica.url()).await;
    let place = format!("127.0.0.1:{}", master.port());
    only(&report, "role", Danger, &place, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_stopped_lags() {
    let master = healthy().start();
    let replica = healthy().replica_of(&master).start();
    in_step(&master, 1);
    replica.stop();
    eventually(SOON, || {
        let info = master.cli(&["INFO", "replication"]);
        let (_, lag) = info.split_once("lag=").unwrap();
        // Valkey has more fields after it.
        let seconds = lag.split([',', '\r']).next().unwrap();
        seconds.parse::<u32>().unwrap() >= 2
    });
    let report = diagnose(&master.url()).await;
    replica.cont();
    let named = format!("127.0.0.1:{} was last heard of", replica.port());
    assert_found(&report, "replicas", Warning, &named, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster() {
    let server = healthy().config("cluster-enabled yes").start();
    let report = diagnose(&server.url()).await;
    only(&report, "mode", Danger, "", "redis+cluster://");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off() {
    let server = healthy().clock_shim().start();
    for (delta, severity) in [(5_000, Note), (300_000, Warning)] {
        server.step_clock(delta);
        let report = diagnose(&server.url()).await;
        only(&report, "clock", severity, "ahead of ours", "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_diagnosed_is_an_error() {
    let mut server = healthy().requirepass("secret").start();
    let wrong = server.url().replace("secret", "wrong");
    for (url, kind) in [
        (wrong.as_str(), ErrorKind::WrongPassword),
        ("redis://", ErrorKind::InvalidConfig),
        ("nothing:", ErrorKind::InvalidConfig),
    ] {
        let error = Client::builder().diagnose(url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    server.kill9();
    let error = Client::builder().diagnose(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_and_a_socket() {
    for options in [healthy().tls(), healthy().unix_socket()] {
        let server = options.start();
        let report = diagnose(&server.url()).await;
        assert_eq!(report.severity(), Severity::Ok, "{report:#?}");
        assert!(!report.store.contains("secret"));
    }
}
