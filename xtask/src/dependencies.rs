//! The dependencies of the library and its core.

use std::collections::BTreeSet;
use std::fs;

use crate::tools::{cargo_line, output, root};

/// The file with the table of features, which states the number of crates that each of them needs.
const FEATURES_IN: &str = "crates/leasehold/src/lib.rs";

/// Checks that the core is built from no other crate, and the stated numbers of crates of the library. `.ci/check-packages`
/// shows that published crates depend on published ones alone.
pub(crate) fn check() -> Result<(), String> {
    let core = tree("leasehold-core", "--all-features")?;
    if !core.is_empty() {
        return Err(format!("leasehold-core depends on {core:?}"));
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

/// The packages that a crate is built from on Linux, without tests and the crate itself.
fn tree(package: &str, features: &str) -> Result<BTreeSet<String>, String> {
    let tree = "tree --locked --target x86_64-unknown-linux-gnu --edges normal,build";
    let format = "--prefix none --format {p} --no-dedupe --package";
    let text = output(&mut cargo_line(&format!(
        "{tree} {features} {format} {package}"
    )))?;
    Ok(text.lines().skip(1).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
