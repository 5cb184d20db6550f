//! The command lines in the examples of `packaging`.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The examples, each with the words of its command lines.
fn command_lines() -> Vec<(String, Vec<String>)> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/examples");
    let mut lines = Vec::new();
    for directory in fs::read_dir(examples).unwrap() {
        for file in fs::read_dir(directory.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let found = shell_line(&text).into_iter().chain(yaml_lists(&text));
            lines.extend(found.map(|words| (path.display().to_string(), words)));
        }
    }
    lines
}

/// The line of a unit or a crontab.
fn shell_line(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let (_, line) = lines.find_map(|line| line.split_once("leasehold run "))?;
    let words = ["run"].into_iter().chain(line.split_whitespace());
    Some(words.map(str::to_owned).collect())
}

/// The arguments of containers: a list with an item in each line.
fn yaml_lists(text: &str) -> Vec<Vec<String>> {
    let mut lists = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line != "command:" && line != "args:" {
            continue;
        }
        let mut words = Vec::new();
        while let Some(word) = lines.peek().and_then(|line| line.strip_prefix("- ")) {
            words.push(word.to_owned());
            lines.next();
        }
        if words.first().is_some_and(|word| word == "leasehold") {
            words.remove(0);
        }
        lists.push(words);
    }
    lists
}

#[test]
fn the_command_lines_of_the_examples_are_accepted() {
    let lines = command_lines();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for (file, mut words) in lines {
        // With `--help` the words before it are checked, and nothing runs.
        let end = words.iter().position(|word| word == "--");
        words.truncate(end.unwrap_or(words.len()));
        words.push("--help".to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let output = command.args(&words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{file}: {words:?}: {errors}");
    }
}
