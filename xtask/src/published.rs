//! The contents of the published packages.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::dependencies::SHIPPED;
use crate::registry::{self, CargoOutcome};
use crate::steps::Completion;
use crate::tools::{cargo_line, output, root};

/// The files that every package has.
const REQUIRED: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// A package of the workspace.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    description: Option<String>,
    documentation: Option<String>,
    license: Option<String>,
    readme: Option<String>,
    repository: Option<String>,
    keywords: Vec<String>,
    categories: Vec<String>,
    /// The registries to which it may be published: `None` stands for all.
    publish: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// Checks which packages are published, their descriptions and their files.
pub(crate) fn check() -> Result<(), String> {
    let metadata = output(&mut cargo_line(
        "metadata --no-deps --locked --format-version 1",
    ))?;
    let metadata: Metadata = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    check_selection(&metadata.packages)?;
    for name in SHIPPED {
        let list = format!("package --list --allow-dirty --locked --package {name}");
        let packed = output(&mut cargo_line(&list))?;
        let sources = format!("ls-files crates/{name}/src");
        let mut git = std::process::Command::new("git");
        let sources = output(git.current_dir(root()).args(sources.split(' ')))?;
        let files = check_files(name, &packed, &sources)?;
        println!("{name} is published with {files} files");
    }
    Ok(())
}

/// Checks that exactly the shipped crates are published, and that the registry can describe them.
fn check_selection(packages: &[Package]) -> Result<(), String> {
    let published = packages.iter().filter(|it| it.publish.is_none());
    for package in published.clone() {
        let missing = [
            ("description", package.description.is_none()),
            ("documentation", package.documentation.is_none()),
            ("license", package.license.is_none()),
            ("readme", package.readme.is_none()),
            ("repository", package.repository.is_none()),
            ("keywords", package.keywords.is_empty()),
            ("categories", package.categories.is_empty()),
        ];
        if let Some((field, _)) = missing.into_iter().find(|(_, missing)| *missing) {
            return Err(format!("{} has no {field}", package.name));
        }
    }
    let published: BTreeSet<_> = published.map(|it| it.name.as_str()).collect();
    match published == BTreeSet::from(SHIPPED) {
        true => Ok(()),
        false => Err(format!("{published:?} would be published, not {SHIPPED:?}")),
    }
}

/// Checks the list of packed files: readme and licences, every source file, no test. Returns their number.
fn check_files(name: &str, packed: &str, sources: &str) -> Result<usize, String> {
    let packed: BTreeSet<_> = packed.lines().collect();
    if let Some(missing) = REQUIRED.iter().find(|file| !packed.contains(**file)) {
        return Err(format!("the package {name} lacks {missing}"));
    }
    if let Some(file) = packed.iter().find(|file| is_test(file)) {
        return Err(format!("the package {name} contains {file}"));
    }
    let directory = format!("crates/{name}/");
    let mut sources = sources
        .lines()
        .filter_map(|file| file.strip_prefix(&directory));
    match sources.find(|file| !is_test(file) && !packed.contains(file)) {
        Some(missing) => Err(format!("the package {name} lacks {missing}")),
        None => Ok(packed.len()),
    }
}

/// Whether a file is only for tests, benches or examples.
fn is_test(file: &str) -> bool {
    let mut parts = file.split('/');
    parts.any(|part| ["tests", "tests.rs", "benches", "examples"].contains(&part))
}

/// Packs all published crates as for the registry, without sending them and without compiling them from their packages:
/// that would compile all dependencies a second time. A release compiles them.
pub(crate) fn dry_run() -> Result<Completion, String> {
    let publish = "publish --workspace --dry-run --no-verify --allow-dirty --locked --quiet";
    match registry::run(&mut cargo_line(publish))? {
        CargoOutcome::Success => Ok(Completion::Full),
        CargoOutcome::Failure(message) => Err(message),
        CargoOutcome::Unreachable(reason) => Ok(Completion::Partial(format!(
            "nothing was packed as for the registry: {reason}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_its_sources_and_licences_and_no_tests() {
        let check = |packed: &str| {
            let sources = "crates/a/src/lib.rs\ncrates/a/src/a.lua\ncrates/a/src/tests.rs";
            check_files("a", packed, sources)
        };
        let base = REQUIRED.join("\n");
        assert_eq!(check(&format!("{base}\nsrc/lib.rs\nsrc/a.lua")), Ok(6));
        for wrong in [
            format!("{base}\nsrc/lib.rs"),
            format!("{base}\nsrc/lib.rs\nsrc/a.lua\nsrc/a/tests/x.rs"),
            format!("{base}\nsrc/lib.rs\nsrc/a.lua\nbenches/x.rs"),
            "Cargo.toml\nREADME.md\nLICENSE-MIT\nsrc/lib.rs\nsrc/a.lua".to_owned(),
        ] {
            assert!(check(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_shipped_crates_are_published() {
        let package = |name: &str| Package {
            name: name.to_owned(),
            description: Some(String::new()),
            documentation: Some(String::new()),
            license: Some(String::new()),
            readme: Some(String::new()),
            repository: Some(String::new()),
            keywords: vec![String::new()],
            categories: vec![String::new()],
            publish: None,
        };
        let shipped = || SHIPPED.map(package).into_iter();
        assert_eq!(check_selection(&shipped().collect::<Vec<_>>()), Ok(()));
        let more = shipped().chain([package("leasehold-sim")]);
        assert!(check_selection(&more.collect::<Vec<_>>()).is_err());
        assert!(check_selection(&shipped().skip(1).collect::<Vec<_>>()).is_err());
        let mut nameless: Vec<_> = shipped().collect();
        nameless[0].readme = None;
        assert!(check_selection(&nameless).is_err());
    }
}
