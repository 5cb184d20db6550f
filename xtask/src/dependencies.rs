//! The dependencies of the shipped crates.

use std::collections::BTreeSet;
use std::fs;

use crate::tools::{cargo_line, output, root};

/// The published crates. They depend on no other crate of this workspace.
const SHIPPED: [&str; 4] = [
    "leasehold-core",
    "leasehold",
    "leasehold-watchdog",
    "leasehold-cli",
];

/// The file with the table of features, which states the number of crates that each of them needs.
const FEATURES_IN: &str = "crates/leasehold/src/lib.rs";

/// Checks the packages that each shipped crate is built from, and the stated number of them.
pub(crate) fn check() -> Result<(), String> {
    for package in SHIPPED {
        let tree = tree(package, "--all-features")?;
        println!("{package} is built from {} crates", tree.len());
        check_tree(package, &tree)?;
    }
    let text = fs::read_to_string(root().join(FEATURES_IN)).map_err(|error| error.to_string())?;
    check_features(&text, |feature| {
        let features = format!("--no-default-features --features {feature}");
        Ok(tree("leasehold", &features)?.len())
    })
}

/// Checks the numbers of crates in the table of features.
fn check_features(text: &str, count: impl Fn(&str) -> Result<usize, String>) -> Result<(), String> {
    let (_, section) = text.split_once("//! # Crate features").unwrap_or_default();
    let (table, _) = section.split_once("\n//! # ").unwrap_or((section, ""));
    let rows = table
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let rows: Vec<_> = rows.filter_map(|row| row.split_once('`')).collect();
    if rows.is_empty() {
        return Err(format!("{FEATURES_IN} has no table of features"));
    }
    for (feature, row) in rows {
        let count = count(feature)?;
        println!("leasehold with {feature} alone is built from {count} crates");
        if !row.ends_with(&format!("| {count} |")) {
            return Err(format!(
                "{FEATURES_IN}: with {feature} alone the library is built from {count} crates: {row}"
            ));
        }
    }
    Ok(())
}

/// The packages that a crate is built from on Linux, without tests and the crate itself. Packages of this workspace
/// have their directories behind them.
fn tree(package: &str, features: &str) -> Result<BTreeSet<String>, String> {
    let tree = "tree --locked --target x86_64-unknown-linux-gnu --edges normal,build";
    let format = "--prefix none --format {p} --no-dedupe --package";
    let text = output(&mut cargo_line(&format!(
        "{tree} {features} {format} {package}"
    )))?;
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

fn check_tree(package: &str, tree: &BTreeSet<String>) -> Result<(), String> {
    if package == "leasehold-core" && !tree.is_empty() {
        return Err(format!("leasehold-core depends on {tree:?}"));
    }
    let ours = format!("({}", root().display());
    let never_shipped = tree.iter().find(|line| {
        let name = line.split(' ').next().unwrap_or_default();
        line.contains(&ours) && !SHIPPED.contains(&name)
    });
    match never_shipped {
        None => Ok(()),
        Some(line) => Err(format!(
            "{package} is built from {line}, which is not shipped"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_tests_are_not_shipped_and_the_core_depends_on_nothing() {
        let ours = |name: &str| format!("{name} v0.1.0 ({}/crates/{name})", root().display());
        let other = "leasehold-sim v0.1.0".to_owned();
        for (package, tree, ok) in [
            ("leasehold", vec![ours("leasehold-core"), other], true),
            ("leasehold", vec![ours("leasehold-sim")], false),
            ("leasehold-core", vec![], true),
            ("leasehold-core", vec!["fastrand v2.0.0".into()], false),
        ] {
            let checked = check_tree(package, &tree.into_iter().collect());
            assert_eq!(checked.is_ok(), ok, "{package}");
        }
    }

    #[test]
    fn the_numbers_in_the_table_of_features_are_compared() {
        let check = |text: &str| check_features(text, |feature| Ok(feature.len()));
        let table =
            "//! # Crate features\n//! | `tls` (default) | TLS | 3 |\n//! | `redis` | servers | ";
        assert_eq!(
            check(&format!("{table}5 |\n//! # Next\n//! | `x` | |\n")),
            Ok(())
        );
        assert!(check(&format!("{table}15 |\n")).is_err());
        assert!(check("//! # Crate features\n").is_err());
    }
}
