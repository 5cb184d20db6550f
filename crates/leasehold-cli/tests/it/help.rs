//! Help, manual page and completions come from one definition.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_testkit::{eventually, within};

use crate::tools::{EndsWith, Fixture, RunToEnd, SOON, stderr, stdout};

#[test]
fn help_has_its_sections_in_order() {
    let fixture = Fixture::new();
    let text = |args: &[&str]| {
        let output = fixture.leasehold(args).ends_with(0);
        stdout(&output)
    };
    let help = text(&["--help"]);
    assert!(help.contains("ENVIRONMENT") && !help.contains("__guard"));
    // The watchdog's options are the last ones of a run, before those of the store.
    let run = text(&["run", "--help"]);
    let position = |part: &str| run.find(part).unwrap_or_else(|| panic!("{part}: {run}"));
    let order = [
        "leasehold run [OPTIONS] <NAME> <COMMAND>...",
        "leasehold run [OPTIONS] <NAME> -c <STRING>",
        "Options:",
        "--label",
        "--verbose",
        "Job:",
        "--every",
        "--done-exit-code",
        "Lease:",
        "--ttl",
        "End of the command:",
        "--wait-all",
        "Watchdog:",
        "--watchdog-ca-file",
        "Store:",
    ];
    assert!(order.map(position).is_sorted(), "{run}");
    for part in ["EXIT STATUS", "EXAMPLES", "LEASEHOLD_TOKEN"] {
        assert!(run.contains(part), "{part}");
    }
    assert!(text(&["doctor", "--help"]).contains("EXIT STATUS"));
    for command in ["man", "completions"] {
        let help = text(&[command, "--help"]);
        let has_store = help.contains("--store") || help.contains("Store:");
        assert!(!has_store, "{help}");
    }
    assert!(text(&["--version"]).starts_with("leasehold "));
}

#[test]
fn the_usage_does_not_depend_on_variables() {
    let fixture = Fixture::with_store("redis://h".to_owned());
    for (command, arguments) in [
        ("run", "<NAME> <COMMAND>..."),
        ("once", "<NAME> --key <KEY> <COMMAND>..."),
        ("hold", "<NAME>"),
        ("show", "<NAME>"),
        ("release", "<NAME>"),
    ] {
        let output = fixture.leasehold([command]).run_to_end();
        let usage = format!("Usage: leasehold {command} [OPTIONS] {arguments}\n");
        assert!(stderr(&output).contains(&usage), "{}", stderr(&output));
    }
    let output = fixture.leasehold(["completions"]).run_to_end();
    let usage = "Usage: leasehold completions <bash|elvish|fish|powershell|zsh>\n";
    assert!(stderr(&output).contains(usage), "{}", stderr(&output));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let fixture = Fixture::new();
    let directory = fixture.path("man");
    let mut made = fixture.leasehold(["man".as_ref(), "--dir".as_ref(), directory.as_os_str()]);
    made.ends_with(0);
    for page in [
        "leasehold",
        "leasehold-run",
        "leasehold-once",
        "leasehold-jobs",
        "leasehold-hold",
        "leasehold-ls",
        "leasehold-show",
        "leasehold-release",
        "leasehold-doctor",
        "leasehold-watchdog",
        "leasehold-watchdog-status",
        "leasehold-completions",
        "leasehold-man",
    ] {
        let text = fixture.read(&format!("man/{page}.1"));
        let sections: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix(".SH "))
            .map(|heading| heading.trim_matches('"'))
            .collect();
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "EXIT STATUS",
            "ENVIRONMENT",
            "EXAMPLES",
            "SEE ALSO",
        ] {
            let count = sections.iter().filter(|found| **found == section).count();
            assert_eq!(count, 1, "{page}: {section} in {sections:?}");
        }
        assert!(!sections.contains(&"EXTRA"), "{page}");
    }
    let run = fixture.read("man/leasehold-run.1");
    assert!(run.contains("[OPTIONS] <NAME> \\-c <STRING>"), "{run}");
    assert!(!directory.join("leasehold-__guard.1").exists());
}

