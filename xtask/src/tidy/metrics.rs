//! The table of metrics in the documents, compared with the code that records them.

use std::collections::{BTreeMap, BTreeSet};

/// The document with the table.
pub(super) const PAGE: &str = "docs/operations.md";

/// The sources that record metrics.
const SOURCES: [&str; 2] = ["crates/leasehold/src/", "crates/leasehold-watchdog/src/"];

const KINDS: [&str; 3] = ["counter", "gauge", "histogram"];

/// The kinds and labels of metrics, by name. Each is one in the code, and more if the code contradicts itself.
type Metrics<'a> = BTreeMap<&'a str, (BTreeSet<&'a str>, BTreeSet<&'a str>)>;

/// The differences between code and document, and descriptions that do not suit what is recorded.
pub(super) fn faults(sources: &BTreeMap<String, String>, page: &str) -> Vec<String> {
    let (recorded, documented) = (calls(sources, ""), table(page));
    let described = calls(sources, "describe_");
    let names: BTreeSet<_> = recorded.keys().chain(documented.keys()).copied().collect();
    let undocumented =
        names
            .into_iter()
            .filter_map(|name| match (recorded.get(name), documented.get(name)) {
                (Some(code), Some(row)) if code == row => None,
                (Some(code), Some(row)) => {
                    Some(format!("{PAGE}: {name} is {row:?}, in the code {code:?}"))
                }
                (Some(_), None) => Some(format!("{PAGE}: {name} is missing")),
                _ => Some(format!("{PAGE}: {name} is not in the code")),
            });
    let names: BTreeSet<_> = recorded.keys().chain(described.keys()).copied().collect();
    let misnamed = names.into_iter().filter_map(|name| {
        let (recorded, described) = (recorded.get(name), described.get(name));
        let is_time = name.ends_with("_seconds") && !name.ends_with("_timestamp_seconds");
        let kind = match name {
            _ if name.ends_with("_total") => "counter",
            _ if is_time => "histogram",
            _ => "gauge",
        };
        let suits = |found: Option<&(BTreeSet<&str>, _)>| {
            found.is_some_and(|(kinds, _)| kinds.iter().eq([&kind]))
        };
        let ok = suits(recorded) && suits(described);
        (!ok).then(|| {
            format!("{name}: a {kind} by its name; {recorded:?}, described as {described:?}")
        })
    });
    undocumented.chain(misnamed).collect()
}

/// The calls of macros whose names begin like this: those that record, or describe.
fn calls<'a>(sources: &'a BTreeMap<String, String>, prefix: &str) -> Metrics<'a> {
    let mut metrics = Metrics::new();
    let own = |name: &str| SOURCES.iter().any(|source| name.starts_with(source));
    for (_, text) in sources.iter().filter(|(name, _)| own(name)) {
        collect(text, prefix, &mut metrics);
    }
    metrics
}

fn collect<'a>(text: &'a str, prefix: &str, metrics: &mut Metrics<'a>) {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    for kind in KINDS {
        let name = format!("{prefix}{kind}!(");
        for (at, _) in code.match_indices(&name) {
            // `describe_counter!` records nothing.
            if code[..at].ends_with('_') {
                continue;
            }
            let arguments = arguments(&code[at + name.len()..]);
            let first = arguments.split(',').next().unwrap_or_default().trim();
            let Some(metric) = literal(first).or_else(|| value(&code[..at], first)) else {
                continue;
            };
            let arrows = arguments.match_indices("=>");
            let labels = arrows.filter_map(|(at, _)| {
                let (_, label) = arguments[..at]
                    .trim_end()
                    .strip_suffix('"')?
                    .rsplit_once('"')?;
                Some(label)
            });
            let (kinds, known) = metrics.entry(metric).or_default();
            kinds.insert(kind);
            known.extend(labels);
        }
    }
}

/// The text up to the closing parenthesis of a call.
fn arguments(text: &str) -> &str {
    let mut depth = 0_usize;
    let end = text.find(|c| {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return true,
            ')' => depth -= 1,
            _ => {}
        }
        false
    });
    &text[..end.unwrap_or(text.len())]
}

fn literal(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// The literal that a variable has.
fn value<'a>(code: &'a str, variable: &str) -> Option<&'a str> {
    let (_, rest) = code.rsplit_once(&format!("let {variable} = "))?;
    literal(rest.split(';').next()?)
}

/// The rows of the table: name, type, labels.
fn table(page: &str) -> Metrics<'_> {
    let section = page.split("\n## Metrics\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|row| {
        let mut cells = row.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.trim_end_matches('`');
        let kinds = cells.next()?.split(' ').collect();
        let labels = cells.next()?.split('`').skip(1).step_by(2).collect();
        Some((name, (kinds, labels)))
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
        metrics::counter!("a_total", "cause" => cause.name()).increment(1);
        let actions = "b_total";
        metrics::counter!(
            actions,
            "action" => action,
            "result" => result
        ).increment(1);
        describe_counter!("a_total", "text");
        describe_counter!("b_total", "text");
        describe_gauge!("c", "text");
        report(|| gauge!("c").set(1.0));
    "#;

    const TABLE: &str = "# P\n\n## Metrics\n\n| metric | type | labels |\n|---|---|---|\n\
                         | `a_total` | counter | `cause` | x |\n\
                         | `b_total` | counter | `action`, `result` | x |\n\
                         | `c` | gauge | | x |\n\n## Next\n";

    fn count(code: &str, page: &str) -> usize {
        let sources = BTreeMap::from([(format!("{}a.rs", SOURCES[0]), code.to_owned())]);
        faults(&sources, page).len()
    }

    #[test]
    fn the_table_has_every_metric_with_its_type_and_labels() {
        let count = |page: &str| count(CODE, page);
        assert_eq!(count(TABLE), 0);
        assert_eq!(count(&TABLE.replace("| `c`", "| `d`")), 2);
        assert_eq!(count(&TABLE.replace("gauge", "counter")), 1);
        assert_eq!(count(&TABLE.replace("`action`, ", "")), 1);
        assert_eq!(count("# P\n"), 3);
    }

    #[test]
    fn a_metric_is_described_with_the_kind_of_its_name() {
        let described = |other: &str| CODE.replace("describe_gauge!(\"c\"", other);
        assert_eq!(count(&described("describe_counter!(\"c\""), TABLE), 1);
        assert_eq!(count(&described("describe_gauge!(\"d\""), TABLE), 2);
        let renamed = CODE.replace("\"c\"", "\"c_total\"");
        assert_eq!(count(&renamed, &TABLE.replace("`c`", "`c_total`")), 1);
    }
}
