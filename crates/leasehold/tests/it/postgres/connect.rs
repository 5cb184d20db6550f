//! Addresses, passwords and the schema at connect.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;

use leasehold_testkit::Certs;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn over_a_unix_socket() {
    let server = PostgresServer::start();
    let (directory, port) = (server.directory().display(), server.port());
    let url = format!("postgres://testkit@/postgres?host={directory}&port={port}");
    let store = open(&url).await;
    works(&*store).await;
    assert_eq!(store.to_string(), url);
    works(&*open(&url.replace("postgres://", "postgresql://")).await).await;
}

/// The first host is a server that cannot be written.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_host_that_can_be_written() {
    let [standby, server] = [0; 2].map(|_| PostgresServer::start());
    standby.run(&[
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
    ]);
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", standby.port(), server.port());
    let url = format!("postgres://testkit@{hosts}/postgres");
    eventually_async(SOON, async || {
        refused(&format!(
            "postgres://testkit@127.0.0.1:{}/postgres",
            standby.port()
        ))
        .await
        .to_string()
        .contains("standby")
    })
    .await;
    works(&*open(&url).await).await;
    assert_eq!(
        server.run(&["SELECT count(*) > 0 FROM leasehold.heads"]),
        "t"
    );
}

/// The first host accepts connections as one that is stopped: nothing follows.
#[tokio::test(flavor = "multi_thread")]
async fn by_the_host_that_replies() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = PostgresServer::start();
    let silent = silent.local_addr().unwrap();
    let hosts = format!("{silent},127.0.0.1:{}", server.port());
    works(&*open(&format!("postgres://testkit@{hosts}/postgres")).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_password_from_the_url_the_options_or_a_file() {
    let server = PostgresServer::start();
    server.run(&["CREATE ROLE app SUPERUSER LOGIN PASSWORD 's3cr:et'"]);
    server.add_rule("host all app 127.0.0.1/32 scram-sha-256");
    let url = url_of(&server, "app");
    let with = |password: &str| url.replace("app@", &format!("app:{password}@"));
    // The server reads its rules a moment later.
    eventually_async(SOON, async || {
        refused(&with("wrong")).await.kind() == ErrorKind::WrongPassword
    })
    .await;
    assert_eq!(refused(&url).await.kind(), ErrorKind::NoPassword);
    let wrong = refused(&with("wr0ng")).await;
    assert!(!format!("{wrong:?}{wrong}").contains("wr0ng"), "{wrong:?}");

    let store = open(&with("s3cr%3Aet")).await;
    works(&*store).await;
    assert_eq!(store.to_string(), url);
    assert!(!format!("{store:?}").contains("s3cr"), "{store:?}");
    works(&*open_with(&with("wrong"), OpenOptions::default().password("s3cr:et")).await).await;

    let file = server.directory().join("passwords");
    fs::write(&file, "other:*:*:*:no\n*:*:postgres:app:s3cr\\:et\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let by_file = format!("{url}?passfile={}", file.display());
    works(&*open(&by_file).await).await;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(refused(&by_file).await.kind(), ErrorKind::NoPassword);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls() {
    let (certs, others) = (Certs::make(), Certs::make());
    let server = PostgresServer::start_with_tls(&certs);
    let base = format!("postgres://testkit@127.0.0.1:{}/postgres", server.port());
    let full = format!("{base}?sslmode=verify-full");
    let verified = |by: &Certs| format!("{full}&sslrootcert={}", by.ca.display());
    // `require` accepts any certificate if the URL names no authority.
    for url in [verified(&certs), format!("{base}?sslmode=require")] {
        let store = open(&url).await;
        works(&*store).await;
        let all = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE application_name = 'leasehold'";
        assert_eq!(server.run(&[all]), "t");
    }
    let require = verified(&others).replace("verify-full", "require");
    for url in [verified(&others), require, full.clone()] {
        let reason = "invalid peer certificate";
        assert_refused(&url, ErrorKind::Unreachable, reason, &base).await;
    }

    server.run(&["CREATE ROLE app SUPERUSER LOGIN"]);
    server.add_rule("hostssl all app 127.0.0.1/32 trust clientcert=verify-ca");
    let url = verified(&certs).replace("testkit@", "app@");
    let store = "postgres://app@";
    assert_refused(&url, ErrorKind::Unauthorized, "pg_hba.conf", store).await;
    let [cert, key] = [&certs.client, &certs.client_key].map(|it| fs::read_to_string(it).unwrap());
    let known = OpenOptions::default().tls_identity(cert, key);
    works(&*open_with(&url, known).await).await;
}

/// Each error names the store, and says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_one_clear_error() {
    let server = PostgresServer::start();
    server.run(&[
        "CREATE ROLE app LOGIN",
        "CREATE ROLE nothing LOGIN CONNECTION LIMIT 0",
    ]);
    let nothing = "postgres://testkit@127.0.0.1:1/postgres".to_owned();
    for (url, kind, advice) in [
        (
            server.url().replace("/postgres", "/shop"),
            ErrorKind::InvalidConfig,
            "there is no such database",
        ),
        (
            url_of(&server, "nobody"),
            ErrorKind::Unauthorized,
            "does not admit this user",
        ),
        (
            url_of(&server, "nothing"),
            ErrorKind::Unreachable,
            "max_connections",
        ),
        (
            url_of(&server, "app"),
            ErrorKind::Unauthorized,
            "leasehold doctor --setup",
        ),
        (
            nothing,
            ErrorKind::Unreachable,
            "check host, port and firewall",
        ),
        (
            format!("{}?sslmode=require", server.url()),
            ErrorKind::Unreachable,
            "sslmode",
        ),
        (
            format!("{}?sslmode=some", server.url()),
            ErrorKind::InvalidConfig,
            "verify-full",
        ),
        (
            format!("{}?synchronous_commit=x", server.url()),
            ErrorKind::InvalidConfig,
            "remote_apply",
        ),
    ] {
        assert_refused(&url, kind, advice, "postgres://").await;
    }
    // Nothing was made by one that may not.
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
    assert_eq!(server.run(&[schemas]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_only_locks_and_a_schema_of_another_version() {
    let server = PostgresServer::start();
    works(&*open(&server.url()).await).await;
    server.run(&[
        "CREATE ROLE app LOGIN",
        "GRANT USAGE ON SCHEMA leasehold TO app",
        "GRANT SELECT ON leasehold.version TO app",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.heads, leasehold.members TO app",
    ]);
    let store = open(&url_of(&server, "app")).await;
    works(&*store).await;
    server.run(&["REVOKE UPDATE ON leasehold.heads FROM app"]);
    let error = rejected(&*store, acquire("refused", 1)).await;
    assert_eq!(
        (error.kind(), error.lock()),
        (ErrorKind::Unauthorized, Some("refused"))
    );

    server.run(&["UPDATE leasehold.version SET version = 99"]);
    let error = refused(&server.url()).await;
    assert_error(&error, ErrorKind::Unsupported, &["version 99"]);
}

/// One of them waits for the other in a transaction that would read what was there before.
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_at_once_make_the_schema() {
    let server = PostgresServer::start();
    server.run(&["ALTER ROLE testkit SET default_transaction_isolation = 'repeatable read'"]);
    let url = server.url();
    let (one, other) = tokio::join!(open(&url), open(&url));
    works(&*one).await;
    works(&*other).await;
}

/// Settings of a role that change what statements mean.
#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_user_change_nothing() {
    let server = PostgresServer::start();
    works(&*open(&server.url()).await).await;
    for setting in [
        "search_path = evil, pg_catalog",
        "timezone = 'Asia/Kathmandu'",
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "synchronous_commit = off",
        "lock_timeout = '1ms'",
        "standard_conforming_strings = off",
        "DateStyle = 'German'",
    ] {
        server.run(&[&format!("ALTER ROLE testkit SET {setting}")]);
    }
    server.run(&[
        "CREATE SCHEMA evil",
        "CREATE FUNCTION evil.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
        "CREATE FUNCTION evil.split_part(text, text, integer) RETURNS text LANGUAGE sql AS $$SELECT 'no'$$",
    ]);
    let url = server.url();
    let [one, other] = StoreClient::two_listening([&url, &url]).await;
    passes_on(&one, &other, "a").await;
}
