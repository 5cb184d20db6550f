//! Runs of jobs: `run --every` and `once`.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold_testkit::eventually;

use crate::job_records::jobs;
use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, RunToEnd, Running, SOON, assert_like, kill, now, parent_of,
    shown_at_terminal, stderr, stdout,
};

/// How many processes start a job at the same time.
const STARTS: usize = 20;

/// A start of `once` or `run` whose command counts its runs in the file `ran`.
pub(crate) fn start(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.leasehold(args);
    command.args(["--", "sh", "-c", "echo ran >> ran"]);
    command
}

fn runs(fixture: &Fixture) -> usize {
    fixture.read("ran").lines().count()
}

/// The end of a process and its exit code, in a thread of its own.
fn await_end(process: Child) -> thread::JoinHandle<(u128, Option<i32>)> {
    thread::spawn(move || {
        let output = process.wait_with_output().unwrap();
        eprint!("{}", stderr(&output));
        (now().as_micros(), output.status.code())
    })
}

/// The runner is killed twice, and one of the others takes over.
fn twenty_starts_complete_one_run(fixture: &Fixture) {
    // The first two end only with their runners.
    let script = "echo $PPID >> begun; test $(wc -l < begun) -ge 3 || sleep 1000; sleep 2; date +%s%6N >> ended";
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
    assert!(completed.iter().all(is_after), "{ended}: {completed:?}");
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
    for fixture in [redis, Fixture::with_file()] {
        let once = ["once", "migrate", "--key", "v1"];
        let mut command = fixture.leasehold(once.iter().chain(&["--", "sh", "-c", "exit 3"]));
        command.ends_with(3);
        let dates = [3_650, 3_649].map(|days| {
            let kept = jiff::SignedDuration::from_hours(24 * days);
            let until = (jiff::Timestamp::now() + kept).to_zoned(jiff::tz::TimeZone::system());
            until.strftime("%Y-%m-%d").to_string()
        });
        let has_date = |text: &str| dates.iter().any(|date| text.contains(date));
        let output = start(&fixture, &once).ends_with(0);
        assert_eq!(runs(&fixture), 1);
        let message = stderr(&output);
        let expected = "leasehold: migrate for v1 is recorded as complete at [..] (kept until [..]); \
                        other starts do not run it\n";
        assert_like(&message, expected);
        assert_eq!(message.lines().count(), 1);
        let table = stdout(&jobs(&fixture, &[]));
        assert!(has_date(&message) && has_date(&table), "{message}{table}");
        let output = start(&fixture, &once).ends_with(0);
        assert_eq!(runs(&fixture), 1);
        let message = stderr(&output);
        assert_like(&message, "[..], sh; the command was not run\n");
        assert_eq!(message.lines().count(), 1);
        let quiet = [&once[..], &["-q"]].concat();
        let output = start(&fixture, &quiet).ends_with(0);
        assert_eq!(runs(&fixture), 1);
        assert_eq!(stdout(&output) + &stderr(&output), "");
        let verbose = [&once[..], &["-v", "--done-exit-code", "9"]].concat();
        let output = start(&fixture, &verbose).ends_with(9);
        assert_eq!(runs(&fixture), 1);
        let message = stderr(&output);
        let expected =
            "[..]migrate for v1 was completed at 20[..], sh; the command was not run[..]";
        assert_like(&message, expected);
        // Another key, and the periodic job, have runs of their own.
        let other = ["once", "migrate", "--key", "v2", "--label", "two"];
        start(&fixture, &other).ends_with(0);
        assert_eq!(runs(&fixture), 2);
        let daily = ["run", "--every", "1d", "migrate"];
        for _ in 0..2 {
            start(&fixture, &daily).ends_with(0);
            assert_eq!(runs(&fixture), 3);
        }
    }
}

/// A waiter takes over the run of a killed runner and of a failed one; a start that does not wait says that it does not.
#[test]
fn a_failed_run_is_taken_over_by_those_that_wait() {
    let fixture = Fixture::new();
    let daily = ["--every", "1d", "--ttl", "6s", "job"];
    let running = fixture.hold(&daily);
    let message = fixture.messages(&["-n", "--every", "1d", "job"], 75);
    let expected = "[..]if the run there fails, this one does not take over[..]";
    assert_like(&message, expected);
    let waiting = start(&fixture, &[&["run"], &daily[..]].concat())
        .spawn()
        .unwrap();
    running.signal("KILL");
    waiting.ends_with(0);
    assert_eq!(runs(&fixture), 1);
    drop(running.finish());

    // A failed run keeps the lock for a while.
    let failing = ["--every", "1d", "--retry-after", "5s", "other"];
    let begun = now();
    fixture.run_script(&failing, "exit 4").ends_with(4);
    assert!(fixture.is_held("other"));
    start(&fixture, &["run", "--every", "1d", "other"]).ends_with(0);
    assert!(now() - begun >= Duration::from_secs(5));
    assert_eq!(runs(&fixture), 2);
}

