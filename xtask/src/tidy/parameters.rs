//! The parameters of the URLs of stores: the pages name those that the code knows, and no others.

use std::collections::{BTreeMap, BTreeSet};

/// The pages that describe URLs.
const PAGES: [&str; 5] = [
    "docs/etcd.md",
    "docs/object-stores.md",
    "docs/postgresql.md",
    "docs/stores.md",
    "docs/zookeeper.md",
];

/// Between these, the files that parse URLs have the names of parameters as literals.
const MARKS: [(&str, &str); 4] = [
    ("match name {", "_ =>"),
    ("= parameters(", "])"),
    ("self.take(", ")"),
    ("const OWN: ", "];"),
];

/// A parameter that only the driver of PostgreSQL knows.
const OF_THE_DRIVER: &str = "host";

/// The parameters that no page names, and those that the code does not know.
pub(super) fn faults(
    sources: &BTreeMap<String, String>,
    pages: &BTreeMap<String, String>,
) -> Vec<String> {
    let is_parser = |file: &str| {
        file.starts_with("crates/leasehold/src/store/")
            && (file.contains("/address") || file.ends_with("/members.rs"))
    };
    let parsers = sources.iter().filter(|(file, _)| is_parser(file));
    let known: BTreeSet<_> = parsers.flat_map(|(_, text)| known(text)).collect();
    let texts = PAGES.map(|page| pages.get(page).map_or("", String::as_str));
    let is_missing = |name: &&&str| {
        let forms = [format!("{name}="), format!("`{name}`")];
        let has = |text: &&str| forms.iter().any(|form| text.contains(form));
        !texts.iter().any(has)
    };
    let missing = known.iter().filter(is_missing);
    let missing = missing.map(|name| format!("no page names the parameter {name} of a URL"));
    let named: BTreeSet<_> = texts.iter().flat_map(|text| named(text)).collect();
    let unknown = named.difference(&known);
    let unknown = unknown.filter(|name| **name != OF_THE_DRIVER);
    let unknown = unknown.map(|name| format!("no URL has the parameter {name} of the pages"));
    missing.chain(unknown).collect()
}

/// The parameters that a parser knows.
fn known(text: &str) -> impl Iterator<Item = &str> {
    let parts = MARKS.iter().flat_map(move |(start, end)| {
        let parts = text.split(*start).skip(1);
        parts.filter_map(move |part| part.split(*end).next())
    });
    parts.flat_map(|part| part.split('"').skip(1).step_by(2))
}

/// The parameters in the URLs of a page.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-' || c == '_';
    let parts = text.split(['?', '&']).skip(1);
    let names = parts.filter_map(|part| part.split_once('=').map(|(name, _)| name));
    names.filter(move |name| name.chars().all(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_in_the_code_and_in_a_page() {
        let map = |file: &str, text: &str| BTreeMap::from([(file.to_owned(), text.to_owned())]);
        let parser = r#"= parameters(query, ["ca", "key"]); match name { "db" => x, _ => y }"#;
        let sources = map("crates/leasehold/src/store/address.rs", parser);
        let count = |page: &str| faults(&sources, &map("docs/stores.md", page)).len();
        assert_eq!(count("`redis:HOST[?ca=FILE&db=DB]`, `key`"), 0);
        assert_eq!(count("`?ca=FILE`, `db`, `?host=`"), 1);
        assert_eq!(count("`?ca=FILE&cert=FILE`"), 3);
    }
}
