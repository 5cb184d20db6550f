//! Help, manual page and completions come from one definition.

use crate::tools::{Place, RunToEnd, stdout};

#[test]
fn help_names_every_command_option_and_code() {
    let place = Place::new();
    let text = |args: &[&str]| {
        let output = place.leasehold(args).run_to_end();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        stdout(&output)
    };
    let help = text(&["--help"]);
    for command in [
        "run",
        "ls",
        "show",
        "release",
        "doctor",
        "watchdog",
        "completions",
        "man",
    ] {
        assert!(help.contains(&format!("\n  {command}")), "{command}");
    }
    assert!(!help.contains("__guard"));
    assert!(help.contains("LEASEHOLD_STORE"));
    let run = text(&["run", "--help"]);
    for part in [
        "--no-wait",
        "--wait",
        "--ttl",
        "--lease",
        "--on-lost",
        "--kill-after",
        "--skip-ok",
        "EXIT STATUS",
        "EXAMPLES",
        "LEASEHOLD_TOKEN",
        "122",
        "124",
        "125",
        "126",
        "127",
    ] {
        assert!(run.contains(part), "{part}");
    }
    let doctor = text(&["doctor", "--help"]);
    for part in ["--ttl", "--json", "EXIT STATUS", "would lose locks", "125"] {
        assert!(doctor.contains(part), "{part}");
    }
    assert!(text(&["release", "--help"]).contains("holder is cut off"));
    assert!(text(&["--version"]).starts_with("leasehold "));
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let place = Place::new();
    let folder = place.path("man");
    let made = place.leasehold(["man".as_ref(), "--dir".as_ref(), folder.as_os_str()]);
    assert!({ made }.run_to_end().status.success());
    for page in [
        "leasehold",
        "leasehold-run",
        "leasehold-ls",
        "leasehold-release",
        "leasehold-doctor",
    ] {
        let text = place.read(&format!("man/{page}.1"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
    assert!(place.read("man/leasehold-run.1").contains("EXIT STATUS"));
    assert!(!folder.join("leasehold-__guard.1").exists());
}

#[test]
fn completions_are_made_for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = place.leasehold(["completions", shell]).run_to_end();
        assert!(stdout(&output).contains("lost-exit-code"), "{shell}");
    }
}
