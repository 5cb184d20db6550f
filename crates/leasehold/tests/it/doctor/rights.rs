//! Permissions, and the line that grants them.
//!
//! The whole conformance suite runs for a user with exactly this line: `conformance::allowed`.

use leasehold::doctor::{Report, Severity};
use leasehold::{Client, Durability, ErrorKind, ReplicaCount};
use leasehold_testkit::{RedisOptions, RedisServer, eventually_async};

use super::{SOON, assert_found, diagnose, found, healthy};

/// The password of the user in the line.
pub(crate) const PASSWORD: &str = "no-more-than-need-be";

/// Creates the user of the line that `doctor` names, without one of its words, also for these namespaces.
pub(crate) fn allow(server: &RedisServer, namespaces: &[&str], without: &str) {
    let line = line(&server.url()).replace("PASSWORD", PASSWORD);
    let words = line.split(' ').filter(|word| *word != without);
    let more = namespaces
        .iter()
        .flat_map(|name| [format!("~{name}:*"), format!("&{name}:*")]);
    let words: Vec<_> = words.map(str::to_owned).chain(more).collect();
    server.cli(&words.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Creates the user of a line on servers that belong together.
pub(super) fn allow_line<'a>(servers: impl IntoIterator<Item = &'a RedisServer>, line: &str) {
    let line = line.replace("PASSWORD", PASSWORD);
    let words: Vec<_> = line.split(' ').collect();
    for server in servers {
        server.cli(&words);
        server.cli(&["ACL", "LOG", "RESET"]);
    }
}

/// On a thread of its own, because some callers have a runtime already.
pub(super) fn line(url: &str) -> String {
    std::thread::scope(|scope| {
        let line = scope.spawn(|| {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let report = runtime.block_on(diagnose(url));
            report.acl.unwrap()
        });
        line.join().unwrap()
    })
}

async fn diagnose_allowed(server: &RedisServer) -> Report {
    diagnose(&server.url_of("leasehold", PASSWORD)).await
}

/// The line for `doctor` in a report of a user who may not see all.
#[track_caller]
pub(super) fn line_for_doctor(report: &Report) -> String {
    let missing = found(report, "diagnosis");
    assert_eq!(missing.severity, Severity::Unknown, "{report:#?}");
    let fix = missing.fix.as_deref().unwrap();
    fix[fix.find("ACL SETUSER").unwrap()..].to_owned()
}

/// The facts that are hidden from it are unknown, and the user that the finding names sees all.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_these_rights_may_do_all_and_not_see_all() {
    let server = healthy().start();
    allow(&server, &[], "");
    let unsafe_settings = [
        ["maxmemory", "100mb"],
        ["maxmemory-policy", "allkeys-lru"],
        ["appendonly", "no"],
    ];
    for [name, value] in unsafe_settings {
        server.cli(&["CONFIG", "SET", name, value]);
    }
    let report = diagnose_allowed(&server).await;
    assert_eq!(report.severity(), Severity::Unknown, "{report:#?}");
    assert_eq!(found(&report, "rights").severity, Severity::Ok);
    let missing = &found(&report, "diagnosis").observed;
    for part in ["eviction", "persistence", "INFO", "CONFIG GET", "NOPERM"] {
        assert!(missing.contains(part), "{part}: {missing}");
    }
    allow_line([&server], &line_for_doctor(&report));
    let url = server.url_of("leasehold-doctor", PASSWORD);
    let report = diagnose(&url).await;
    for check in ["eviction", "persistence"] {
        assert_eq!(found(&report, check).severity, Severity::Danger);
    }
    for [name, _] in unsafe_settings {
        let safe = match name {
            "maxmemory" => "0",
            "maxmemory-policy" => "noeviction",
            _ => "yes",
        };
        server.cli(&["CONFIG", "SET", name, safe]);
    }
    let report = diagnose(&url).await;
    assert_eq!(report.severity(), Severity::Ok, "{report:#?}");
    let has_all = "user leasehold-doctor has all";
    assert_found(&report, "rights", Severity::Ok, has_all, "");
    assert_eq!(server.cli(&["ACL", "LOG"]), "");
}

