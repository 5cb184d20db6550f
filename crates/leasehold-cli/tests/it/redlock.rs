//! The commands with a lock over many masters.

use leasehold_testkit::{Masters, eventually};
use serde_json::Value;

use crate::tools::{Place, RunToEnd, Running, SOON, code, stderr};

fn json(place: &Place, args: &[&str]) -> (i32, Value) {
    let output = place.leasehold(args).run_to_end();
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{args:?}: {}", stderr(&output)));
    (output.status.code().unwrap(), answer)
}

/// Runs under the lock, shows who holds it, and takes it away.
fn works(place: &Place, name: &str) {
    let exit = |script: &str| code(&mut place.run_script(&[name], script));
    assert_eq!(exit("exit 7"), 7);
    assert!(!place.is_held(name));
    let run = Running::start(place.run_script(&[name], "echo in; exec sleep 1000"));
    let (_, listed) = json(place, &["ls", "--json"]);
    assert_eq!(listed[0]["name"], name, "{listed}");
    let (shown, lock) = json(place, &["show", "--json", name]);
    assert_eq!((shown, &lock["held"]), (0, &Value::Bool(true)));
    let mut other = place.leasehold(["run", "--no-wait", name, "--", "true"]);
    assert_ne!(code(&mut other), 0);
    let (_, released) = json(place, &["release", "--force", "--json", name]);
    assert_eq!(released["released"], true);
    // Whoever runs under it is told, and ends.
    let ended = run.finish();
    assert_ne!(ended.status.code(), Some(0));
    eventually(SOON, || !place.is_held(name));
    assert_eq!(exit("true"), 0);
}

#[test]
fn over_three_also_without_one() {
    let mut masters = Masters::aged(3);
    let place = Place::with_store(masters.url());
    works(&place, "job");
    masters.server_mut(1).kill9();
    works(&place, "night");
}

#[test]
fn doctor_names_the_one_that_is_unlike_the_others() {
    let masters = Masters::aged(3);
    let place = Place::with_store(masters.url());
    let one = masters.server(1);
    one.cli(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let (_, report) = json(&place, &["doctor", "--json"]);
    let findings = report["findings"].as_array().unwrap();
    let found = |check: &str, part: &str, node: &str| {
        findings.iter().any(|finding| {
            let has = |field: &str, part: &str| {
                let text = finding[field].as_str();
                text.unwrap_or_default().contains(part)
            };
            has("check", check) && has("seen", part) && has("node", node)
        })
    };
    let port = one.port().to_string();
    assert!(found("persistence", "everysec", &port), "{report}");
    assert!(found("masters", "3 nodes, 1 may be away", ""), "{report}");
}

#[test]
fn without_a_majority_the_reason_is_told() {
    let mut masters = Masters::aged(3);
    let place = Place::with_store(masters.url());
    for nth in 0..2 {
        masters.server_mut(nth).kill9();
    }
    let output = place.run_script(&["job"], "true").run_to_end();
    assert_eq!(output.status.code(), Some(125));
    let told = stderr(&output);
    assert!(told.contains("no majority of 3 masters"), "{told}");
}
