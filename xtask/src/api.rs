//! `cargo xtask api`: the list of public items of the library.

use crate::tools::{cargo_line, run};

/// Runs the test that compares the list with the code, or writes it.
pub(crate) fn check(bless: bool) -> Result<(), String> {
    let mut test = cargo_line("test --package xtask --locked api:: -- --ignored");
    if bless {
        test.env("LEASEHOLD_BLESS", "1");
    }
    run(&mut test)
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use crate::tools::{cargo, root, target};

    const LIST: &str = "crates/leasehold/public-api.txt";

    /// Only by the compiler of the gate, whose description of the items is read. It compiles all dependencies again.
    #[test]
    #[ignore = "cargo xtask api runs it"]
    fn the_public_items_of_the_library_are_in_the_list() {
        let root = root();
        let target = target();
        // Packages without a library, and examples: with them, dependencies have the features that clippy compiles.
        let mut packages = vec!["--lib", "--examples", "--package", "leasehold"];
        for package in ["leasehold-cli", "leasehold-fuzz", "xtask"] {
            packages.extend(["--package", package]);
        }
        let status = cargo()
            .args(["doc", "--no-deps", "--all-features", "--locked"])
            .args(packages)
            .arg("--target-dir")
            .arg(&target)
            .env("CUSTOM_LIBFUZZER_PATH", "target/libfuzzer.a")
            .env("RUSTDOC", root.join("xtask/rustdoc-json"))
            .env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json")
            .status();
        assert!(status.unwrap().success());
        let items = public_api::Builder::from_rustdoc_json(target.join("doc/leasehold.json"))
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .unwrap();
        let list = items.to_string();
        let path = root.join(LIST);
        if env::var_os("LEASEHOLD_BLESS").is_some() {
            fs::write(path, list).unwrap();
            return;
        }
        let committed = fs::read_to_string(path).unwrap_or_default();
        let only_in = |one: &str, other: &str| -> Vec<String> {
            let missing = |line: &&str| !other.lines().any(|others| others == *line);
            one.lines().filter(missing).map(str::to_owned).collect()
        };
        let (new, old) = (only_in(&list, &committed), only_in(&committed, &list));
        assert!(
            new.is_empty() && old.is_empty(),
            "{LIST} differs; `cargo xtask api --bless` writes it.\nnew: {new:#?}\nno longer there: {old:#?}"
        );
    }
}