/// Each word of the line is needed: `doctor` finds that it is missing, and an operation fails.
#[tokio::test(flavor = "multi_thread")]
async fn one_right_less_is_found_and_is_needed() {
    let server = healthy().start();
    let line = line(&server.url());
    let rights = line
        .split(' ')
        .filter(|word| word.starts_with(['+', '~', '&']));
    for right in rights {
        allow(&server, &[], right);
        // With the script in the server's cache, `EVAL` is not needed.
        server.cli(&["SCRIPT", "FLUSH"]);
        let report = diagnose_allowed(&server).await;
        let finding = found(&report, "rights");
        assert!(finding.severity > Severity::Ok, "{right}: {report:#?}");
        let fix = finding.fix.as_deref().unwrap();
        assert!(fix.contains(right), "{right}: {fix}");
        // A lock is granted without it; renewing fails, see `redis::rights`.
        if finding.severity == Severity::Danger && right != "+pexpire" {
            assert!(!is_granted(&server).await, "{right}");
        }
        allow(&server, &[], "");
        let words: Vec<_> = fix.split(' ').collect();
        server.cli(&words);
        let finding = found(&diagnose_allowed(&server).await, "rights").severity;
        assert_eq!(finding, Severity::Ok, "{fix}");
        assert!(is_granted(&server).await, "{right}");
        server.cli(&["FLUSHALL"]);
    }
}

/// Whether a lock is granted, held, renewed and released.
async fn is_granted(server: &RedisServer) -> bool {
    let url = server.url_of("leasehold", PASSWORD);
    let granted = async {
        let client = Client::connect(&url).await?;
        let Some(guard) = client.mutex("rights")?.try_lock().await? else {
            panic!("another holds it");
        };
        guard.ensure(std::time::Duration::from_secs(1)).await?;
        guard.release().await
    };
    match granted.await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
            false
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_database_needs_another_right() {
    let server = RedisOptions::default().start();
    let url = format!("{}3", server.url().trim_end_matches('0'));
    let line = line(&url);
    assert!(line.ends_with(" +select"), "{line}");
}

/// The right to wait for replicas is named, and missed, where locks are to have them.
#[tokio::test(flavor = "multi_thread")]
async fn a_durability_needs_another_right() {
    let server = healthy().start();
    let _replica = RedisServer::options().replica_of(&server).start();
    super::in_step(&server, 1);
    let replicated = || {
        Client::builder().durability(Durability::Replicas {
            count: ReplicaCount::All,
            timeout: std::time::Duration::from_secs(5),
        })
    };
    let plain = line(&server.url());
    let line = replicated().diagnose(&server.url()).await.unwrap();
    let line = line.acl.unwrap();
    assert_eq!(line, format!("{plain} +wait"));

    let url = server.url_of("leasehold", PASSWORD);
    for (line, severity) in [(&plain, Severity::Danger), (&line, Severity::Ok)] {
        allow_line([&server], line);
        let report = replicated().diagnose(&url).await.unwrap();
        let finding = found(&report, "rights");
        assert_eq!(finding.severity, severity, "{report:#?}");
        let fix = finding.fix.as_deref();
        let named = fix.is_some_and(|fix| fix.ends_with(" +wait"));
        assert_eq!(named, line == &plain);
        // Without a durability the right is not needed.
        let report = diagnose_allowed(&server).await;
        assert_eq!(found(&report, "rights").severity, Severity::Ok);
    }
    let mut client = None;
    // A replica on a busy machine may be late now and then.
    eventually_async(SOON, async || {
        match replicated().connect(&url).await {
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}"),
            Ok(connected) => client = Some(connected),
        }
        client.is_some()
    })
    .await;
    let client = client.unwrap();
    let guard = client.mutex("replicated").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}
