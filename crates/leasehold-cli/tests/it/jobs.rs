//! Jobs: `run --every`, `once` and `jobs`.

use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_testkit::{RedisServer, eventually};

use crate::schema::checked;
use crate::tools::{Fixture, RunToEnd, SOON, code, finish, kill, parent_of, stderr, stdout};

/// How many processes start a job at the same time.
const STARTS: usize = 20;

/// A start of `once` or `run` whose command counts its runs in the file `ran`.
fn start(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.leasehold(args);
    command.args(["--", "sh", "-c", "echo ran >> ran"]);
    command
}

fn runs(fixture: &Fixture) -> usize {
    fixture.read("ran").lines().count()
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_micros()
}

/// The end of a process and its exit code, in a thread of its own.
fn await_end(mut process: Child) -> thread::JoinHandle<(u128, Option<i32>)> {
    thread::spawn(move || {
        let status = process.wait().unwrap();
        (micros(), status.code())
    })
}

/// The runner is killed twice, and one of the others takes over.
fn twenty_starts_complete_one_run(fixture: &Fixture) {
    let script = "echo $PPID >> begun; sleep 2; date +%s%6N >> ended";
    let starts = (0..STARTS).map(|_| {
        let mut once = fixture.leasehold(["once", "--ttl", "9s", "migrate", "--key", "v1.2.3"]);
        once.args(["--", "sh", "-c", script]);
        let once = once.stdin(Stdio::null()).stderr(Stdio::piped());
        await_end(once.spawn().unwrap())
    });
    let starts: Vec<_> = starts.collect();
    for killed in 1..=2 {
        eventually(SOON, || fixture.read("begun").lines().count() == killed);
        let begun = fixture.read("begun");
        let guardian = begun.lines().last().unwrap();
        kill("KILL", parent_of(guardian).parse().unwrap());
    }
    let ends: Vec<_> = starts.into_iter().map(|it| it.join().unwrap()).collect();
    assert_eq!(fixture.read("begun").lines().count(), 3);
    let ended = fixture.read("ended");
    let ended: u128 = ended.trim().parse().expect("one line");
    let codes: Vec<_> = ends.iter().map(|(_, code)| *code).collect();
    let (killed, completed): (Vec<_>, Vec<_>) = ends.iter().partition(|(_, code)| code.is_none());
    assert_eq!(killed.len(), 2, "{codes:?}");
    assert!(
        completed.iter().all(|(_, code)| *code == Some(0)),
        "{codes:?}"
    );
    let is_after = |(at, _): &(u128, _)| *at >= ended;
    assert!(
        completed.iter().all(is_after),
        "an exit before the end of the command"
    );
    let mut after: Vec<_> = completed.iter().map(|(at, _)| at - ended).collect();
    after.sort_unstable();
    println!(
        "exits after the end of the command: median {} ms, last {} ms",
        after[after.len() / 2] / 1000,
        after[after.len() - 1] / 1000
    );
    assert!(!fixture.is_held("migrate"));
}

#[test]
fn twenty_starts_complete_one_run_on_redis() {
    let (_server, fixture) = Fixture::redis();
    twenty_starts_complete_one_run(&fixture);
}

#[test]
fn twenty_starts_complete_one_run_in_a_file() {
    twenty_starts_complete_one_run(&Fixture::new());
}

