//! Every mistake has one message, which names the cause and the fix, and an exit code of `leasehold`; nothing is held.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use leasehold_testkit::{Masters, RedisServer, SentinelSet, free_port};

use crate::containers::contained;
use crate::stores::http_server;
use crate::tools::{EndsWith, Fixture, RunToEnd, is_like, stderr, stdout};

/// The calls and their messages.
const MISTAKES: &str = include_str!("mistakes.txt");

/// Runs the calls of a section in a shell that has these variables, and checks exit codes and messages.
#[track_caller]
fn check(fixture: &Fixture, section: &str, variables: &[(&str, &str)]) {
    let (_, section) = MISTAKES.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut wrong = String::new();
    for mistake in section.split("\n$ ").skip(1) {
        let (call, expected) = mistake.split_once('\n').unwrap();
        let expected = variables
            .iter()
            .fold(expected.trim_end().to_owned(), |text, (name, value)| {
                text.replace(&format!("${name}"), value)
            });
        let mut shell = fixture.shell(call);
        let output = shell.envs(variables.iter().copied()).run_to_end();
        let message = stderr(&output);
        let (message, _) = message.split_once("\n\nUsage: ").unwrap_or((&message, ""));
        let (message, _) = message.split_once("\n\nFor more").unwrap_or((message, ""));
        let code = output.status.code().unwrap();
        let actual = format!("{code}\n{message}").trim_end().to_owned();
        if !is_like(&actual, &expected) || !output.stdout.is_empty() {
            wrong.push_str(&format!("\n$ {call}\n{actual}\n--- not\n{expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The directory of a fixture.
fn directory(fixture: &Fixture) -> String {
    let directory = fixture.path("").display().to_string();
    directory.trim_end_matches('/').to_owned()
}

#[test]
fn commands_and_options_of_other_programs_have_a_hint() {
    let fixture = Fixture::new();
    check(&fixture, "Commands and options of other programs", &[]);
}

#[test]
fn values_are_named_as_they_were_typed() {
    check(&Fixture::with_file(), "Values", &[]);
}

#[test]
fn the_store_and_a_setting_without_effect_are_named() {
    check(&Fixture::new(), "Variables", &[]);
}

#[test]
fn a_command_that_does_not_start_is_explained() {
    let fixture = Fixture::new();
    for (name, text, mode) in [
        ("plain", "#!/bin/sh\n", 0o644),
        ("lost", "#!/no/such/python3 -u\n", 0o755),
        ("dos", "#!/bin/sh\r\n", 0o755),
    ] {
        fs::write(fixture.path(name), text).unwrap();
        fs::set_permissions(fixture.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let path = Fixture::search_path();
    check(&fixture, "Commands that do not start", &[("PATH", &path)]);
    assert!(!fixture.is_held("job"));
}

#[test]
fn a_program_that_the_system_does_not_execute_is_explained() {
    let fixture = Fixture::new();
    let disk = fixture.path("disk");
    fs::create_dir(&disk).unwrap();
    let set_up = format!(
        "mount -t tmpfs -o noexec none {0} && cp /bin/true {0}",
        disk.display()
    );
    let run = fixture.leasehold(["run", "job", "disk/true"]);
    let text = stderr(&contained(&set_up, &run).ends_with(126));
    assert!(text.contains("it is on a mount with noexec"), "{text}");
}

#[test]
fn a_url_that_names_no_store_has_a_suggestion() {
    let fixture = Fixture::new();
    let schemes = "must start with memory:, sqlite:, postgres://, etcd://, zookeeper://, s3://, gs://, az://, redis://, rediss://, \
                   redis+unix:, redis+sentinel://, redis+cluster:// or redlock://";
    let nobody = free_port().to_string();
    let directory = directory(&fixture);
    let variables = [
        ("SCHEMES", schemes),
        ("NOBODY", &nobody),
        ("DIR", &directory),
    ];
    check(&fixture, "Store URLs", &variables);
}

#[test]
fn a_misspelt_path_creates_nothing() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "another program's").unwrap();
    let name_a_store = "name a file that this user can write, such as --store \
                        sqlite:/var/lib/leasehold/locks.db, or set LEASEHOLD_STORE";
    let variables = [
        ("DIR", directory(&fixture)),
        ("NAME_A_STORE", name_a_store.to_owned()),
    ];
    let variables = variables.each_ref().map(|(name, value)| (*name, &**value));
    check(&fixture, "Paths", &variables);
    assert!(!fixture.path("lokcs").exists());
    assert_eq!(fixture.read("file"), "another program's");
}

#[test]
fn a_server_that_does_not_suit_its_url_is_named() {
    let sentinels = SentinelSet::start();
    let node = RedisServer::options().config("cluster-enabled yes").start();
    // Its certificate is not for the second address.
    let tls = RedisServer::options()
        .tls()
        .config("bind 127.0.0.1 127.0.0.2");
    let tls = tls.start();
    let plain = RedisServer::start();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let weak = RedisServer::options().acl("weak", "pw", "~leasehold:* +@read +@connection");
    // As the line of doctor without a namespace, but for all keys: only the channels of another namespace are denied.
    let rights = "~* &leasehold:* +@all";
    let weak = weak.acl("own", "pw", rights).start();
    let servers = [&sentinels.sentinels()[0], &node, &tls, &plain, &weak];
    let [sentinel, node, tls_port, plain, acl] = servers.map(|server| server.port().to_string());
    let (masters, url) = (Masters::start(3), tls.url());
    let variables = [
        ("SENTINEL", sentinel.as_str()),
        ("NODE", &node),
        ("TLS", &tls_port),
        ("PLAIN", &plain),
        ("ACL", &acl),
        ("MASTERS", &masters.url()),
        ("SILENT", &silent.local_addr().unwrap().port().to_string()),
        ("HTTP", &http_server().to_string()),
        ("CA", url.split_once('?').unwrap().1),
    ];
    check(&Fixture::new(), "Servers", &variables);
}

#[test]
fn a_password_is_asked_for_once_and_never_shown() {
    let server = RedisServer::options().requirepass("s3cret").start();
    let sentinels = RedisServer::options().requirepass("s3cret");
    let sentinels = sentinels.config("sentinel sentinel-pass s3cret");
    let sentinels = SentinelSet::options().sentinels(sentinels).start();
    let fixture = Fixture::new();
    for (name, password) in [
        ("wrong", "wr0ng\n"),
        ("password", "s3cret\n"),
        ("blank", "\ns3cret\n"),
    ] {
        fs::write(fixture.path(name), password).unwrap();
    }
    let ports = [&server, &sentinels.sentinels()[0]].map(|server| server.port().to_string());
    let variables = [("PORT", ports[0].as_str()), ("SENTINEL", &ports[1])];
    check(&fixture, "Passwords", &variables);
    // The command gets the URL without the password. A nested run has access all the same.
    let url = format!("redis://127.0.0.1:{}", server.port());
    let nested = "leasehold run job -c 'echo $LEASEHOLD_STORE; leasehold run inner true'";
    let file = "--password-file password job";
    for call in [
        format!("LEASEHOLD_STORE={} {nested}", server.url()),
        format!("LEASEHOLD_STORE={url} LEASEHOLD_PASSWORD=s3cret {nested}"),
        format!("LEASEHOLD_STORE={url} LEASEHOLD_PASSWORD_FILE=password {nested}"),
        format!("LEASEHOLD_STORE={url} {}", nested.replace("job", file)),
    ] {
        let output = fixture.shell(&call).ends_with(0);
        assert_eq!(stdout(&output), format!("{url}/0\n"), "{call}");
    }
}

/// Neither in a log of everything nor in the arguments of its processes.
#[test]
fn a_password_is_in_no_log_and_no_arguments() {
    const PASSWORD: &str = "0nly-in-this-test";
    let server = RedisServer::options().requirepass(PASSWORD).start();
    let fixture = Fixture::with_store(server.url());
    let list =
        r"for it in /proc/[0-9]*; do tr '\0' ' ' < $it/cmdline; echo; done 2> /dev/null; true";
    let mut run = fixture.run_script(&["-v", "job"], list);
    let output = run.env("LEASEHOLD_LOG", "trace").run_to_end();
    let (log, processes) = (stderr(&output), stdout(&output));
    assert!(log.contains("leasehold::store::redis"), "{log}");
    assert!(!log.contains(PASSWORD), "{log}");
    let mut processes = processes.lines().filter(|line| line.contains("leasehold"));
    assert!(processes.clone().any(|line| line.contains("run -v job")));
    let shown = processes.find(|line| line.contains(PASSWORD) && !line.contains("redis-server"));
    assert_eq!(shown, None);
}

/// The password of a store is for this store only, wherever it was set for the outer run.
#[test]
fn a_nested_run_at_another_store_sends_no_password() {
    let server = RedisServer::options().requirepass("s3cret").start();
    let other = RedisServer::options().requirepass("0ther").start();
    let fixture = Fixture::new();
    fs::write(fixture.path("password"), "s3cret\n").unwrap();
    fs::write(fixture.path("other"), "0ther\n").unwrap();
    let address = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
    let [url, other_url] = [&server, &other].map(|it| format!("redis://{}", address(it)));
    let with_password = format!("LEASEHOLD_STORE={} leasehold run job", server.url());
    let with_option = format!("LEASEHOLD_STORE={url} leasehold run --password-file password job");
    let at_other = format!("leasehold ls --store {other_url}");
    let run = |outer: &str, nested: &str| {
        let output = fixture
            .shell(&format!("{outer} -c '{nested}'"))
            .run_to_end();
        (output.status.code().unwrap(), stderr(&output))
    };
    for (outer, variable) in [
        (&with_password, "LEASEHOLD_PASSWORD"),
        (&with_option, "LEASEHOLD_PASSWORD_FILE"),
    ] {
        let (code, text) = run(outer, &at_other);
        assert_eq!(code, 125, "{outer}: {text}");
        let words = format!(
            "{variable} was not sent, because LEASEHOLD_PASSWORD_STORE names another store"
        );
        assert!(text.contains(&words), "{outer}: {text}");
        // Also within two runs, and with another user, at the store of the password.
        for nested in [
            format!("leasehold run inner -c \"leasehold ls --store {url}/0\""),
            format!("leasehold ls --store redis://default@{}", address(&server)),
            // What the user sets is sent.
            format!("{at_other} --password-file other"),
            format!(
                "env -u LEASEHOLD_PASSWORD LEASEHOLD_PASSWORD_STORE= LEASEHOLD_PASSWORD_FILE=other {at_other}"
            ),
            format!(
                "env -u LEASEHOLD_PASSWORD_FILE LEASEHOLD_PASSWORD_STORE= LEASEHOLD_PASSWORD=0ther {at_other}"
            ),
            format!("LEASEHOLD_STORE={} leasehold ls", other.url()),
            format!(
                "LEASEHOLD_PASSWORD_STORE= LEASEHOLD_STORE={} leasehold ls",
                other.url()
            ),
        ] {
            let (code, text) = run(outer, &nested);
            assert_eq!(code, 0, "{outer}: {nested}: {text}");
        }
    }
    // Which of two passwords is for the other store is unknown.
    for (outer, variable) in [
        (&with_password, "LEASEHOLD_PASSWORD_FILE=other"),
        (&with_option, "LEASEHOLD_PASSWORD=0ther"),
    ] {
        let nested = format!("LEASEHOLD_PASSWORD_STORE= {variable} {at_other}");
        let (code, text) = run(outer, &nested);
        assert_eq!(code, 125, "{text}");
        assert!(text.contains("are both set"), "{text}");
    }
    // A run at the other store replaces the password, and the setting that would have precedence.
    let inner = format!(
        "LEASEHOLD_STORE={} leasehold run inner -c \"leasehold ls\"",
        other.url()
    );
    let (code, text) = run(&with_option, &inner);
    assert_eq!(code, 0, "{text}");
    // The server would have recorded another password.
    let log = other.cli(&["ACL", "LOG"]);
    assert!(!log.contains("auth"), "{log}");
}
