//! Help, manual page and completions come from one definition.

use crate::tools::{Fixture, RunToEnd, stdout};

#[test]
fn help_has_its_sections_in_order() {
    let fixture = Fixture::new();
    let text = |args: &[&str]| {
        let output = fixture.leasehold(args).run_to_end();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        stdout(&output)
    };
    let help = text(&["--help"]);
    assert!(help.contains("ENVIRONMENT") && !help.contains("__guard"));
    // The watchdog's options are the last ones of a run, before those of the store.
    let run = text(&["run", "--help"]);
    let position = |part: &str| run.find(part).unwrap_or_else(|| panic!("{part}: {run}"));
    let order = [
        "Options:",
        "--label",
        "--verbose",
        "Watchdog:",
        "--watchdog-ca-file",
        "Store:",
    ];
    assert!(order.map(position).is_sorted(), "{run}");
    for part in ["EXIT STATUS", "EXAMPLES", "LEASEHOLD_TOKEN"] {
        assert!(run.contains(part), "{part}");
    }
    assert!(text(&["doctor", "--help"]).contains("EXIT STATUS"));
    assert!(text(&["--version"]).starts_with("leasehold "));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let fixture = Fixture::new();
    let directory = fixture.path("man");
    let made = fixture.leasehold(["man".as_ref(), "--dir".as_ref(), directory.as_os_str()]);
    assert!({ made }.run_to_end().status.success());
    for page in [
        "leasehold",
        "leasehold-run",
        "leasehold-ls",
        "leasehold-release",
        "leasehold-doctor",
        "leasehold-watchdog-status",
    ] {
        let text = fixture.read(&format!("man/{page}.1"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(fixture.read("man/leasehold-run.1").contains("EXIT STATUS"));
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
