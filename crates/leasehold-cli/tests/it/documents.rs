//! The commands in the pages run, in the embedded store and with programs that do nothing.

use std::fs;
use std::os::unix::fs::symlink;

use crate::tools::{Fixture, RunToEnd};

/// The pages with commands that run on any machine.
const PAGES: [&str; 10] = [
    "README.md",
    "crates/leasehold-cli/README.md",
    "docs/fencing.md",
    "docs/jobs.md",
    "docs/migrating.md",
    "docs/object-stores.md",
    "docs/operations.md",
    "docs/postgresql.md",
    "docs/recipes.md",
    "docs/semaphores-and-rw-locks.md",
];

/// Lines with one of these are skipped: builds, commands of an administrator, commands that wait for their user, and
/// servers on a socket of the machine.
const SKIPPED: [&str; 6] = [
    "cargo ",
    "install ",
    "--force NAME",
    "doctor --setup ",
    "hold orders",
    "watchdog",
];

/// Programs and files that are in the directory of the script instead.
const REPLACED: [(&str, &str); 3] = [
    ("/usr/local/bin/", "./"),
    ("/run/lock/", "./"),
    ("psql ", "./psql "),
];

/// The schemes of stores that are replaced by the embedded one.
const SCHEMES: [&str; 3] = ["postgres://", "redis://", "s3://"];

/// The commands of a block for a shell. `None`: it does not call the program.
fn script(block: &str) -> Option<String> {
    let mut script = block.to_owned();
    for (path, here) in REPLACED {
        script = script.replace(path, here);
    }
    let url_start = |word: &str| SCHEMES.iter().find_map(|scheme| word.find(scheme));
    for word in script.clone().split_whitespace() {
        if let Some(at) = url_start(word) {
            script = script.replace(&word[at..], "sqlite:locks.db");
        }
    }
    let lines = script.lines();
    let lines = lines.filter(|line| !SKIPPED.iter().any(|words| line.contains(words)));
    let commands = lines.map(|line| match line.split_once(" # exits with 75;") {
        Some((command, _)) => format!("{command} && exit 1 || test $? = 75"),
        None => line.to_owned(),
    });
    let commands: Vec<_> = commands.collect();
    let calls = commands.iter().any(|line| line.contains("leasehold "));
    calls.then(|| commands.join("\n"))
}

#[test]
fn every_command_in_a_page_runs() {
    let mut blocks = 0;
    for page in PAGES {
        let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(path).unwrap();
        for block in text.split("```sh\n").skip(1) {
            let block = block.split("```").next().unwrap();
            let Some(script) = script(block) else {
                continue;
            };
            let fixture = Fixture::new();
            let words = script.split(|c: char| c.is_whitespace() || "'\"&".contains(c));
            for program in words.filter(|word| word.starts_with("./")) {
                let _ = symlink("/bin/true", fixture.path(program));
            }
            let mut shell = fixture.shell(&format!("set -eu\n{script}\nwait"));
            shell.env("RELEASE", "7").env("CI_JOB_ID", "7");
            let output = shell.run_to_end();
            assert!(output.status.success(), "{page}: {script}{output:?}");
            blocks += 1;
        }
    }
    assert!(blocks > 15, "only {blocks} blocks");
}
