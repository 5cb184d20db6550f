//! The statements for databases, when two holders come at once.

use std::fs;

use leasehold::fence::sql::Dialect;
use leasehold_testkit::{PostgresServer, eventually_async};

use super::paused::set_up;
use super::resources::{Parameters, session};
use crate::waiters::SOON;

/// The rows that a late holder changes by a statement, while another one has changed a row, and commits.
async fn late_rows(
    server: &PostgresServer,
    statement: &str,
    next: Parameters<'_>,
    late: Parameters<'_>,
) -> u64 {
    let url = server.url();
    let (mut next_session, late_session) = (session(&url).await, session(&url).await);
    let transaction = next_session.transaction().await.unwrap();
    assert_eq!(transaction.execute(statement, next).await.unwrap(), 1);
    let commits = async {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        eventually_async(SOON, async || server.run(&[waits]) == "1").await;
        transaction.commit().await.unwrap();
    };
    let (late, ()) = tokio::join!(late_session.execute(statement, late), commits);
    late.unwrap()
}

/// The late one waits for the other's commit, and then does nothing.
#[tokio::test]
async fn a_late_holder_changes_nothing_before_another_has_committed() {
    let server = PostgresServer::start();
    set_up(&server);
    let ship = Dialect::Postgres.update("orders", &["state"], "id");
    let (next, late): (Parameters<'_>, Parameters<'_>) =
        (&[&8_i64, &42_i64, &"8"], &[&7_i64, &42_i64, &"7"]);
    assert_eq!(late_rows(&server, &ship, next, late).await, 0);
    let (next, late): (Parameters<'_>, Parameters<'_>) =
        (&[&"orders/42", &18_i64], &[&"orders/42", &17_i64]);
    let admit = Dialect::Postgres.admit();
    assert_eq!(late_rows(&server, admit, next, late).await, 0);
    assert_eq!(server.run(&["SELECT state, fence FROM orders"]), "8|8");
    let fences = server.run(&["SELECT name, token FROM fences"]);
    assert_eq!(fences, "orders/42|18");
}

/// The script of the recipe: for a refused write psql fails, and so does a run under a lock.
#[test]
fn a_late_write_by_psql_is_an_error() {
    let page = include_str!("../../../../../docs/recipes.md");
    let (_, script) = page.split_once("```sql\n\\set").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ship.sql");
    fs::write(&file, format!("\\set{script}")).unwrap();
    let server = PostgresServer::start();
    set_up(&server);
    for (token, state, refused) in [(8, "next", false), (7, "late", true), (8, "again", false)] {
        let mut psql = server.psql();
        // The script sets it itself.
        psql.args(["-v", "ON_ERROR_STOP=0", "-v", &format!("token={token}")]);
        psql.args(["-v", &format!("state={state}"), "-f"])
            .arg(&file);
        let output = psql.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(if refused { 3 } else { 0 }),
            "{error}"
        );
        assert_eq!(
            error.contains("refused: a later holder"),
            refused,
            "{error}"
        );
    }
    assert_eq!(server.run(&["SELECT state, fence FROM orders"]), "again|8");
}

/// Another time, if the next holder gave up: then the one before it is not late.
#[tokio::test]
async fn a_rollback_admits_the_holder_before() {
    let server = PostgresServer::start();
    set_up(&server);
    let url = server.url();
    let (mut next_session, early_session) = (session(&url).await, session(&url).await);
    let ship = Dialect::Postgres.update("orders", &["state"], "id");
    let (next, early): (Parameters<'_>, Parameters<'_>) =
        (&[&8_i64, &42_i64, &"next"], &[&7_i64, &42_i64, &"early"]);
    let transaction = next_session.transaction().await.unwrap();
    assert_eq!(transaction.execute(&*ship, next).await.unwrap(), 1);
    let early = early_session.execute(&*ship, early);
    let (early, rolled_back) = tokio::join!(early, transaction.rollback());
    rolled_back.unwrap();
    assert_eq!(early.unwrap(), 1);
    assert_eq!(server.run(&["SELECT state, fence FROM orders"]), "early|7");
}
