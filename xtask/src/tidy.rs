//! Rules for files that no compiler knows. They are tests, and run with all others.

mod functions;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};

/// How many lines of code a Rust file may have, without comments and empty lines.
const CODE_LINES_MAX: usize = 500;

/// How many lines the body of a function may have.
const FUNCTION_LINES_MAX: usize = 70;

/// How many bytes a file may have. What is larger was put in by mistake.
const BYTES_MAX: usize = 512 * 1024;

/// What means that something is not done. In two parts, so that this file does not contain it.
const UNDONE: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
];

/// Folders that hold no source.
const SKIPPED: [&str; 7] = [
    ".git",
    "target",
    "corpus",
    "artifacts",
    "proptest-regressions",
    "node_modules",
    "venv",
];

/// Checks every file of the workspace and tells all that break a rule.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    collect(root, &mut files).map_err(|error| format!("{}: {error}", root.display()))?;
    let mut wrong = Vec::new();
    for file in &files {
        let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let shown = file.strip_prefix(root).unwrap_or(file).display();
        let faults = faults(file, &bytes);
        wrong.extend(faults.into_iter().map(|fault| format!("{shown}: {fault}")));
    }
    println!("{} files", files.len());
    for fault in &wrong {
        println!("{fault}");
    }
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("{count} places break a rule")),
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(())
}

/// What is wrong with a file.
fn faults(path: &Path, bytes: &[u8]) -> Vec<String> {
    let mut faults = Vec::new();
    if bytes.len() > BYTES_MAX {
        faults.push(format!("{} bytes, at most {BYTES_MAX}", bytes.len()));
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return faults;
    };
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push("the last line has no end".into());
    }
    if text.contains('\r') {
        faults.push("a line ends in the manner of Windows".into());
    }
    faults.extend(undone(text));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => faults.extend(rust(text)),
        Some("md") => faults.extend(markdown::faults(path, text)),
        _ => {}
    }
    faults
}

fn undone(text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| {
            let words = UNDONE.iter().filter(|word| is_word(line, word));
            words.map(move |word| format!("line {}: {word}", at + 1))
        })
        .collect()
}

/// Whether a line contains a word that is no part of a longer one.
fn is_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let ends = |next: Option<char>| !next.is_some_and(|c| c.is_alphanumeric() || c == '_');
        ends(before) && (word.ends_with('(') || ends(after))
    })
}

fn rust(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = code_lines(text);
    if lines > CODE_LINES_MAX {
        faults.push(format!("{lines} lines of code, at most {CODE_LINES_MAX}"));
    }
    for function in functions::longer_than(text, FUNCTION_LINES_MAX) {
        faults.push(format!("{function}, at most {FUNCTION_LINES_MAX}"));
    }
    if text.lines().any(|line| line.trim().starts_with("#[ignore")) {
        faults.push("an ignored test; make it run or delete it".into());
    }
    faults
}

fn code_lines(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::root;

    #[test]
    fn the_repository_is_tidy() {
        if let Err(wrong) = check(root()) {
            panic!("{wrong}");
        }
    }

    fn faults_of(name: &str, text: &str) -> Vec<String> {
        faults(Path::new(name), text.as_bytes())
    }

    #[test]
    fn a_file_can_be_too_long() {
        let lines = |count| "x;\n// y\n\n".repeat(count);
        assert!(faults_of("a.rs", &lines(500)).is_empty());
        assert_eq!(faults_of("a.rs", &lines(501)).len(), 1);
        assert_eq!(faults_of("a.bin", &"x".repeat(BYTES_MAX)).len(), 1);
        assert_eq!(
            faults(Path::new("a.bin"), &vec![0xff; BYTES_MAX + 1]).len(),
            1
        );
    }

    #[test]
    fn nothing_may_be_undone() {
        for word in UNDONE {
            assert_eq!(faults_of("a.toml", &format!("# {word} later\n")).len(), 1);
        }
        assert!(faults_of("a.rs", "// AUTODOC\n").is_empty());
        assert_eq!(faults_of("a.rs", "    #[ignore]\n").len(), 1);
    }

    #[test]
    fn lines_end_in_one_manner() {
        assert_eq!(faults_of("a", "a").len(), 1);
        assert_eq!(faults_of("a", "a\r\n").len(), 1);
        assert!(faults_of("a", "").is_empty());
    }
}
