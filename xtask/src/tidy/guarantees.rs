//! The tests that the page about guarantees names, compared with the sources.

use std::collections::{BTreeMap, BTreeSet};

/// The document that names tests, in the last column of its tables.
pub(super) const PAGE: &str = "docs/guarantees.md";

/// The names of its columns of tests.
const COLUMNS: [&str; 2] = ["tested by", "guarded by"];

/// How the page abbreviates the directories of sources.
const ROOTS: [(&str, &str); 7] = [
    ("crates/leasehold/tests/it/", "it"),
    ("crates/leasehold/src/", ""),
    ("crates/leasehold-core/src/", "core"),
    ("crates/leasehold-sim/src/", "sim"),
    ("crates/leasehold-cli/tests/it/", "cli"),
    ("crates/leasehold-watchdog/tests/it/", "watchdog::it"),
    ("crates/leasehold-watchdog/src/", "watchdog"),
];

/// The tests that the page names, and that do not exist.
pub(super) fn faults(sources: &BTreeMap<String, String>, page: &str) -> Vec<String> {
    let known = known(sources);
    let named = named(page);
    let missing = named.iter().filter(|name| !known.contains(*name));
    let missing = missing.map(|name| format!("{PAGE}: there is no test {name}"));
    let empty = named.is_empty();
    let empty = empty.then(|| format!("{PAGE}: no table has a column of tests"));
    missing.chain(empty).collect()
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

/// The modules of the sources, and what is named in them: functions, and tests that a macro makes.
fn known(sources: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (file, text) in sources {
        let root = ROOTS.iter().find(|(root, _)| file.starts_with(root));
        let Some((root, prefix)) = root else {
            continue;
        };
        let path = file[root.len()..].trim_end_matches(".rs");
        let path = path.trim_end_matches("/mod").replace('/', "::");
        let module = format!("{prefix}::{path}");
        let module = module.trim_start_matches("::");
        known.insert(module.to_owned());
        let (code, tests) = text.split_once("\nmod tests {").unwrap_or((text, ""));
        let inner = format!("{module}::tests");
        for (module, text) in [(module, code), (&inner, tests)] {
            if !text.is_empty() {
                known.insert(module.to_owned());
            }
            let items = text.lines().filter_map(item);
            known.extend(items.map(|item| format!("{module}::{item}")));
        }
    }
    known
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
        assert_eq!(
            count("`it::b`, `it::a::b`, `it_works`, `core::c::a_name`"),
            3
        );
        assert_eq!(faults(&sources, "| `it::b` |\n").len(), 1);
    }
}
