//! What the shipped crates may depend on.

use crate::metadata::Metadata;

/// What users get.
const SHIPPED: [&str; 4] = [
    "leasehold-core",
    "leasehold",
    "leasehold-watchdog",
    "leasehold-cli",
];

/// What only tests and development use.
const NEVER_SHIPPED: [&str; 4] = [
    "leasehold-faults",
    "leasehold-sim",
    "leasehold-testkit",
    "xtask",
];

/// How many crates the library may require. Every one more is one that all users build and trust.
const REQUIRED_MAX: usize = 10;

/// Checks all rules and tells everything that breaks one.
pub(crate) fn check(metadata: &Metadata) -> Result<(), String> {
    let mut wrong = Vec::new();
    for shipped in SHIPPED {
        let tree = metadata.tree(shipped)?;
        println!("{shipped} is built from {} crates", tree.len() - 1);
        for package in &tree {
            if package.local && NEVER_SHIPPED.contains(&&*package.name) {
                wrong.push(format!("{shipped} is built from {}", package.name));
            }
        }
    }
    let core = metadata.ours("leasehold-core")?;
    if !core.built_from.is_empty() || !core.required.is_empty() {
        wrong.push(format!("leasehold-core depends on {:?}", core.required));
    }
    let required = &metadata.ours("leasehold")?.required;
    println!("leasehold requires {required:?}");
    if required.len() > REQUIRED_MAX {
        let count = required.len();
        wrong.push(format!(
            "leasehold requires {count} crates, at most {REQUIRED_MAX}"
        ));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Package;

    fn package(name: &str, required: &[&str]) -> (String, Package) {
        let required = required.iter().map(|name| (*name).to_owned());
        let package = Package {
            name: name.into(),
            local: true,
            built_from: required.clone().collect(),
            required: required.collect(),
            ..Package::default()
        };
        (name.into(), package)
    }

    fn check_with(name: &str, required: &[&str]) -> Result<(), String> {
        let all = [
            package("leasehold-core", &[]),
            package("leasehold", &["leasehold-core"]),
            package("leasehold-cli", &["leasehold"]),
            package("leasehold-watchdog", &["leasehold"]),
            package("leasehold-sim", &[]),
            package("other", &[]),
            package(name, required),
        ];
        check(&Metadata {
            packages: all.into(),
        })
    }

    #[test]
    fn each_rule_can_be_broken() {
        assert_eq!(check_with("other", &[]), Ok(()));
        assert!(check_with("leasehold-core", &["other"]).is_err());
        assert!(check_with("leasehold", &["leasehold-sim"]).is_err());
        assert!(check_with("other", &["leasehold-sim"]).is_ok());
        let many = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
        assert_eq!(check_with("leasehold", &many[..10]), Ok(()));
        assert!(check_with("leasehold", &many).is_err());
    }
}