#[test]
fn a_run_that_was_complete_already_has_an_exit_code_and_a_message() {
    let (_server, redis) = Fixture::redis();
    for fixture in [redis, Fixture::new()] {
        let once = ["once", "migrate", "--key", "v1"];
        let failing = fixture.leasehold(once.iter().chain(&["--", "sh", "-c", "exit 3"]));
        assert_eq!(code(&mut { failing }), 3);
        assert_eq!((code(&mut start(&fixture, &once)), runs(&fixture)), (0, 1));
        let output = start(&fixture, &once).run_to_end();
        assert_eq!((output.status.code(), runs(&fixture)), (Some(0), 1));
        assert_eq!(
            (stdout(&output), stderr(&output)),
            (String::new(), String::new())
        );
        let verbose = [&once[..], &["-v", "--done-exit-code", "9"]].concat();
        let output = start(&fixture, &verbose).run_to_end();
        assert_eq!((output.status.code(), runs(&fixture)), (Some(9), 1));
        let message = stderr(&output);
        assert!(
            message.contains("migrate for v1 was completed at 20"),
            "{message}"
        );
        assert!(
            message.contains(", sh; the command was not run"),
            "{message}"
        );
        // Another key, and the periodic job, have runs of their own.
        let other = ["once", "migrate", "--key", "v2", "--label", "two"];
        assert_eq!((code(&mut start(&fixture, &other)), runs(&fixture)), (0, 2));
        let daily = ["run", "--every", "1d", "migrate"];
        for _ in 0..2 {
            assert_eq!((code(&mut start(&fixture, &daily)), runs(&fixture)), (0, 3));
        }
    }
}

fn jobs(fixture: &Fixture, args: &[&str]) -> Output {
    fixture.leasehold([&["jobs"], args].concat()).run_to_end()
}