/// A run that has lost its lock is not recorded, even if its command goes on and ends with 0. Its exit code says so, and
/// so does a quiet run.
#[test]
fn a_run_that_was_cut_off_is_not_recorded() {
    let (_server, fixture) = Fixture::redis();
    for (on_lost, printed) in [
        ("term", "the lock is lost"),
        ("ignore", "the run is not recorded as complete"),
    ] {
        let args = ["--quiet", "--every", "1d", "--on-lost", on_lost, "job"];
        let running = fixture.hold_until_go_on(&args);
        fixture.revoke("job");
        if on_lost == "ignore" {
            fixture.write("go-on");
        }
        let output = running.ends_with(122);
        assert!(stderr(&output).contains(printed), "{output:?}");
        fixture.leasehold(["jobs", "--reset", "job"]).ends_with(1);
    }
}

/// The lock is held to the end, and then free: another start runs the job again.
#[test]
fn a_run_whose_record_the_store_refuses_fails() {
    let (server, fixture) = Fixture::redis();
    let key = "leasehold:{default:job}:completion";
    let running = fixture.hold_until_go_on(&["--quiet", "--every", "1d", "job"]);
    server.cli(&["RPUSH", key, "garbage"]);
    fixture.write("go-on");
    let message = stderr(&running.ends_with(125));
    let expected = "[..]the run is not recorded as complete, so it may be repeated[..]";
    assert_like(&message, expected);
    eventually(SOON, || !fixture.is_held("job"));
    server.cli(&["DEL", key]);
    let again = ["run", "--every", "1d", "job"];
    start(&fixture, &again).ends_with(0);
    assert_eq!(runs(&fixture), 1);
}

