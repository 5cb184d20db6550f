//! PostgreSQL databases, each with one thing that is wrong.

use leasehold::doctor::Severity::{self, Danger, Note, Warning};
use leasehold::doctor::postgres_setup;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::PostgresServer;

use super::{assert_found, diagnose, found};

/// The URL for a role of its own.
fn url_of(server: &PostgresServer, role: &str) -> String {
    server.url().replace("testkit@", &format!("{role}@"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_not_changed() {
    let server = PostgresServer::start();
    let report = diagnose(&server.url()).await;
    assert_found(&report, "schema", Severity::Ok, "creates it", "");
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(server.run(&[schemas]), "0");

    let client = Client::connect(&server.url()).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let report = diagnose(&server.url()).await;
    let checks = "version schema rights pooler standbys connections clock";
    for check in checks.split(' ') {
        assert_eq!(found(&report, check).severity, Severity::Ok, "{report:#?}");
    }
    assert_eq!(client.locks().await.unwrap().len(), 1);
    guard.release().await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%'";
    assert_eq!(server.run(&[open]), "0");
}

/// The server of the tests need not survive a crash.
#[tokio::test(flavor = "multi_thread")]
async fn settings_that_lose_locks() {
    let server = PostgresServer::start();
    server.run(&[&postgres_setup(None)]);
    for (setting, check, severity, observed) in [
        ("", "persistence", Danger, "fsync off"),
        ("", "autovacuum", Warning, "off"),
        ("", "timeouts", Note, "is not set"),
        (
            "default_transaction_read_only = on",
            "role",
            Danger,
            "read-only",
        ),
    ] {
        if !setting.is_empty() {
            server.run(&[&format!("ALTER ROLE testkit SET {setting}")]);
        }
        let report = diagnose(&server.url()).await;
        assert_found(&report, check, severity, observed, "");
        // The last one would refuse the next.
        let writable = "SET default_transaction_read_only = off";
        server.run(&[writable, "ALTER ROLE testkit RESET ALL"]);
    }
    server.run(&["ALTER TABLE leasehold.heads SET UNLOGGED"]);
    let report = diagnose(&server.url()).await;
    let unlogged = "the table leasehold.heads is unlogged";
    assert_found(&report, "persistence", Danger, unlogged, "");
}

/// A role has the rights that the setup grants, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_only_locks() {
    let server = PostgresServer::start();
    server.run(&["CREATE ROLE app LOGIN"]);
    let url = url_of(&server, "app");
    let report = diagnose(&url).await;
    let setup = "leasehold doctor --setup --role app | psql";
    assert_found(&report, "schema", Danger, "", setup);
    let refused = lock(&url).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthorized, "{refused}");

    // It can be run again.
    for _ in 0..2 {
        server.run(&[&postgres_setup(Some("app"))]);
    }
    lock(&url).await.unwrap();
    assert_eq!(
        found(&diagnose(&url).await, "rights").severity,
        Severity::Ok
    );

    for right in [
        "UPDATE ON leasehold.heads",
        "DELETE ON leasehold.members",
        "SELECT ON leasehold.version",
        "USAGE ON SCHEMA leasehold",
    ] {
        server.run(&[&format!("REVOKE {right} FROM app")]);
        let report = diagnose(&url).await;
        let finding = found(&report, "rights");
        assert_found(&report, "rights", Danger, "", "");
        let fix = finding.fix.as_deref().unwrap();
        assert_eq!(fix, format!("GRANT {right} TO \"app\";"));
        server.run(&[fix]);
    }
    lock(&url).await.unwrap();
}

async fn lock(url: &str) -> leasehold::Result<()> {
    let client = Client::connect(url).await?;
    client.mutex("stock")?.lock().await?.release().await
}
