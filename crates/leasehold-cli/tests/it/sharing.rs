//! Runs that hold a lock at the same time.

use std::io::BufRead as _;

use leasehold_testkit::eventually;

use crate::tools::{EndsWith, Fixture, RunToEnd, Running, SOON, stderr, stdout};

/// A run whose command prints its number and then waits until the file `go-on` exists.
fn hold_numbered(fixture: &Fixture, permits: &str) -> Running {
    let args = ["--permits", permits, "--numbered", "job"];
    let script = "echo in; echo $LEASEHOLD_SLOT; until test -e go-on; do sleep 0.02; done";
    Running::start(fixture.run_script(&args, script))
}

#[test]
fn permits_are_shared_and_numbered() {
    let fixture = Fixture::new();
    let mut holders = [hold_numbered(&fixture, "2"), hold_numbered(&fixture, "2")];
    let mut numbers = holders.each_mut().map(|holder| {
        let mut line = String::new();
        holder.lines.read_line(&mut line).unwrap();
        line
    });
    numbers.sort();
    assert_eq!(numbers, ["0\n", "1\n"]);
    assert_eq!(fixture.try_run(&["-n", "--permits", "2", "job"]), 75);

    let lock = fixture.lock("job");
    assert_eq!(lock["kind"], "semaphore");
    assert_eq!(lock["permits"], 2);
    assert_eq!(lock["others"].as_array().unwrap().len(), 1);
    let text = stdout(&fixture.leasehold(["show", "job"]).run_to_end());
    assert!(text.contains("1 permit, number 1"), "{text}");
    let listed = stdout(&fixture.leasehold(["ls"]).run_to_end());
    assert!(listed.contains(" and 1 other"), "{listed}");

    fixture.write("go-on");
    for holder in holders {
        holder.ends_with(0);
    }
    let all = &["-n", "--permits", "2", "--weight", "2", "job"];
    assert_eq!(fixture.try_run(all), 0);
    let mut without = fixture.run_script(&["--permits", "2", "job"], "echo ${LEASEHOLD_SLOT-none}");
    assert_eq!(stdout(&without.run_to_end()), "none\n");
}

#[test]
fn a_refusal_of_free_permits_has_its_reason() {
    let fixture = Fixture::new();
    let holder = fixture.hold_until_go_on(&["--permits", "3", "job"]);
    let refusal = |weight: &str| {
        let args = ["-n", "--permits", "3", "--weight", weight, "job"];
        fixture.messages(&args, 75)
    };
    let text = refusal("3");
    let reason = "; 2 of 3 permits are free, 3 are needed; the command was not run";
    assert!(text.contains(reason), "{text}");

    let all = ["--permits", "3", "--weight", "3", "job"];
    let waiting = fixture.run_script(&all, "true").spawn().unwrap();
    eventually(SOON, || fixture.waiters("job") == 1);
    let text = refusal("1");
    let reason = "; 2 of 3 permits are free, but another request waits before this one; ";
    assert!(text.contains(reason), "{text}");
    fixture.write("go-on");
    holder.ends_with(0);
    waiting.ends_with(0);
}

#[test]
fn shared_runs_exclude_an_exclusive_one() {
    let fixture = Fixture::new();
    let readers = [0, 1].map(|_| fixture.hold_until_go_on(&["--shared", "job"]));
    assert_eq!(fixture.try_run(&["-n", "--exclusive", "job"]), 75);
    let mut waiting = fixture.run_script(&["--exclusive", "job"], "true");
    let waiting = waiting.spawn().unwrap();
    eventually(SOON, || fixture.waiters("job") == 1);
    let text = fixture.messages(&["-n", "--shared", "job"], 75);
    let reason = "; a writer waits before this request; the command was not run";
    assert!(text.contains(reason), "{text}");
    fixture.write("go-on");
    for reader in readers {
        reader.ends_with(0);
    }
    waiting.ends_with(0);
    assert!(!fixture.is_held("job"));
}

#[test]
fn a_revocation_stops_all_runs() {
    let fixture = Fixture::new();
    let readers = [0, 1].map(|_| fixture.hold(&["--shared", "job"]));
    fixture.revoke("job");
    for reader in readers {
        reader.ends_with(122);
    }
}