/// A person who tries the line of a crontab also pastes its --quiet, and must know that the next night is done.
#[test]
fn a_run_at_a_terminal_says_what_it_recorded_and_how_to_undo_it() {
    let fixture = Fixture::with_file();
    let daily = ["run", "--quiet", "--every", "1d", "job"];
    let message = shown_at_terminal(&start(&fixture, &daily));
    let (boundary, undo) = message
        .trim_end()
        .strip_prefix("leasehold: job: starts before ")
        .and_then(|rest| rest.split_once(", also those of a timer, are skipped: this run is "))
        .expect(&message);
    let (recorded, undo) = undo.split_once("\r\n").unwrap();
    assert!(recorded.starts_with("recorded as complete at sqlite:"));
    let (slots, undo) = undo.split_once("\r\n").unwrap();
    assert_eq!(undo, "leasehold: to undo that: leasehold jobs --reset job");
    let listed = checked("jobs", &stdout(&jobs(&fixture, &["--json"])));
    let next: jiff::Timestamp = listed["jobs"][0]["next_slot"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let expected = next - jiff::SignedDuration::from_hours(12);
    let expected = expected.to_zoned(jiff::tz::TimeZone::system());
    let time = expected.strftime("%H:%M:%S %Z").to_string();
    assert!(boundary.ends_with(&time), "{boundary}, not {expected}");
    // The trial has moved the slots.
    let time = next.to_zoned(jiff::tz::TimeZone::system());
    let expected = format!(
        "leasehold: later ones are for the run of {}; if its timer has another time, undo that, or give the time by --anchor",
        time.strftime("%a %Y-%m-%d %H:%M:%S %Z")
    );
    assert_eq!(slots, expected);

    // A start that finds it complete says so, and what to do.
    let completed = |quiet: &[&str]| {
        let args = [&["run", "--every", "1d"], quiet, &["job"]].concat();
        shown_at_terminal(&start(&fixture, &args))
    };
    let message = completed(&[]);
    let expected = "[..]; the command was not run\r\nleasehold: to run it all the same, add --no-record, or first: [..]";
    assert_like(&message, expected);
    // The quiet one does not name the store.
    assert!(message.ends_with(&completed(&["-q"])), "{message}");
    assert_eq!(runs(&fixture), 1);

    // What is undone is run again.
    let (_, reset) = undo.rsplit_once(": ").unwrap();
    fixture.shell(reset).ends_with(0);
    start(&fixture, &daily).ends_with(0);
    assert_eq!(runs(&fixture), 2);

    let once = ["once", "-q", "migrate", "--key", "a b"];
    let message = shown_at_terminal(&start(&fixture, &once));
    let expected = " do not run it\r\n\
                    leasehold: to undo that: leasehold jobs --reset migrate --key 'a b'\r\n";
    assert!(message.ends_with(expected), "{message}");
}

/// A person may try a job by ssh or as a unit. A timer that starts it in each period is not to mail this.
#[test]
fn the_first_record_of_a_job_says_how_to_undo_it() {
    let fixture = Fixture::with_file();
    let recorded = |args: &[&str]| {
        let output = start(&fixture, &[&["run", "--every", "1s"], args].concat()).ends_with(0);
        stderr(&output)
    };
    let message = recorded(&["job"]);
    let lines: Vec<_> = message.lines().collect();
    assert_like(lines[1], "leasehold: later ones are for the run of [..]");
    let undo = "leasehold: to undo that: leasehold jobs --reset job";
    assert_eq!(lines[2], undo);
    eventually(SOON, || {
        let message = recorded(&["job"]);
        assert_eq!(message.lines().count(), 1, "{message}");
        message.contains("this run is recorded as complete at ")
    });
    assert_eq!(recorded(&["-q", "other"]), "");
}

/// A person who forgets --every has perhaps done the work of the night, which the night repeats.
#[test]
fn a_run_without_a_schedule_at_a_terminal_says_that_it_is_none_of_the_job() {
    let fixture = Fixture::with_file();
    let daily = ["run", "--every", "1d", "job"];
    start(&fixture, &daily).ends_with(0);
    let plain = |args: &[&str]| {
        let args = [&["run"], args, &["job"]].concat();
        shown_at_terminal(&start(&fixture, &args))
    };
    let expected = "leasehold: job is also a job of --every 1d; this run, without --every, is not recorded as one of it\r\n";
    assert_eq!(plain(&[]), expected);
    assert_eq!(plain(&["-q"]), "");
    let quiet = start(&fixture, &["run", "job"]).run_to_end();
    assert_eq!(stderr(&quiet), "");
    assert_eq!(runs(&fixture), 4);
}

#[test]
fn a_trial_without_a_record_runs_each_time_and_leaves_nothing() {
    let (_server, redis) = Fixture::redis();
    for fixture in [redis, Fixture::new()] {
        let job = |args: &[&str]| {
            let common = ["--at-least", "1h", "--retry-after", "1h", "job"];
            start(&fixture, &[args, &common].concat())
        };
        for kind in [&["run", "--every", "1d"][..], &["once", "--key", "v1"]] {
            let before = runs(&fixture);
            let trial = [kind, &["--no-record"]].concat();
            job(&trial).ends_with(0);
            let message = shown_at_terminal(&job(&trial));
            assert!(message.contains("job: nothing was recorded; "), "{message}");
            assert_eq!(runs(&fixture), before + 2);
            // A trial that fails has its own exit code, and leaves nothing either.
            let args = [&trial[..], &["--retry-after", "1h", "job", "-c", "exit 7"]].concat();
            fixture.leasehold(args).ends_with(7);
            assert!(!fixture.is_held("job"));
            // The job runs all the same, and a trial also after it.
            let recorded = [kind, &["job"]].concat();
            for _ in 0..2 {
                start(&fixture, &recorded).ends_with(0);
                assert_eq!(runs(&fixture), before + 3);
            }
            job(&trial).ends_with(0);
            assert_eq!(runs(&fixture), before + 4);
        }
    }
}

/// A tried line that was pasted into a crontab would run the job on every machine in every night.
#[test]
fn a_trial_without_a_terminal_says_so_even_if_it_is_quiet() {
    let fixture = Fixture::with_file();
    for kind in [&["run", "--every", "1d"][..], &["once", "--key", "v1"]] {
        let trial = [kind, &["--quiet", "--no-record", "job"]].concat();
        let output = start(&fixture, &trial).ends_with(0);
        assert_eq!(
            stderr(&output),
            "leasehold: job: --no-record is for a trial: nothing was recorded, and each start runs the job\n"
        );
    }
}

#[test]
fn a_run_that_a_signal_has_ended_with_0_is_recorded_with_a_message() {
    let fixture = Fixture::with_file();
    for (quiet, expected) in [
        (
            "-v",
            "job was recorded as complete although it was ended by TERM: its command exited with 0\n",
        ),
        ("-q", ""),
    ] {
        // Started before the trap is set: a child of dash that a signal meets before its exec has the trap, and loses it.
        let script = "sleep 1000 & trap 'wait; exit 0' TERM; echo in; wait";
        let job = fixture.run_script(&[quiet, "--every", "1d", "job"], script);
        let running = Running::start(job);
        running.signal("TERM");
        let message = stderr(&running.ends_with(0));
        assert!(message.contains(expected), "{message}");
        assert_eq!(message.is_empty(), expected.is_empty(), "{message}");
        jobs(&fixture, &["--reset", "job"]).ends_with(0);
    }
}
