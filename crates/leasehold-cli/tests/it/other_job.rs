//! Starts of a job under the name of another one.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use crate::tools::{EndsWith, Fixture, RunToEnd, assert_like, stderr};

/// The name of another job is not a reason to be silent, not even for a quiet run whose command does not exist.
#[test]
fn a_start_under_the_name_of_another_job_says_so() {
    let fixture = Fixture::with_file();
    let quiet = |args: &[&str], command: &str| {
        let mut command = fixture.leasehold([args, &["-q", "report", "--", command]].concat());
        let output = command.run_to_end();
        (output.status.code().unwrap(), stderr(&output))
    };
    for (kind, every) in [
        (&["run", "--every", "1d"][..], " --every 1d"),
        (&["once", "--key", "v1"], ""),
    ] {
        assert_eq!(quiet(kind, "/bin/true"), (0, String::new()));
        let (code, message) = quiet(kind, "no-such-command");
        assert_eq!(code, 0);
        let lines: Vec<_> = message.lines().collect();
        assert_like(lines[0], "[..], true; the command was not run");
        let expected = format!(
            ": the record is of a run of true{every}, and this is no-such-command{every}; if they are two jobs, give one of \
             them another name"
        );
        assert!(lines[1].contains(&expected), "{message}");
        // That of a key counts until its record is removed.
        let counts = "; if they are one, the recorded run counts at the latest until ";
        assert_eq!(lines[1].contains(counts), kind[0] == "run", "{message}");
        assert_eq!(quiet(kind, "true"), (0, String::new()));
    }
    // Another period.
    let mut command = fixture.leasehold(["jobs", "--reset", "report"]);
    command.ends_with(0);
    let (_, message) = quiet(&["run", "--every", "1s"], "true");
    assert_eq!(message, "");
    let (_, message) = quiet(&["run", "--every", "1h"], "true");
    let expected = "[..]the record is of a run of true --every 1s, and this is true --every 1h[..]";
    assert_like(&message, expected);
    // Another anchor, but not another time of the same slots.
    let reset = ["jobs", "--reset", "report"];
    fixture.leasehold(reset).ends_with(0);
    let daily = |anchor: &str| quiet(&["run", "--every", "1d", "--anchor", anchor], "true").1;
    assert_eq!(daily("02:00"), "");
    assert_eq!(daily("2026-01-05T02:00:00Z"), "");
    assert_eq!(daily("2026-01-05T03:00+01:00"), "");
    let message = daily("03:30");
    let expected = "[..] true --every 1d --anchor 20[..]T02:00:00.000Z, and this is[..]";
    assert_like(&message, expected);
    assert!(message.contains(" --anchor 03:30:00; if they"), "{message}");
}

/// What a quiet start of a daily job prints.
fn started<'a>(fixture: &Fixture, name: &'a str, command: impl Iterator<Item = &'a str>) -> String {
    let args = ["run", "-q", "--every", "1d", name, "--"];
    let output = fixture
        .leasehold(args.into_iter().chain(command))
        .ends_with(0);
    stderr(&output)
}

/// Two applications have a program and a job of the same name. An argument that differs in each night is no reason.
#[test]
fn a_start_of_a_program_at_another_path_says_so() {
    let (server, fixture) = Fixture::redis();
    for directory in ["shop", "blog"] {
        std::fs::create_dir(fixture.path(directory)).unwrap();
        let script = format!("#!/bin/sh\necho {directory} >> ran\n");
        let file = fixture.path(&format!("{directory}/cleanup"));
        std::fs::write(&file, script).unwrap();
        std::fs::set_permissions(file, Permissions::from_mode(0o755)).unwrap();
    }
    let started = |name: &str, command: &str| started(&fixture, name, command.split(' '));
    let path = |directory: &str| fixture.path(directory).join("cleanup");
    let [shop, blog] = ["shop", "blog"].map(|it| path(it).display().to_string());
    for before in [
        "",
        "sh -eu ",
        "timeout 60 ",
        "flock .lock ",
        "env A=1 nice -n 5 sh ",
    ] {
        let name = format!("a{before}").trim().to_owned();
        let command = |path: &str, date| format!("{before}{path} {date}");
        assert_eq!(started(&name, &command(&shop, "2026-11-26")), "");
        assert_eq!(started(&name, &command("./shop/cleanup", "2026-11-27")), "");
        let message = started(&name, &command("blog/cleanup", "2026-11-27"));
        let expected = format!(
            "{name}: the record is of a run of {shop} --every 1d, and this is {blog} --every 1d; if they"
        );
        assert!(message.contains(&expected), "{message}");
    }
    // Where the search path finds it is no matter, and nor is a record of an older version.
    assert_eq!(started("a", "cleanup"), "");
    let key = "leasehold:{default:a}:completion";
    let record = server.cli(&["GET", key]);
    let older = record.replace(&format!(" path={shop}"), "");
    assert_ne!(older, record);
    server.cli(&["SET", key, older.trim()]);
    assert_eq!(started("a", &blog), "");
    assert_eq!(fixture.read("ran"), "shop\n".repeat(5));
}

