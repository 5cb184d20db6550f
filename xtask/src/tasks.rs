//! What each task consists of.

use std::env;
use std::process::ExitCode;

use crate::steps::Steps;
use crate::tools::{cargo, find, run as run_program};
use crate::{dependencies, faults, processes, servers};

/// How many tests of a program run at once. Most wait for servers and clocks, and hardly compute.
const TEST_THREADS: &str = "6";

/// All of the workspace, with its tests. Every step that compiles asks for this, in one way or another, so that
/// cargo resolves the same features each time, and compiles each dependency only once.
const WORKSPACE: [&str; 2] = ["--workspace", "--locked"];

/// Runs the steps of a task, and prints their durations.
pub(crate) fn run(task: fn(&mut Steps)) -> ExitCode {
    let mut steps = Steps::default();
    task(&mut steps);
    steps.finish()
}

/// Runs every test. The rules of `tidy` and the list of public items are tests of this crate.
pub(crate) fn test(steps: &mut Steps) {
    processes::adopt_orphans();
    steps.run("servers and a C compiler", || {
        servers::ensure_redis()?;
        servers::ensure_postgres()?;
        match find("cc") {
            Some(_) => Ok(()),
            None => Err("cc is missing; install a C compiler".into()),
        }
    });
    if steps.failed() {
        return;
    }
    steps.run("build the tests", || {
        let targets = ["--lib", "--tests", "--examples"];
        let programs = ["--bin", "leasehold", "--bin", faults::PROGRAM];
        run_program(
            cargo()
                .arg("build")
                .args(WORKSPACE)
                .args(targets)
                .args(programs),
        )
    });
    if steps.failed() {
        return;
    }
    steps.run("tests", || {
        let targets = ["--lib", "--bins", "--tests", "--examples"];
        let mut cargo = cargo();
        if env::var_os("RUST_TEST_THREADS").is_none() {
            cargo.env("RUST_TEST_THREADS", TEST_THREADS);
        }
        cargo.arg("test").args(WORKSPACE).args(targets);
        run_program(cargo.arg("--no-fail-fast"))
    });
    steps.run("models of the driver", || {
        // The second package has no library and so no tests here: it is named for the features of dependencies.
        let packages = ["--package", "leasehold", "--package", "leasehold-cli"];
        let models = ["--features", "leasehold/__shuttle", "--lib", "model"];
        run_program(
            cargo()
                .args(["test", "--locked"])
                .args(packages)
                .args(models),
        )
    });
    steps.run("random faults, the short form", faults::short);
    steps.run(
        "faults of the watchdog, the short form",
        faults::short_watchdog,
    );
    steps.run("examples in the documentation", || {
        run_program(cargo().arg("test").args(WORKSPACE).arg("--doc"))
    });
    steps.run("no process is left running", processes::check_descendants);
}

/// Runs everything that a change must pass.
pub(crate) fn ci(steps: &mut Steps) {
    test(steps);
    lint(steps);
    dependencies(steps);
}

/// Checks the text of the program without running it.
pub(crate) fn lint(steps: &mut Steps) {
    steps.run("formatting", || {
        run_program(cargo().args(["fmt", "--all", "--check"]))
    });
    steps.run("clippy", || {
        let mut clippy = cargo();
        // The fuzz targets are only checked, so the fuzzer that they link need not be compiled.
        clippy
            .env("CUSTOM_LIBFUZZER_PATH", "libfuzzer.a")
            .arg("clippy");
        run_program(
            clippy
                .args(WORKSPACE)
                .args(["--all-targets", "--", "-D", "warnings"]),
        )
    });
    steps.run("documentation", || {
        // The program has the name of the library, so their pages cannot be written at once.
        for targets in [&["--lib", "--examples"][..], &["--bins", "--examples"]] {
            let mut doc = cargo();
            doc.env("CUSTOM_LIBFUZZER_PATH", "libfuzzer.a")
                .env("RUSTDOCFLAGS", "-Dwarnings");
            doc.arg("doc").args(WORKSPACE).args(targets);
            run_program(doc.args(["--no-deps", "--document-private-items"]))?;
        }
        Ok(())
    });
}

/// Checks what the shipped crates are built from.
pub(crate) fn dependencies(steps: &mut Steps) {
    steps.run("dependencies", dependencies::check);
    steps.run("licences and advisories", dependencies::deny);
}
