//! The steps of each task.
//!
//! Cargo chooses the features of dependencies for all selected packages together, and those that tests need only if the
//! command selects tests or examples. All commands here select the workspace with one of them, so that no dependency is
//! compiled a second time with other features. The exception is the check of the library without its features.

use std::env;
use std::process::{Command, ExitCode};
use std::thread;

use crate::background::{self, BackgroundChecks};
use crate::steps::Steps;
use crate::tools::{cargo_line, find, run};
use crate::{api, dependencies, faults, processes, requirements, servers};

/// How many tests of a program run at once. Most wait for servers and clocks, and hardly compute.
const TEST_THREADS: &str = "12";

/// Runs the steps of a task, and prints their durations.
pub(crate) fn start(task: fn(&mut Steps)) -> ExitCode {
    let mut steps = Steps::start();
    task(&mut steps);
    steps.finish()
}

/// Does so with low priority.
pub(crate) fn start_behind(task: fn(&mut Steps)) -> ExitCode {
    background::lower_priority();
    start(task)
}

/// Runs every test. The rules of `tidy` are tests of this crate.
pub(crate) fn test(steps: &mut Steps) {
    test_beside(steps, "few-checks");
}

/// Runs everything that a change must pass.
pub(crate) fn ci(steps: &mut Steps) {
    test_beside(steps, "checks");
}

/// Runs the tests. They wait for servers and clocks at times; the checks of a task compute meanwhile.
fn test_beside(steps: &mut Steps, task: &str) {
    processes::adopt_orphans();
    build_tests(steps);
    let checks = BackgroundChecks::start(task);
    if !steps.failed() {
        run_tests(steps);
    }
    steps.run("checks in the background", || checks?.finish());
    steps.run("no process is left running", processes::check_descendants);
}

/// Runs those checks of `test` that start no server.
pub(crate) fn few_checks(steps: &mut Steps) {
    // The first one leaves the directory of compiled crates to the tests, which check it when they start.
    dependencies(steps);
    driver_models(steps);
}

/// Runs those of `ci`.
pub(crate) fn checks(steps: &mut Steps) {
    dependencies(steps);
    lint(steps);
    steps.run("public items", || api::check(false));
    driver_models(steps);
}

/// Builds the programs of the tests. Their servers are installed meanwhile.
fn build_tests(steps: &mut Steps) {
    steps.run("compiler and room", || {
        requirements::check()?;
        match find("cc") {
            Some(_) => Ok(()),
            None => Err("cc is missing; install a C compiler".into()),
        }
    });
    if steps.failed() {
        return;
    }
    steps.run("build the tests, install their servers", || {
        thread::scope(|scope| {
            let servers = ["redis", "postgres", "etcd", "zookeeper", "s3"];
            let installed = scope.spawn(move || servers::ensure(&servers));
            let build = "build --workspace --locked --tests --examples --bin";
            run(cargo_line(build).arg(faults::PROGRAM))?;
            installed
                .join()
                .unwrap_or_else(|_| Err("the installation panicked".into()))
        })
    });
}

fn run_tests(steps: &mut Steps) {
    steps.run("tests", || {
        run(&mut cargo_test("test --workspace --locked --no-fail-fast"))
    });
    steps.run("faults, the short form", || faults::short(&[], None));
}

/// A command of cargo that runs tests.
pub(crate) fn cargo_test(line: &str) -> Command {
    let mut test = cargo_line(line);
    test.envs(servers::BUCKET_CREDENTIALS);
    if env::var_os("RUST_TEST_THREADS").is_none() {
        test.env("RUST_TEST_THREADS", TEST_THREADS);
    }
    test
}

/// Runs the driver under a model checker.
fn driver_models(steps: &mut Steps) {
    steps.run("models of the driver", || {
        // Only the first package has a library. The others are selected for the features of dependencies.
        let packages =
            "-p leasehold -p leasehold-bench -p leasehold-cli -p leasehold-fuzz -p xtask";
        let models = "--lib --features leasehold/__shuttle shuttle";
        run(&mut cargo_line(&format!(
            "test --locked {packages} {models}"
        )))
    });
}

/// Checks the text of the program without running it.
pub(crate) fn lint(steps: &mut Steps) {
    steps.run("formatting", || run(&mut cargo_line("fmt --all --check")));
    steps.run("clippy", || {
        let mut clippy = cargo_line("clippy --workspace --locked --all-targets -- -D warnings");
        run(without_fuzzer(&mut clippy))
    });
    steps.run("clippy, the library without features", || {
        let clippy = "clippy -p leasehold --lib --no-default-features --locked -- -D warnings";
        run(&mut cargo_line(clippy))
    });
    steps.run("documentation", || {
        // The program has the name of the library, and one of them overwrites the pages of the other: only the warnings
        // matter here.
        let mut doc = cargo_line("doc --workspace --locked --lib --bins --examples --no-deps");
        doc.arg("--document-private-items")
            .env("RUSTDOCFLAGS", "-Dwarnings");
        run(without_fuzzer(&mut doc))
    });
}

/// The fuzz targets are not linked here, so the fuzzer need not be compiled.
fn without_fuzzer(cargo: &mut Command) -> &mut Command {
    cargo.env("CUSTOM_LIBFUZZER_PATH", "target/libfuzzer.a")
}

/// Checks what the library and its core are built from.
pub(crate) fn dependencies(steps: &mut Steps) {
    steps.run("dependencies", dependencies::check);
}