#[test]
fn jobs_are_listed_and_reset() {
    let fixture = Fixture::new();
    let none = jobs(&fixture, &[]);
    assert!(none.status.success() && stdout(&none).is_empty());
    assert!(stderr(&none).starts_with("no completed runs are recorded in "));
    let anchor = "2026-01-05T02:00:00Z";
    let nightly = [
        "run",
        "--every",
        "7d",
        "--anchor",
        anchor,
        "--label",
        "a \u{202e}b",
        "nightly",
    ];
    assert_eq!(code(&mut start(&fixture, &nightly)), 0);
    assert_eq!(
        code(&mut start(&fixture, &["once", "migrate", "--key", "v1"])),
        0
    );
    let table = stdout(&jobs(&fixture, &[]));
    let mut lines = table.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "KEY", "ENDED", "TOOK", "EXIT", "BY", "NEXT"]
    );
    let (migrate, nightly) = (lines.next().unwrap(), lines.next().unwrap());
    assert!(
        migrate.starts_with("migrate ") && migrate.ends_with(" -"),
        "{table}"
    );
    assert!(nightly.contains(r#", sh ("a \u{202e}b")"#), "{table}");
    let (_, next) = nightly.rsplit_once("  ").unwrap();
    assert!(
        next.starts_with("in ") && nightly.contains(" ago "),
        "{table}"
    );
    let listed = checked("jobs", &stdout(&jobs(&fixture, &["--json"])));
    let (migrate, nightly) = (&listed["jobs"][0], &listed["jobs"][1]);
    assert_eq!(
        (&migrate["name"], &migrate["key"]),
        (&"migrate".into(), &"v1".into())
    );
    assert!(migrate["period_ms"].is_null() && migrate["next_slot"].is_null());
    let next = nightly["next_slot"].as_str().unwrap();
    assert!(next.ends_with("T02:00:00.000Z"), "{next}");
    assert_eq!(nightly["period_ms"], 7 * 86_400_000);
    assert_eq!(
        (&nightly["exit_code"], &nightly["overdue"]),
        (&0.into(), &false.into())
    );
    records_are_reset(&fixture);
}

/// The records of `nightly`, and of `migrate` for the key `v1`.
fn records_are_reset(fixture: &Fixture) {
    // The records that may be meant are named.
    let other = jobs(fixture, &["--reset", "migrate"]);
    assert!(stdout(&other).ends_with("; recorded: --key v1\n"));
    for (args, removed) in [
        (&["nightly", "--key", "v1"][..], false),
        (&["migrate"], false),
        (&["nightly"], true),
        (&["nightly"], false),
        (&["migrate", "--key", "v1"], true),
    ] {
        let output = jobs(fixture, &[&["--reset"], args, &["--json"]].concat());
        let reset = checked("jobs_reset", &stdout(&output));
        assert_eq!(reset["reset"], removed, "{args:?}");
        assert_eq!(output.status.code(), Some(i32::from(!removed)), "{args:?}");
    }
    assert_eq!(
        code(&mut start(fixture, &["once", "migrate", "--key", "v1"])),
        0
    );
    let reset = jobs(fixture, &["--reset", "migrate", "--key", "v1"]);
    assert!(stdout(&reset).contains("the run of migrate for v1 was removed"));
}

/// A waiter takes over the run of a killed runner and of a failed one; a start that does not wait says that it does not.
#[test]
fn a_failed_run_is_taken_over_by_those_that_wait() {
    let fixture = Fixture::new();
    let daily = ["--every", "1d", "--ttl", "6s", "job"];
    let running = fixture.hold(&daily);
    let refused = fixture
        .run_script(&["-n", "--every", "1d", "job"], "true")
        .run_to_end();
    assert_eq!(refused.status.code(), Some(75));
    let message = stderr(&refused);
    assert!(
        message.contains("if the run there fails, this one does not take over"),
        "{message}"
    );
    let waiting = start(&fixture, &[&["run"], &daily[..]].concat())
        .spawn()
        .unwrap();
    running.signal("KILL");
    assert_eq!(finish(waiting).status.code(), Some(0));
    assert_eq!(runs(&fixture), 1);
    drop(running.finish());

    // A failed run keeps the lock for a while.
    let failing = ["--every", "1d", "--retry-after", "5s", "other"];
    let begun = micros();
    assert_eq!(code(&mut fixture.run_script(&failing, "exit 4")), 4);
    assert!(fixture.is_held("other"));
    assert_eq!(
        code(&mut start(&fixture, &["run", "--every", "1d", "other"])),
        0
    );
    assert!(micros() - begun >= 5_000_000);
    assert_eq!(runs(&fixture), 2);
}

/// A run that has lost its lock is not recorded, even if its command goes on and ends with 0.
#[test]
fn a_run_that_was_cut_off_is_not_recorded() {
    let (_server, fixture) = Fixture::redis();
    for (on_lost, exit) in [("term", 122), ("ignore", 0)] {
        let args = ["--every", "1d", "--on-lost", on_lost, "job"];
        let running = fixture.hold_until_go_on(&args);
        fixture.revoke("job");
        fixture.write("go-on");
        let output = running.ends_with(exit);
        assert!(stderr(&output).contains("the lock is lost"), "{output:?}");
        let none = fixture.leasehold(["jobs", "--reset", "job"]).run_to_end();
        assert_eq!(none.status.code(), Some(1), "{on_lost}");
        std::fs::remove_file(fixture.path("go-on")).unwrap();
    }
}

/// The slots are those of the store's clock. Five machines start the job on each day, some of them hours late.
#[test]
fn each_day_has_one_run_by_the_clock_of_the_store() {
    const HOUR: i64 = 3_600_000;
    let server = RedisServer::options().clock_shim().start();
    let fixture = Fixture::with_store(server.url());
    for day in 1..=4 {
        let mut moved = 0;
        // Before the time of the first run, after it, and late.
        for late in [-HOUR / 2, HOUR / 6, 4 * HOUR] {
            // On the first day the first start is the anchor.
            let late = if day == 1 { late.max(0) } else { late };
            server.step_clock(late - moved);
            moved = late;
            let started = (0..2).map(|_| {
                let mut daily = start(&fixture, &["run", "--every", "1d", "job"]);
                daily.spawn().unwrap()
            });
            for process in started.collect::<Vec<_>>() {
                assert_eq!(finish(process).status.code(), Some(0));
            }
            assert_eq!(runs(&fixture), day, "day {day}, {late} ms late");
        }
        server.step_clock(24 * HOUR - moved);
    }
    let listed = fixture.leasehold(["jobs", "--json"]).run_to_end();
    let listed = checked("jobs", &stdout(&listed));
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 1);
}
