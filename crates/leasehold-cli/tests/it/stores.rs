//! Which store a command uses, and what it says about it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::{Command, Output};

use leasehold_testkit::RedisServer;
use rustix::process::geteuid;

use crate::containers::contained;
use crate::tools::{EndsWith, Fixture, RunToEnd, assert_like, shown_at_terminal, stderr, stdout};

/// A command on a machine whose file names a store for all users.
fn on_machine(fixture: &Fixture, text: &str, command: &Command) -> Output {
    let etc = fixture.path("etc");
    fs::create_dir_all(etc.join("leasehold")).unwrap();
    fs::write(etc.join("leasehold/store"), text).unwrap();
    contained(&format!("mount --bind {} /etc", etc.display()), command).run_to_end()
}

#[test]
fn a_machine_has_a_store_for_all_users() {
    let (server, fixture) = (RedisServer::start(), Fixture::new());
    let text = format!("# of all users\n\n  {} \r\n", server.url());
    let run = |args: &[&str]| {
        let mut command = fixture.leasehold(["run"]);
        command
            .args(args)
            .args(["-v", "job", "sh", "-c", "echo $LEASEHOLD_STORE"]);
        on_machine(&fixture, &text, &command)
    };
    let output = run(&[]);
    let named = format!(
        "leasehold: the store is {} (/etc/leasehold/store), for all its clients;",
        server.url()
    );
    assert!(stderr(&output).starts_with(&named), "{}", stderr(&output));
    assert_eq!(stdout(&output), format!("{}\n", server.url()));
    assert!(!fixture.path("leasehold").exists());
    let output = on_machine(&fixture, &text, &fixture.leasehold(["doctor"]));
    let title = format!(
        "{} (/etc/leasehold/store), for all its clients\n",
        server.url()
    );
    assert!(stdout(&output).starts_with(&title), "{output:?}");
    // What the user names has precedence.
    let output = run(&["--store", "sqlite:own.db"]);
    let expected = "[..]/own.db (--store), for the programs[..]";
    assert_like(&stderr(&output), expected);
    let mut variable = fixture.leasehold(["ls"]);
    variable.env("LEASEHOLD_STORE", "sqlite:own.db");
    on_machine(&fixture, "nonsense\nnonsense", &variable).ends_with(0);
    drop(server);
    let output = run(&[]);
    let text = stderr(&output);
    assert!(text.contains("no server listens"), "{text}");
    let expected = "[..]; the URL is from /etc/leasehold/store; the command was not run\n";
    assert_like(&text, expected);
}

