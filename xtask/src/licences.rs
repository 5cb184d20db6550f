//! The licence of every dependency is one that `deny.toml` allows, the list that cargo-deny reads.

use std::fs;
use std::path::Path;

use crate::expression::satisfied;
use crate::metadata::{Metadata, Package};

/// Checks all dependencies, those of other systems too, and tells every one that is not allowed.
pub(crate) fn check(metadata: &Metadata, root: &Path) -> Result<(), String> {
    let file = root.join("deny.toml");
    let text = fs::read_to_string(&file).map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = allowed(&text);
    if allowed.is_empty() {
        return Err("deny.toml has no list [licenses] allow".into());
    }
    let wrong: Vec<_> = metadata
        .packages
        .values()
        .filter_map(|package| fault(package, &allowed))
        .collect();
    println!(
        "{} packages, allowed: {}",
        metadata.packages.len(),
        allowed.join(", ")
    );
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

fn fault(package: &Package, allowed: &[&str]) -> Option<String> {
    let named = format!("{} {}", package.name, package.version);
    let Some(expression) = &package.licence else {
        return Some(format!("{named} names no licence"));
    };
    match satisfied(expression, &|licence| allowed.contains(&licence)) {
        Ok(true) => None,
        Ok(false) => Some(format!("{named} has the licence {expression}")),
        Err(error) => Some(format!("{named} has the licence {expression:?}: {error}")),
    }
}

/// The texts in the array `allow` of the table `[licenses]`. That is all of TOML that it takes.
fn allowed(text: &str) -> Vec<&str> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut table = lines
        .skip_while(|line| *line != "[licenses]")
        .skip(1)
        .take_while(|line| !(line.starts_with('[') && line.ends_with(']') && line.len() > 1))
        .skip_while(|line| !line.starts_with("allow"));
    let mut allowed = Vec::new();
    for line in &mut table {
        // What stands between quotes is every second part.
        allowed.extend(line.split('"').skip(1).step_by(2));
        if line.ends_with(']') {
            break;
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_from_its_table_only() {
        let text = "\
            [bans]\nallow = [\"no\"]\n\
            [licenses] # ours\nconfidence-threshold = 0.9\n\
            allow = [\n  \"MIT\", # and why\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n\
            exceptions = [\"no\"]\n\
            [sources]\nallow = [\"no\"]\n";
        assert_eq!(allowed(text), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
        assert_eq!(
            allowed("[licenses]\nallow = [\"MIT\"]\nx = [\"no\"]"),
            ["MIT"]
        );
        assert!(allowed("[licenses]\n[other]\nallow = [\"no\"]").is_empty());
    }

    #[test]
    fn a_package_without_a_licence_is_wrong() {
        let with = |licence: Option<&str>| Package {
            licence: licence.map(str::to_owned),
            ..Package::default()
        };
        assert!(fault(&with(Some("MIT OR GPL-3.0")), &["MIT"]).is_none());
        assert!(fault(&with(Some("GPL-3.0")), &["MIT"]).is_some());
        assert!(fault(&with(None), &["MIT"]).is_some());
    }
}
