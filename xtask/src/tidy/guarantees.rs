//! The tests that the pages name, compared with the sources.

use std::collections::{BTreeMap, BTreeSet};

/// The document that names tests, in the last column of its tables.
pub(super) const PAGE: &str = "docs/guarantees.md";

/// The names of its columns of tests.
const COLUMNS: [&str; 2] = ["tested by", "guarded by"];

/// The tests that the page names, and that do not exist.
pub(super) fn faults(sources: &BTreeMap<String, String>, page: &str) -> Vec<String> {
    let named = named(page);
    let missing = named.iter().filter(|name| !exists(sources, name));
    let missing = missing.map(|name| format!("{PAGE}: there is no test {name}"));
    let empty = named.is_empty();
    let empty = empty.then(|| format!("{PAGE}: no table has a column of tests"));
    missing.chain(empty).collect()
}

/// The long names in any page, such as those of tests, that no code has.
pub(super) fn unknown_names(
    sources: &BTreeMap<String, String>,
    pages: &BTreeMap<String, String>,
) -> Vec<String> {
    let lines = sources.values().flat_map(|text| text.lines());
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    let known: BTreeSet<_> = code.flat_map(long_names).collect();
    let named = pages
        .iter()
        .flat_map(|(page, text)| long_names(text).map(move |name| (page, name)));
    let unknown = named.filter(|(_, name)| !known.contains(name));
    unknown
        .map(|(page, name)| format!("{page}: no code has the name {name}"))
        .collect()
}

/// The words with at least three underscores.
fn long_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.matches('_').count() >= 3)
}

/// The names in the columns of tests. One without a path has the path of the name before it.
fn named(page: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut tests = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            tests = false;
            continue;
        };
        let last = row.trim_end_matches('|').rsplit('|').next();
        let last = last.unwrap_or_default().trim();
        tests |= COLUMNS.contains(&last);
        let spans = last.split('`').skip(1).step_by(2).filter(|_| tests);
        for name in spans {
            let before = names.last().and_then(|before| before.rsplit_once("::"));
            names.push(match before {
                Some((path, _)) if !name.contains("::") => format!("{path}::{name}"),
                _ => name.to_owned(),
            });
        }
    }
    names
}

/// Whether a file has a test or a module of this name. All words before the last are in its path: `core` is a part of the
/// name of a crate. The module `tests` may be inside the file.
fn exists(sources: &BTreeMap<String, String>, name: &str) -> bool {
    let (path, last) = name.rsplit_once("::").unwrap_or_default();
    sources.iter().any(|(file, text)| {
        let parts: Vec<_> = file.trim_end_matches(".rs").split(['/', '-']).collect();
        let is_part =
            |word| parts.contains(&word) || word == "tests" && text.contains("\nmod tests {");
        let mut items = text.lines().filter_map(item);
        path.split("::").all(is_part) && (is_part(last) || items.any(|item| item == last))
    })
}

/// The name of a function, or of a test as a macro has it: a line `name:`.
fn item(line: &str) -> Option<&str> {
    let line = line.trim();
    let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let item = match line.split_once("fn ") {
        Some((_, rest)) => rest.split(['(', '<']).next(),
        None => line.strip_suffix(':').filter(is_name),
    };
    item.filter(|item| item.contains('_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_named_must_exist() {
        let sources = [
            ("crates/leasehold/tests/it/a/b.rs", "async fn it_works() {}"),
            ("crates/leasehold/tests/it/a/mod.rs", ""),
            (
                "crates/leasehold-core/src/c.rs",
                "\nmod tests {\n    fn a_name() {}\n    by_macro:\n",
            ),
        ];
        let sources = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
        let sources = BTreeMap::from(sources);
        let count = |cell: &str| {
            let page = format!("| x | tested by |\n|---|---|\n| `not::this` | {cell} |\n");
            faults(&sources, &page).len()
        };
        let names = "`it::a`, `it::a::b::it_works`, `core::c::tests::a_name`, `by_macro`, `a_name`";
        assert_eq!(count(names), 0);
        let names = "`it::c`, `it::a::c`, `a_name`, `core::c::tests::it_works`";
        assert_eq!(count(names), 4);
        assert_eq!(faults(&sources, "| `it::b` |\n").len(), 1);
    }

    #[test]
    fn a_long_name_in_a_page_must_be_in_the_code() {
        let map = |file: &str, text: &str| BTreeMap::from([(file.to_owned(), text.to_owned())]);
        let sources = map("a.rs", "fn it_is_a_test() {}\n    // it_was_a_test\n");
        let count = |page: &str| unknown_names(&sources, &map("a.md", page)).len();
        assert_eq!(count("`it::it_is_a_test`, of_two_parts"), 0);
        assert_eq!(count("`it_was_a_test`, `it_is_a_test_too`"), 2);
    }
}
