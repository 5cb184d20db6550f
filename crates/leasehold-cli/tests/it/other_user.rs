//! A command of another user cannot be stopped.
//!
//! The runner of these tests is root without the right to signal the processes of others, which comes to the same
//! as a user whose command is run by sudo.

use leasehold_testkit::eventually;

use crate::tools::{Fixture, Running, SOON, assert_like, kill, lives, parent_of, stderr, through};
use crate::watchdog::Node;

/// Becomes another user. `child` has its process id.
const SCRIPT: &str = "echo $$ > child; echo in; \
    exec setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000";

/// Starts it, or `None` for those who may not become another user.
fn start(fixture: &Fixture, args: &[&str]) -> Option<Running> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no process of another user can be started");
        return None;
    }
    let run = fixture.run_script(args, SCRIPT);
    let weak = through(&["setpriv", "--bounding-set", "-kill"], &run);
    let run = Running::start(weak);
    let status = format!("/proc/{}/status", fixture.line_of("child"));
    eventually(SOON, || {
        std::fs::read_to_string(&status)
            .unwrap()
            .contains("Uid:\t65534")
    });
    Some(run)
}

#[test]
fn a_process_that_cannot_be_stopped_is_named() {
    let (_server, fixture) = Fixture::redis();
    let args = ["--ttl", "1h", "--kill-after", "300ms", "job"];
    let Some(run) = start(&fixture, &args) else {
        return;
    };
    let child = fixture.line_of("child");
    fixture.revoke("job");
    eventually(SOON, || !lives(&run.process.id().to_string()));
    assert!(lives(&child));
    // It has the same stderr, so that the end of that is not seen before.
    kill("KILL", child.parse().unwrap());
    let text = stderr(&run.ends_with(122));
    let named = format!("process {child} (sleep) of user ");
    assert!(text.contains(&named), "{text}");
    assert!(text.contains("Operation not permitted"), "{text}");
    assert_eq!(text.matches("cannot be signalled").count(), 1, "{text}");
    assert_like(&text, "[..]1 of its processes could not be stopped[..]");
}

/// Otherwise the watchdog would take the end of the guardian for the end of the command.
#[test]
fn a_killed_run_keeps_its_lock_while_a_process_cannot_be_stopped() {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let watchdog = node.option();
    let args = ["--watchdog-required", &watchdog, "--ttl", "1h", "job"];
    let Some(run) = start(&fixture, &args) else {
        return;
    };
    let child = fixture.line_of("child");
    let guardian = parent_of(&child);
    node.has_run(&fixture);
    run.signal("KILL");
    // The node has seen the runner's end, and looks after what is left.
    eventually(SOON, || node.client(&fixture, "processes") == 2);
    assert_eq!(fixture.try_run(&["-w", "1s", "job"]), 124);
    assert!(lives(&child) && lives(&guardian));
    kill("KILL", child.parse().unwrap());
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    assert!(!lives(&guardian));
    let text = stderr(&run.finish());
    let named = format!("process {child} (sleep) of user ");
    assert!(text.contains(&named), "{text}");
}
