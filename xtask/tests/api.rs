//! The list of public items of the library. `cargo xtask api` runs it, and not every test run: it needs the compiler of
//! the gate, whose description of the items it reads, and compiles all dependencies again.

// In a test a panic is the answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unreachable_pub)]
#[path = "../src/tools.rs"]
mod tools;

use std::process::Command;
use std::{env, fs};

use crate::tools::{cargo, root, target};

const LIST: &str = "crates/leasehold/public-api.txt";

#[test]
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
    let new = target.join("public-api.txt");
    fs::write(&new, list).unwrap();
    let diff = Command::new("diff").arg(path).arg(new).status();
    assert!(
        diff.unwrap().success(),
        "{LIST} differs; `cargo xtask api --bless` writes it"
    );
}
