//! Rules for files that no compiler checks. `cargo test` also runs them.

mod guarantees;
mod imports;
mod layers;
mod markdown;
mod metrics;
mod parameters;
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use self::vocabulary::Vocabulary;

/// How many lines of code a Rust file may have, without comments and empty lines.
const CODE_LINES_MAX: usize = 500;

/// How many bytes a file may have. A larger one was added by mistake.
const BYTES_MAX: usize = 512 * 1024;

/// Marks of unfinished work, in two parts, so that this file does not contain them.
const UNFINISHED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

/// Directories without source files.
const SKIPPED: [&str; 7] = [
    ".git",
    "target",
    "corpus",
    "artifacts",
    "proptest-regressions",
    "node_modules",
    "venv",
];

/// Checks every file of the workspace, and prints all faults.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let mut files = Vec::new();
    collect(root, &mut files).map_err(|error| format!("{}: {error}", root.display()))?;
    let mut found = Vec::new();
    let mut sources = BTreeMap::new();
    let mut pages = BTreeMap::new();
    let vocabulary = Vocabulary::load();
    for file in &files {
        let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let relative = file.strip_prefix(root).unwrap_or(file);
        let name = relative.to_string_lossy().into_owned();
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        let faults = [faults(file, &bytes), vocabulary.faults(relative, text)].concat();
        found.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
        if name.ends_with(".rs") {
            sources.insert(name, text.to_owned());
        } else if name.ends_with(".md") {
            pages.insert(name, text.to_owned());
        }
    }
    found.extend(imports::faults(&sources));
    found.extend(layers::faults(&sources));
    let page = |name| pages.get(name).map_or("", String::as_str);
    found.extend(metrics::faults(&sources, page(metrics::PAGE)));
    found.extend(guarantees::faults(&sources, page(guarantees::PAGE)));
    found.extend(guarantees::unknown_names(&sources, &pages));
    found.extend(parameters::faults(&sources, &pages));
    println!("{} files", files.len());
    for fault in &found {
        println!("{fault}");
    }
    match found.len() {
        0 => Ok(()),
        count => Err(format!("{count} faults")),
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
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

/// The faults of a file by itself.
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
        faults.push("a line ends with a carriage return".into());
    }
    faults.extend(unfinished(text));
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => faults.extend(rust(text)),
        Some("md") => faults.extend(markdown::faults(path, text)),
        _ => {}
    }
    faults
}

fn unfinished(text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let words = |line: &str| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words
            .find(|word| UNFINISHED.contains(word))
            .map(str::to_owned)
    };
    lines
        .filter_map(|(at, line)| Some(format!("line {}: {}", at + 1, words(line)?)))
        .collect()
}

fn rust(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = code_lines(text);
    if lines > CODE_LINES_MAX {
        faults.push(format!("{lines} lines of code, at most {CODE_LINES_MAX}"));
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
        assert_eq!(check(root()), Ok(()));
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
    fn unfinished_work_is_refused() {
        for word in UNFINISHED {
            assert_eq!(faults_of("a.toml", &format!("# {word} later\n")).len(), 1);
        }
        assert!(faults_of("a.rs", "// AUTODOC\n").is_empty());
        assert_eq!(faults_of("a.rs", "    #[ignore]\n").len(), 1);
    }

    #[test]
    fn lines_end_with_a_line_feed() {
        assert_eq!(faults_of("a", "a").len(), 1);
        assert_eq!(faults_of("a", "a\r\n").len(), 1);
        assert!(faults_of("a", "").is_empty());
    }
}