#[test]
fn a_store_of_the_machine_that_is_not_understood_is_an_error() {
    let fixture = Fixture::new();
    for (text, why) in [
        (
            "",
            "must have the URL of one store in one line, beside comments",
        ),
        (
            "redis://:s3cret@db",
            "has a password, and all users can read it",
        ),
        ("# none\n", "one store in one line"),
        ("redis://a\nredis://b", "one store in one line"),
        (
            "sqlite:locks.db",
            "must have an absolute path behind sqlite:",
        ),
        (
            "sqlite:/srv/x.db # all",
            "must have its comments in lines of their own",
        ),
        ("nonsense", "the store URL \"nonsense\" must start with"),
        ("memory:", "a memory: store belongs to one process"),
    ] {
        let output = on_machine(&fixture, text, &fixture.leasehold(["run", "job", "true"]));
        let message = stderr(&output.ends_with(125));
        assert!(message.contains(why), "{text}: {message}");
        let is_named = message.contains("/etc/leasehold/store") || text == "memory:";
        assert!(is_named && !message.contains("s3cret"), "{text}: {message}");
    }
    // One that only a group reads may have a password.
    let file = fixture.path("etc/leasehold/store");
    let run = fixture.leasehold(["run", "job", "true"]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let output = on_machine(&fixture, "redis://:s3cret@127.0.0.1:1", &run);
    assert!(stderr(&output).contains("no server listens"), "{output:?}");
    fs::write(fixture.path("etc/leasehold/bytes"), b"redis://\xff").unwrap();
    for target in ["missing", "bytes", "/dev/zero", "/"] {
        fs::remove_file(&file).unwrap();
        symlink(target, &file).unwrap();
        let mount = format!("mount --bind {} /etc", fixture.path("etc").display());
        let output = contained(&mount, &run).run_to_end();
        let text = stderr(&output);
        assert_like(&text, "[..]this machine, cannot be read[..]");
    }
    fs::remove_file(&file).unwrap();
    // Help needs no store.
    for args in [&["run", "--help"][..], &["completions", "bash"], &["man"]] {
        on_machine(&fixture, "", &fixture.leasehold(args)).ends_with(0);
    }
    assert!(!fixture.path("leasehold").exists());
}

#[test]
fn a_person_who_names_no_store_is_told_which_one_it_is() {
    let fixture = Fixture::new();
    let title = |args: &[&str]| {
        let mut command = fixture.leasehold(["run"]);
        command.args(args).args(["job", "true"]);
        shown_at_terminal(&command)
    };
    let file = fixture.path("leasehold/locks.db");
    let line = format!(
        "leasehold: the store is sqlite:{} (default), for this user on this machine; --store names another\r\n",
        file.display()
    );
    assert_eq!(title(&[]), line);
    assert_eq!(title(&["-q"]), "");
    let own = format!("sqlite:{}", fixture.path("own.db").display());
    assert_eq!(title(&["--store", &own]), "");
    // Nor is a nested run explained, or one whose messages nobody sees.
    let nested = fixture.shell("leasehold run outer leasehold run inner true");
    assert_eq!(shown_at_terminal(&nested), line);
    assert_eq!(fixture.messages(&["job"], 0), "");
}

#[test]
fn a_job_in_a_store_that_nobody_has_chosen_says_so() {
    let fixture = Fixture::new();
    let url = format!("sqlite:{}", fixture.path("leasehold/locks.db").display());
    let line = |consequence: &str| {
        format!(
            "leasehold: the store is {url} (default), for this user on this machine; {consequence}; set \
             LEASEHOLD_STORE to the store of all machines, or to this one\n"
        )
    };
    // A check of no records is not a success.
    let message = stderr(&fixture.leasehold(["jobs", "--check"]).ends_with(1));
    let none = line("jobs of other users and machines are not in it")
        + "leasehold: no periodic job has a completed run on record, at sqlite:";
    assert!(message.starts_with(&none), "{message}");
    for args in [
        &["run", "-q", "--every", "1d", "job", "true"][..],
        &["once", "-q", "--key", "v1", "job", "true"],
        &["jobs", "--check"],
        &["jobs", "--json"],
    ] {
        let consequence = match args[0] {
            "jobs" => "jobs of other users and machines are not in it",
            _ => "a start by another user or on another machine runs the job again",
        };
        let mut command = fixture.leasehold(args);
        let output = command.ends_with(0);
        assert_eq!(stderr(&output), line(consequence), "{args:?}");
        let output = command.env("LEASEHOLD_STORE", &url).ends_with(0);
        assert_eq!(stderr(&output), "", "{args:?}");
    }
    // At a terminal it is also one line, and a lock that is no job has none.
    let job = fixture.leasehold(["run", "--every", "1d", "job", "true"]);
    let terminal = shown_at_terminal(&job);
    assert_eq!(terminal.matches("the store is ").count(), 1, "{terminal}");
    let lock = ["run", "-q", "job", "true"];
    assert_eq!(stderr(&fixture.leasehold(lock).run_to_end()), "");
}

#[test]
fn a_person_is_told_of_options_behind_the_command() {
    let fixture = Fixture::new();
    let told = |args: &[&str]| {
        let own = format!("sqlite:{}", fixture.path("own.db").display());
        let mut command = fixture.leasehold(["run", "--store", &own]);
        shown_at_terminal(command.args(args))
    };
    let warning = "leasehold: --every behind COMMAND is an argument of true, not of leasehold: write it before NAME, or \
                   -- before COMMAND\r\n";
    assert_eq!(told(&["job", "true", "--every", "1d"]), warning);
    let by_shell = "or the command by -c if that is meant";
    let escaped = warning.replace("or -- before COMMAND", by_shell);
    assert_eq!(told(&["job", "--", "true", "--every", "1d"]), escaped);
    assert_eq!(told(&["job", "--", "true", "--no-wait"]), "");
    let namespace = warning.replace("--every", "--namespace");
    assert_eq!(told(&["job", "true", "--namespace", "x"]), namespace);
    let no_wait = warning.replace("--every", "--no-wait");
    assert_eq!(told(&["job", "true", "--no-wait"]), no_wait);
}

/// As `sudo -E` does, which keeps HOME.
#[test]
fn nothing_is_created_in_the_home_of_another_user() {
    const OTHER: u32 = 65_534;
    let fixture = Fixture::new();
    let home = fixture.path("home");
    fs::create_dir(&home).unwrap();
    let is_root = geteuid().is_root();
    // Elsewhere this user is root in a namespace in which the owner of the system's directories is another.
    let home = match is_root {
        true => home,
        false => "/usr".into(),
    };
    if is_root {
        chown(&home, Some(OTHER), None).unwrap();
    }
    for args in [&["run", "job", "true"][..], &["ls"], &["doctor"]] {
        let mut command = fixture.leasehold(args);
        command.env_remove("XDG_STATE_HOME").env("HOME", &home);
        let output = match is_root {
            true => command.run_to_end(),
            false => contained("true", &command).run_to_end(),
        };
        let text = stderr(&output.ends_with(125));
        assert_like(&text, "[..]belongs to another user (uid 65534)[..]");
        assert!(!home.join(".local").exists());
    }
    // A directory of root for all, such as /tmp, is none of another user.
    assert_eq!(fs::metadata("/").unwrap().uid(), 0);
    fs::set_permissions(fixture.path(""), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(fixture.try_run(&["job"]), 0);
}

#[test]
fn a_full_disk_is_named() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("disk")).unwrap();
    let script = "leasehold run --store sqlite:disk/locks.db job true && rm disk/locks.db-shm; \
                  dd if=/dev/zero of=disk/fill bs=1k; \
                  leasehold run --store sqlite:disk/locks.db job true";
    let disk = fixture.path("disk");
    let mount = format!("mount -t tmpfs -o size=1m none {}", disk.display());
    let text = stderr(&contained(&mount, &fixture.shell(script)).ends_with(125));
    // SQLite cannot create its shared memory, and calls that an I/O error.
    assert!(text.contains("the disk is full; make room on it"), "{text}");
    assert!(text.contains("Error code 4874"), "{text}");
}

/// A port at which something else replies than a Redis server.
pub(crate) fn http_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html></html>\r\n",
            );
        }
    });
    port
}
