//! The statements for databases, when two holders come at once.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Duration;

use leasehold::fence::sql::Dialect;
use leasehold_testkit::{OutputLines, PostgresServer, eventually};

use super::paused::set_up;
use super::resources::rows;

const SOON: Duration = Duration::from_secs(20);

/// A session that stays open.
struct Session {
    psql: Child,
    replies: OutputLines,
}

impl Session {
    fn start(server: &PostgresServer) -> Self {
        let mut psql = server.psql();
        let psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().unwrap();
        let replies = OutputLines::read(psql.stdout.take().unwrap());
        let mut session = Self { psql, replies };
        for (name, types, statement) in [
            (
                "ship",
                "bigint, bigint, text",
                Dialect::Postgres.update("orders", &["state"], "id"),
            ),
            (
                "admit",
                "text, bigint",
                Dialect::Postgres.admit().to_owned(),
            ),
        ] {
            session.send(&format!("PREPARE {name} ({types}) AS {statement};"));
            assert_eq!(session.reply(), "PREPARE");
        }
        session
    }

    fn send(&self, statement: &str) {
        writeln!(self.psql.stdin.as_ref().unwrap(), "{statement}").unwrap();
    }

    fn reply(&mut self) -> String {
        self.replies.next_line().unwrap().trim().to_owned()
    }

    fn run(&mut self, statement: &str) -> String {
        self.send(statement);
        self.reply()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.psql.stdin.take());
        let _ = self.psql.wait();
    }
}

/// The late one waits for the other's commit, and then does nothing.
#[test]
fn a_late_holder_changes_nothing_before_another_has_committed() {
    let server = PostgresServer::start();
    set_up(&server);
    let (mut next, mut late) = (Session::start(&server), Session::start(&server));
    for (statement, token) in [
        ("EXECUTE ship (TOKEN, 42, 'TOKEN');", 8),
        ("EXECUTE admit ('orders/42', TOKEN);", 18),
    ] {
        let of = |token: u64| statement.replace("TOKEN", &token.to_string());
        next.run("BEGIN;");
        assert_eq!(rows(&next.run(&of(token))), 1);
        late.run("BEGIN;");
        late.send(&of(token - 1));
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        eventually(SOON, || server.run(&[waits]) == "1");
        next.run("COMMIT;");
        assert_eq!(rows(&late.reply()), 0);
        late.run("ROLLBACK;");
    }
    assert_eq!(server.run(&["SELECT state, fence FROM orders"]), "8|8");
    let fences = server.run(&["SELECT name, token FROM fences"]);
    assert_eq!(fences, "orders/42|18");
}

/// The script of the recipe: for a refused write psql fails, so a run under a lock does, too.
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
#[test]
fn a_rollback_admits_the_holder_before() {
    let server = PostgresServer::start();
    set_up(&server);
    let (mut next, mut early) = (Session::start(&server), Session::start(&server));
    next.run("BEGIN;");
    assert_eq!(rows(&next.run("EXECUTE ship (8, 42, 'next');")), 1);
    early.send("EXECUTE ship (7, 42, 'early');");
    next.run("ROLLBACK;");
    assert_eq!(rows(&early.reply()), 1);
    assert_eq!(server.run(&["SELECT state, fence FROM orders"]), "early|7");
}
