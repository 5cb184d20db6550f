//! The SQLite file in containers: processes of one kernel, in mount namespaces of their own.

use std::process::Command;

use crate::tools::{EndsWith, Fixture, Running, stderr, stdout, through};

/// A command in a mount namespace of its own, after a shell has set it up. Without the right to do that it is also in a
/// user namespace.
pub(crate) fn contained(set_up: &str, command: &Command) -> Command {
    let plain = Command::new("unshare").args(["-m", "true"]).output();
    let flags = match plain.is_ok_and(|output| output.status.success()) {
        true => "-m",
        false => "-Urm",
    };
    let script = format!("{set_up} && exec \"$@\"");
    through(&["unshare", flags, "sh", "-c", &script, "sh"], command)
}

/// LXC, Incus and systemd-nspawn give each container a boot id of its own.
fn with_boot_id(fixture: &Fixture, number: u32, command: &Command) -> Command {
    let file = fixture.path(&format!("boot-{number}"));
    let id = format!("{number:08x}-0000-4000-8000-000000000000\n");
    std::fs::write(&file, id).unwrap();
    let boot_id = "/proc/sys/kernel/random/boot_id";
    contained(
        &format!("mount --bind {} {boot_id}", file.display()),
        command,
    )
}

#[test]
fn containers_with_boot_ids_of_their_own_share_the_locks() {
    let fixture = Fixture::new();
    let script = "echo in; until test -e go-on; do sleep 0.02; done";
    let first = fixture.run_script(&["--ttl", "1h", "job"], script);
    let first = Running::start(with_boot_id(&fixture, 1, &first));
    let try_it = fixture.run_script(&["-n", "job"], "echo in >> second");
    with_boot_id(&fixture, 2, &try_it).ends_with(75);
    // So does the host, which has the boot id of the kernel.
    fixture.run_script(&["-n", "job"], "true").ends_with(75);
    let doctor = fixture.leasehold(["doctor"]);
    let report = with_boot_id(&fixture, 2, &doctor).output().unwrap();
    assert!(stdout(&report).contains("another boot id"), "{report:?}");
    fixture.write("go-on");
    let output = first.ends_with(0);
    assert_eq!(stderr(&output), "");
    with_boot_id(&fixture, 3, &try_it).ends_with(0);
    assert_eq!(fixture.read("second"), "in\n");
}

/// `docker run -v FILE:FILE` mounts the file alone: the log beside it is another one inside.
#[test]
fn a_file_that_is_a_mount_by_itself_is_refused() {
    let fixture = Fixture::new();
    let store = |name: &str| format!("sqlite:{}", fixture.path(name).display());
    let outside = store("outside.db");
    let mut command = fixture.leasehold(["run", "--store", &outside, "job", "--", "true"]);
    command.ends_with(0);
    std::fs::write(fixture.path("in side.db"), "").unwrap();
    let set_up = format!(
        "mount --bind {} '{}'",
        fixture.path("outside.db").display(),
        fixture.path("in side.db").display()
    );
    let inside = store("in side.db");
    let run = fixture.leasehold(["run", "--store", &inside, "job", "--", "true"]);
    let output = contained(&set_up, &run).ends_with(125);
    let words = "mount its directory instead of the file";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
    let doctor = fixture.leasehold(["doctor", "--store", &inside]);
    let output = contained(&set_up, &doctor).ends_with(2);
    assert!(stdout(&output).contains(words), "{}", stdout(&output));
}
