//! A command of another user cannot be stopped.
//!
//! The runner of these tests is root without the right to signal the processes of others, which comes to the same
//! as a user whose command is run by sudo.

use std::process::Command;

use leasehold_testkit::{RedisServer, eventually};

use crate::tools::{Place, RunToEnd, Running, SOON, code, kill, lives, parent_of, stderr};
use crate::watchdog::Node;

/// Becomes another user. `child` has its process id.
const SCRIPT: &str = "echo $$ > child; echo in; \
    exec setpriv --reuid 65534 --regid 65534 --clear-groups sleep 1000";

/// Starts it, or `None` for those who may not become another user.
fn start(place: &Place, args: &[&str]) -> Option<Running> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: no process of another user can be started");
        return None;
    }
    let run = place.run_script(args, SCRIPT);
    let mut weak = Command::new("setpriv");
    weak.args(["--bounding-set", "-kill"])
        .arg(run.get_program())
        .args(run.get_args())
        .current_dir(place.path(""))
        .env("XDG_STATE_HOME", place.path(""));
    for (name, value) in run.get_envs() {
        if let Some(value) = value {
            weak.env(name, value);
        }
    }
    let run = Running::start(weak);
    let status = format!("/proc/{}/status", place.line_of("child"));
    eventually(SOON, || {
        std::fs::read_to_string(&status)
            .unwrap()
            .contains("Uid:\t65534")
    });
    Some(run)
}

#[test]
fn what_cannot_be_stopped_is_named_and_left() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let args = ["--ttl", "1h", "--kill-after", "300ms", "job"];
    let Some(run) = start(&place, &args) else {
        return;
    };
    let child = place.line_of("child");
    let released = place.leasehold(["release", "--force", "job"]).run_to_end();
    assert!(released.status.success());
    eventually(SOON, || !lives(&run.process.id().to_string()));
    assert!(lives(&child));
    // It has the same stderr, so that the end of that is not seen before.
    kill("KILL", child.parse().unwrap());
    let output = run.finish();
    assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
    let text = stderr(&output);
    let named = format!("process {child} (sleep) of user ");
    assert!(text.contains(&named), "{text}");
    assert!(text.contains("Operation not permitted"), "{text}");
    assert_eq!(text.matches("cannot be signalled").count(), 1, "{text}");
    assert!(
        text.contains("1 of its processes could not be stopped"),
        "{text}"
    );
}

/// Otherwise the watchdog would take the end of the guardian for the end of the command.
#[test]
fn a_killed_run_keeps_its_lock_while_a_process_cannot_be_stopped() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let node = Node::start(&place);
    let watchdog = node.option();
    let args = ["--watchdog-required", &watchdog, "--ttl", "1h", "job"];
    let Some(run) = start(&place, &args) else {
        return;
    };
    let child = place.line_of("child");
    let guardian = parent_of(&child);
    node.has_run(&place);
    run.signal("KILL");
    // The node has seen the runner's end, and looks after what is left.
    eventually(SOON, || node.client(&place, "processes") == 2);
    let next = code(&mut place.run_script(&["-w", "1s", "job"], "true"));
    assert_eq!(next, 124);
    assert!(lives(&child) && lives(&guardian));
    kill("KILL", child.parse().unwrap());
    let next = code(&mut place.run_script(&["-w", "20s", "job"], "true"));
    assert_eq!(next, 0);
    assert!(!lives(&guardian));
    let text = stderr(&run.finish());
    let named = format!("process {child} (sleep) of user ");
    assert!(text.contains(&named), "{text}");
}
