//! The vocabulary: words that the project does not use, because another word stands for the same thing.

use std::collections::BTreeMap;
use std::path::Path;

/// One word per line: `word | replacement | where | exceptions`. It is refused everywhere, or only in `names` of types,
/// modules and files if it is ordinary English. Exceptions are files and directories that still use it.
const RETIRED: &str = include_str!("../../retired-words.txt");

/// The files with prose or names. The list itself is another kind.
const EXTENSIONS: [&str; 5] = ["rs", "md", "toml", "lua", "sh"];

/// The file that names things as they were.
const HISTORY: &str = "CHANGELOG.md";

/// Keywords before the name of a type or a module.
const KEYWORDS: [&str; 6] = ["struct", "enum", "trait", "type", "union", "mod"];

/// A word that is not used.
struct Retired {
    replacement: &'static str,
    only_names: bool,
    exceptions: &'static str,
}

/// The retired words.
pub(super) struct Vocabulary(BTreeMap<&'static str, Retired>);

impl Vocabulary {
    pub(super) fn load() -> Self {
        let lines = RETIRED.lines().filter(|line| !line.starts_with('#'));
        let retired = lines.filter_map(|line| {
            let mut columns = line.split('|').map(str::trim);
            let word = columns.next()?;
            let retired = Retired {
                replacement: columns.next()?,
                only_names: columns.next()? == "names",
                exceptions: columns.next()?,
            };
            Some((word, retired))
        });
        Self(retired.collect())
    }

    /// The retired words in a file, whose path is relative to the root of the workspace.
    pub(super) fn faults(&self, path: &Path, text: &str) -> Vec<String> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path == Path::new(HISTORY)
            || !extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
        {
            return Vec::new();
        }
        let mut faults = self.found(path, "its path", &path.to_string_lossy(), true);
        for (at, line) in text.lines().enumerate() {
            let place = format!("line {}", at + 1);
            faults.extend(self.found(path, &place, line, false));
            if extension == Some("rs") {
                faults.extend(self.found(path, &place, defined(line), true));
            }
        }
        faults.dedup();
        faults
    }

    fn found(&self, path: &Path, place: &str, text: &str, is_name: bool) -> Vec<String> {
        let mut faults = Vec::new();
        for word in words(text) {
            let singular = word.strip_suffix('s').unwrap_or(&word);
            let retired = self.0.get(&*word).or_else(|| self.0.get(singular));
            let Some(retired) = retired.filter(|retired| is_name || !retired.only_names) else {
                continue;
            };
            let mut exceptions = retired.exceptions.split_whitespace();
            if !exceptions.any(|exception| path.starts_with(exception)) {
                let replacement = retired.replacement;
                faults.push(format!(
                    "{place}: the word {word}; the project says {replacement}"
                ));
            }
        }
        faults
    }
}

/// The words in a text and in its identifiers, in lower case.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in text.chars() {
        if c.is_uppercase() || !c.is_alphabetic() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphabetic(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

/// The name of the type or module that a line of code defines, or nothing.
fn defined(line: &str) -> &str {
    let mut rest = line.trim_start();
    if rest.starts_with("pub") {
        rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
    }
    match rest.split_once(' ') {
        Some((keyword, name)) if KEYWORDS.contains(&keyword) => name
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default(),
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        Vocabulary::load().faults(Path::new(path), text).len()
    }

    #[test]
    fn every_line_of_the_list_is_complete() {
        let lines = RETIRED
            .lines()
            .filter(|line| !line.starts_with('#'))
            .count();
        let Vocabulary(retired) = Vocabulary::load();
        assert_eq!(retired.len(), lines);
        assert!(
            retired
                .values()
                .all(|retired| !retired.replacement.is_empty())
        );
    }

    #[test]
    fn a_retired_word_is_found_in_prose_and_in_identifiers() {
        let word = concat!("at", "las");
        assert_eq!(count("a.md", &format!("The {word}.\n")), 1);
        assert_eq!(count("a.rs", &format!("let my_{word}s = 1;\n")), 1);
        assert_eq!(
            count("a.rs", &format!("let x: {}Of;\n", concat!("At", "las"))),
            1
        );
        assert_eq!(count(&format!("src/{word}/b.rs"), ""), 1);
        assert_eq!(count("a.rs", &format!("// {word}t\n")), 0);
        assert_eq!(count("a.svg", word), 0);
        assert_eq!(count(HISTORY, word), 0);
    }

    #[test]
    fn ordinary_english_is_refused_as_a_name_only() {
        assert_eq!(count("a.rs", "// It is left to you.\nlet left = 1;\n"), 0);
        assert_eq!(
            count("a.rs", concat!("pub(crate) struct Left", "Over;\n")),
            1
        );
        assert_eq!(count("a.rs", "    mod left;\n"), 1);
        assert_eq!(count("src/left.rs", ""), 1);
    }

    #[test]
    fn a_word_may_have_exceptions() {
        let word = concat!("crow", "d");
        assert_eq!(count("docs/bench/a.md", word), 0);
        assert_eq!(count("docs/a.md", word), 1);
    }
}