/// One shell runs the texts of many jobs, and one interpreter their modules. A text may have a password.
#[test]
fn a_start_of_another_text_or_module_says_so() {
    let (server, fixture) = Fixture::redis();
    let python = fixture.path("python");
    std::fs::write(&python, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(python, Permissions::from_mode(0o755)).unwrap();
    let started = |name: &str, command: &[&str]| started(&fixture, name, command.iter().copied());
    let text = "sh -c (another text) --every 1d, and this is sh -c (this text) ";
    let module = "python -m a --every 1d, and this is python -m b ";
    for (name, [program, option], [recorded, other], programs) in [
        ("text", ["sh", "-euc"], ["true secret", "false"], text),
        ("module", ["./python", "-m"], ["a", "b"], module),
    ] {
        assert_eq!(started(name, &[program, option, recorded]), "");
        let with_date = [program, option, recorded, "2026-11-27"];
        assert_eq!(started(name, &with_date), "");
        let message = started(name, &[program, option, other]);
        let expected = "[..]; the command was not run[..]; if they are two jobs, give one of them another name[..]";
        assert_like(&message, expected);
        let programs = format!("the record is of a run of {programs}");
        assert!(message.contains(&programs), "{message}");
    }
    // One text with two tasks.
    let with_task = |task| started("task", &["sh", "-c", "true secret", task]);
    assert_eq!(with_task("a"), "");
    let message = with_task("b");
    let programs =
        "a run of sh -c (this text) a --every 1d, and this is sh -c (this text) b --every 1d;";
    assert!(message.contains(programs), "{message}");
    let record = server.cli(&["GET", "leasehold:{default:text}:completion"]);
    assert!(record.contains(" path=sh%20-c%20#"), "{record}");
    assert!(!record.contains("secret"), "{record}");
}

/// The name of a day is not a task, and neither is a record of an older version without one.
#[test]
fn a_start_of_another_task_of_a_script_says_so() {
    let (server, fixture) = Fixture::redis();
    std::fs::write(fixture.path("manage.py"), "").unwrap();
    let started = |name: &str, command: &str| started(&fixture, name, command.split(' '));
    let script = fixture.path("manage.py").display().to_string();
    for (name, command, shown) in [
        ("script", "sh manage.py", script.as_str()),
        ("program", "true", "true"),
    ] {
        let with = |arguments: &str| format!("{command} {arguments}");
        assert_eq!(started(name, &with("db_report 2026-11-26")), "");
        assert_eq!(started(name, &with("db_report 2026-11-27")), "");
        // A program that starts it, or its path, is not another job.
        let with_limit = format!("timeout 60 {command} db_report");
        assert_eq!(started(name, &with_limit), "");
        let message = started(name, &with("billing"));
        let expected = format!(
            "{name}: the record is of a run of {shown} db_report --every 1d, and this is {shown} billing --every 1d; if they"
        );
        assert!(message.contains(&expected), "{message}");
    }
    assert_eq!(started("script", &format!("sh {script} db_report")), "");
    let key = |name: &str| format!("leasehold:{{default:{name}}}:completion");
    for argument in [
        "Mon",
        "Tuesday",
        "Jan",
        "user:secret",
        "DECEMBER",
        "1st",
        "./eu",
        "-v",
    ] {
        let name = format!("of{}", argument.trim_start_matches("./"));
        assert_eq!(started(&name, &format!("true {argument}")), "");
        let record = server.cli(&["GET", &key(&name)]);
        assert!(record.contains(" path=true label="), "{record}");
    }
    let key = key("script");
    let record = server.cli(&["GET", &key]);
    let older = record.replace("%20db_report", "");
    assert_ne!(older, record);
    server.cli(&["SET", &key, older.trim()]);
    assert_eq!(started("script", "sh manage.py billing"), "");
}
