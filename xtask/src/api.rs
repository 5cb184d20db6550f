//! `cargo xtask api`: the list of public items of the library.

use crate::tools::{cargo_line, run};

/// Runs the test that compares the list with the code, or writes it.
pub(crate) fn check(bless: bool) -> Result<(), String> {
    let mut test = cargo_line("test --package xtask --locked --test api");
    if bless {
        test.env("LEASEHOLD_BLESS", "1");
    }
    run(&mut test)
}
