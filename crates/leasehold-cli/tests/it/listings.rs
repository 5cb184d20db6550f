//! `ls`, `show` and `release` for people and for programs.

use leasehold_testkit::{Masters, eventually};

use crate::tools::{Fixture, RunToEnd, SOON, has_in_order, stderr, stdout};

fn check(fixture: &Fixture) {
    let list = |args: &[&str]| {
        let output = fixture.leasehold(args).run_to_end();
        (output.status.code().unwrap(), stdout(&output))
    };
    let json =
        |args: &[&str]| -> serde_json::Value { serde_json::from_str(&list(args).1).expect("JSON") };
    assert_eq!(list(&["ls"]), (0, String::new()));
    assert_eq!(json(&["ls", "--json"]), serde_json::json!([]));
    assert_eq!(list(&["show", "job"]), (1, "job is free\n".to_owned()));
    assert_eq!(json(&["show", "--json", "job"])["held"], false);
    assert_eq!(list(&["release", "--force", "job"]).0, 1);

    let run = fixture.hold(&["--label", "nightly", "job"]);
    // Who holds it is written down beside the lock, a moment later.
    eventually(SOON, || list(&["ls"]).1.contains("nightly"));
    let pid = run.process.id();
    let (code, table) = list(&["ls"]);
    assert_eq!(code, 0);
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].starts_with("NAME"), "{table}");
    assert!(lines[1].starts_with("job ") && lines[1].contains(&format!(", pid {pid}, sh (\"nightly\")")));

    let (code, block) = list(&["show", "job"]);
    assert_eq!(code, 0);
    for part in [
        "name",
        "holder",
        "since",
        "time left",
        "token",
        "count",
        "lease",
    ] {
        assert!(block.lines().any(|line| line.starts_with(part)), "{block}");
    }
    let fields = ["name", "lease", "token", "count", "time_left_ms", "since"];
    let of_holder = ["holder", "host", "pid", "program", "label", "connected"];
    let text = list(&["ls", "--json"]).1;
    assert!(has_in_order(&text, &[fields, of_holder].concat()), "{text}");
    let shown = &mut json(&["show", "--json", "job"])["lock"];
    let listed = &mut json(&["ls", "--json"])[0];
    let left = shown["time_left_ms"].take().as_u64().unwrap();
    assert!((20_000..=30_000).contains(&left));
    listed["time_left_ms"].take();
    assert_eq!(shown, listed);
    assert_eq!(shown["holder"]["pid"], pid);
    assert_eq!(shown["holder"]["program"], "sh");
    assert_eq!(shown["holder"]["label"], "nightly");
    assert_eq!(shown["count"], 1);
    assert!(shown["token"].as_u64().unwrap() > 1_700_000_000_000_000);

    let released = json(&["release", "--force", "--json", "job"]);
    assert_eq!(released["released"], true);
    assert_eq!(released["cut_off"]["holder"]["pid"], pid);
    run.signal("TERM");
    run.finish();
}

#[test]
fn on_sqlite() {
    check(&Fixture::new());
}

#[test]
fn on_redis() {
    let (_server, fixture) = Fixture::redis();
    check(&fixture);
}

#[test]
fn on_three_masters_also_without_one() {
    let mut masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    check(&fixture);
    masters.server_mut(1).kill9();
    check(&fixture);
}

/// Texts of other clients must not control the terminal.
#[test]
fn invisible_characters_of_others_are_escaped() {
    let fixture = Fixture::new();
    let (label, name) = ("\u{1b}[31mred\u{7}\u{ad}", "pay\u{202e}llor\u{200b}");
    let run = fixture.hold(&["--label", label, name]);
    eventually(SOON, || {
        let output = fixture.leasehold(["ls"]).run_to_end();
        stdout(&output).contains("red")
    });
    for args in [&["ls"][..], &["show", name]] {
        let output = fixture.leasehold(args).run_to_end();
        let shown = stdout(&output);
        assert!(shown.contains("pay\\u{202e}llor\\u{200b}"), "{shown}");
        assert!(shown.contains("(\"\\u{1b}[31mred\\u{7}\\u{ad}\")"), "{shown}");
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(stderr(&output), "");
    }
    // Messages as well, and what is for programs stays exact.
    let output = fixture
        .leasehold(["run", "-n", name, "--", "true"])
        .run_to_end();
    assert!(
        stderr(&output).contains("pay\\u{202e}llor"),
        "{}",
        stderr(&output)
    );
    let output = fixture.leasehold(["ls", "--json"]).run_to_end();
    let listed: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(listed[0]["name"], name);
    assert_eq!(listed[0]["holder"]["label"], label);
    run.signal("TERM");
    run.finish();
}
