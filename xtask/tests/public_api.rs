//! The public items of the library are those in `crates/leasehold/public-api.txt`.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

const LIST: &str = "crates/leasehold/public-api.txt";

#[test]
fn the_public_items_of_the_library_are_in_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), |target| root.join(target));
    // Packages without a library, and examples: with them, dependencies have the features that clippy compiles.
    let mut packages = vec!["--lib", "--examples", "--package", "leasehold"];
    for package in ["leasehold-cli", "leasehold-fuzz", "xtask"] {
        packages.extend(["--package", package]);
    }
    let mut cargo = Command::new(env!("CARGO"));
    // Build scripts that read the variables of a package would run again for those of this test.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&*name);
        }
    }
    let status = cargo
        .current_dir(root)
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
    let missing = |from: &str, line: &&str| !from.lines().any(|other| other == *line);
    let new: Vec<_> = list
        .lines()
        .filter(|line| missing(&committed, line))
        .collect();
    let old: Vec<_> = committed
        .lines()
        .filter(|line| missing(&list, line))
        .collect();
    assert!(
        new.is_empty() && old.is_empty(),
        "{LIST} differs; `cargo xtask api --bless` writes it.\nnew: {new:#?}\nno longer there: {old:#?}"
    );
}