#[test]
fn completions_are_made_for_every_shell() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = fixture.leasehold(["completions", shell]).run_to_end();
        assert!(stdout(&output).contains("lost-exit-code"), "{shell}");
    }
}

#[test]
fn bash_completes_the_names_of_held_locks() {
    let fixture = Fixture::with_file();
    let script = fixture.leasehold(["completions", "bash"]).run_to_end();
    std::fs::write(fixture.path("script"), script.stdout).unwrap();
    let holders = ["deploy", "orders:4", "orders:5", "two words"].map(|name| fixture.hold(&[name]));
    let _hostile = fixture.hold_in_program("x\"$(id)", "");
    // As bash calls it: the words are also split at colons.
    let complete = r#"
        source ./script
        compopt() { :; }
        COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDS=() COMP_CWORD=-1
        for word in ${1//:/ : }; do COMP_WORDS+=("$word"); done
        [[ $1 == *[\ :] ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        [[ $(complete -p leasehold) =~ -F\ ([^ ]+) ]]
        "${BASH_REMATCH[1]}" leasehold "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}" | uniq
    "#;
    for (line, expected) in [
        ("leasehold show dep", "deploy\n"),
        ("leasehold release --force d", "deploy\n"),
        ("leasehold run --wait 5 de", "deploy\n"),
        ("leasehold hold -n de", "deploy\n"),
        // Those that need quotes are left out.
        ("leasehold show ", "deploy\norders:4\norders:5\n"),
        ("leasehold show \"x", "\n"),
        ("leasehold show orders:", "4\n5\n"),
        ("leasehold show orders:5", "5\n"),
        ("leasehold show none", "\n"),
        ("leasehold watch deploy ", "orders:4\norders:5\n"),
        // Text has no completion, and a command without a store has no options for one.
        ("leasehold run --label ", "\n"),
        ("leasehold completions --sto", "\n"),
        ("leasehold show --js", "--json\n"),
        ("leasehold run x --skip", "--skip-ok\n"),
        // The command is a program in PATH, and its arguments are files.
        ("leasehold run x mktem", "mktemp\n"),
        ("leasehold run --wait 5 orders:4 -- mktem", "mktemp\n"),
        ("leasehold run x compg", "\n"),
        ("leasehold run x ./", "\n"),
        ("leasehold run x ls -", "\n"),
        ("leasehold run x ls --skip", "\n"),
        ("leasehold rel", "release\n"),
    ] {
        // Where the machine is too busy to find the names in time, none is offered.
        let mut completed = String::new();
        let is_expected = within(SOON, || {
            let mut shell = fixture.shell(complete);
            let output = shell.args(["bash", line]).run_to_end();
            assert_eq!(stderr(&output), "", "{line}");
            completed = stdout(&output);
            completed == expected
        });
        assert!(is_expected, "{line}: {completed}");
    }
    for holder in holders {
        holder.terminate();
    }
}

#[test]
fn a_store_that_does_not_reply_does_not_hold_the_prompt_up() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let fixture = Fixture::with_store(format!("redis://{}", silent.local_addr().unwrap()));
    std::fs::write(fixture.path("line"), "leasehold show ").unwrap();
    // A wait for a reply would take longer every time.
    eventually(SOON, || {
        let begun = Instant::now();
        let line = std::fs::File::open(fixture.path("line")).unwrap();
        let mut names = fixture.leasehold(["__names"]);
        let output = names.stdin(Stdio::from(line)).run_to_end();
        assert_eq!((stdout(&output), stderr(&output)), Default::default());
        begun.elapsed() < Duration::from_secs(3)
    });
    // Without a file, none is created.
    let fixture = Fixture::new();
    std::fs::write(fixture.path("line"), "leasehold show ").unwrap();
    let line = std::fs::File::open(fixture.path("line")).unwrap();
    let mut names = fixture.leasehold(["__names"]);
    assert_eq!(stderr(&names.stdin(Stdio::from(line)).run_to_end()), "");
    assert!(!fixture.path("leasehold").exists());
}