#[test]
fn a_name_of_another_kind_and_options_that_do_not_match_are_errors() {
    let fixture = Fixture::new();
    let holder = fixture.hold_until_go_on(&["--permits", "2", "job"]);
    for (args, message) in [
        (&["-n", "job"][..], "used as a semaphore"),
        (&["-n", "--shared", "job"], "used as a semaphore"),
        (&["-n", "--permits", "3", "job"], "2 permits, not 3"),
        (
            &["--permits", "2", "--weight", "3", "job"],
            "--weight 3 is more",
        ),
        (&["--weight", "2", "job"], "--permits"),
        (&["--shared", "--exclusive", "job"], "cannot be used with"),
    ] {
        let text = fixture.messages(args, 125);
        assert!(text.contains(message), "{args:?}: {text}");
    }
    fixture.write("go-on");
    holder.ends_with(0);
}

/// A run without the option of the others would exclude nobody under another name.
#[test]
fn a_name_of_another_kind_has_the_option_for_it() {
    let fixture = Fixture::new();
    for (held, refused, option) in [
        ("--shared", "--permits=2", "use run --shared or run"),
        ("--permits=2", "--exclusive", "use run --permits N"),
        ("--ttl=30s", "--shared", "leave out --shared, --exclusive"),
    ] {
        let holder = fixture.hold(&[held, "job"]);
        let text = fixture.messages(&[refused, "job"], 125);
        assert!(text.contains(&format!("; {option}")), "{text}");
        assert!(text.contains("or choose another name"), "{text}");
        holder.terminate();
    }
}

#[test]
fn a_run_of_several_names_holds_all_or_none() {
    let fixture = Fixture::new();
    let args = ["b", "--and", "a", "--and", "c"];
    let script = "echo $LEASEHOLD_NAME $LEASEHOLD_TOKEN $LEASEHOLD_TOKENS";
    let printed = stdout(&fixture.run_script(&args, script).run_to_end());
    let words: Vec<_> = printed.split_whitespace().collect();
    assert_eq!((words.len(), words[0], words[1]), (5, "b", words[2]));

    let one = fixture.hold_until_go_on(&["a"]);
    let text = fixture.messages(&["-n", "b", "--and", "a"], 75);
    assert!(text.contains("leasehold: a is held by"), "{text}");
    assert!(!fixture.is_held("b"));
    fixture.write("go-on");
    one.ends_with(0);

    let all = fixture.hold(&args);
    assert!(["a", "b", "c"].iter().all(|name| fixture.is_held(name)));
    fixture.revoke("c");
    let text = stderr(&all.ends_with(122));
    assert!(text.contains("leasehold: c: the lock is lost"), "{text}");
    assert!(!["a", "b"].iter().any(|name| fixture.is_held(name)));

    let mut shared = fixture.run_script(&["--shared", "b", "--and", "a"], "true");
    let text = stderr(&shared.run_to_end());
    assert!(text.contains("cannot be used with"), "{text}");
}

/// Of any kind, and through a run of another name: the inner run would wait, perhaps for ever.
#[test]
fn a_run_refuses_the_names_of_the_runs_around_it() {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let through_another = format!("other -- {program} run job");
    for (outer, inner) in [
        (&["--exclusive", "job"][..], "--shared job"),
        (&["--shared", "job"], "--exclusive job"),
        (&["--exclusive", "job"], "--exclusive job"),
        (&["--shared", "job"], "--shared job"),
        (&["--permits", "2", "job"], "--permits 2 job"),
        (&["first", "--and", "job"], "job"),
        (&["first", "--and", "job"], "second --and job"),
        (&["job"], "job"),
        (&["job"], &through_another),
    ] {
        let script = format!("{program} run {inner} -- true");
        let text = stderr(&fixture.run_script(outer, &script).ends_with(125));
        let refusal =
            "leasehold: job is held by a run around this command, which could wait for itself";
        assert!(text.contains(refusal), "{outer:?} {inner}: {text}");
    }
    let script = format!("{program} run --shared second -- true");
    let mut run = fixture.run_script(&["--shared", "job"], &script);
    run.ends_with(0);
}
