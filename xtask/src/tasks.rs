//! What each task consists of.

use std::process::ExitCode;
use std::{env, fs};

use crate::metadata::Metadata;
use crate::steps::Steps;
use crate::tools::{cargo, find, root, run as run_program};
use crate::{advisories, dependencies, faults, licences, processes, servers, tidy};

/// Runs a task. `None` if there is no such task.
pub(crate) fn run(task: &str) -> Option<ExitCode> {
    let mut steps = Steps::default();
    match task {
        "test" => test(&mut steps),
        "ci" => {
            test(&mut steps);
            lint(&mut steps);
            check_licences(&mut steps);
            check_dependencies(&mut steps);
            steps.run("advisories", advisories::check);
        }
        "lint" => lint(&mut steps),
        "licences" => check_licences(&mut steps),
        "dependencies" => check_dependencies(&mut steps),
        "advisories" => steps.run("advisories", advisories::check),
        "tidy" => steps.run("tidy files", || tidy::check(root())),
        _ => return None,
    }
    Some(steps.finish())
}

/// How many tests of a program run at once: most wait for servers and clocks, and hardly compute.
const TEST_THREADS: &str = "6";

/// Every test there is. The tidy rules are among them.
fn test(steps: &mut Steps) {
    processes::adopt();
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
        run_program(cargo().args(["test", "--workspace", "--locked", "--no-run"]))
    });
    if steps.failed() {
        return;
    }
    steps.run("tests", || {
        let tests = ["--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
        let mut cargo = cargo();
        if env::var_os("RUST_TEST_THREADS").is_none() {
            cargo.env("RUST_TEST_THREADS", TEST_THREADS);
        }
        run_program(cargo.args(["test", "--workspace", "--locked"]).args(tests))
    });
    steps.run("models of the driver", || {
        let models = ["--features", "__shuttle", "--lib", "model"];
        let package = ["test", "--package", "leasehold", "--locked"];
        run_program(cargo().args(package).args(models))
    });
    steps.run("random faults, the short form", faults::short);
    steps.run(
        "faults of the watchdog, the short form",
        faults::short_watchdog,
    );
    steps.run("examples in the documentation", || {
        run_program(cargo().args(["test", "--workspace", "--locked", "--doc"]))
    });
    steps.run("no process is left", processes::none_left);
}

fn lint(steps: &mut Steps) {
    const FUZZ: [&str; 2] = ["--manifest-path", "fuzz/Cargo.toml"];
    steps.run("formatting", || {
        run_program(cargo().args(["fmt", "--all", "--check"]))?;
        run_program(cargo().arg("fmt").args(FUZZ).arg("--check"))
    });
    steps.run("clippy", || {
        let all = ["clippy", "--workspace", "--all-targets", "--locked"];
        run_program(cargo().args(all).args(["--", "-D", "warnings"]))
    });
    steps.run("documentation", || {
        // The program has the name of the library, so their pages cannot be made at once.
        for what in [
            &["--workspace", "--exclude", "leasehold-cli"][..],
            &["--package", "leasehold-cli"],
        ] {
            let mut doc = cargo();
            doc.env("RUSTDOCFLAGS", "-Dwarnings").arg("doc").args(what);
            run_program(doc.args(["--no-deps", "--document-private-items", "--locked"]))?;
        }
        Ok(())
    });
    steps.run("fuzz targets", || {
        if find("c++").is_none() {
            println!("WARNING: c++ is missing, so the fuzz targets were not compiled");
            return Ok(());
        }
        // They have a workspace of their own, but no versions of their own.
        let copied = fs::copy(root().join("Cargo.lock"), root().join("fuzz/Cargo.lock"));
        copied.map_err(|error| format!("fuzz/Cargo.lock: {error}"))?;
        let target = ["--target-dir", "target"];
        run_program(cargo().arg("check").args(FUZZ).args(target))
    });
}

fn check_licences(steps: &mut Steps) {
    steps.run("licences", || licences::check(&Metadata::load()?, root()));
}

fn check_dependencies(steps: &mut Steps) {
    steps.run("dependencies", || dependencies::check(&Metadata::load()?));
}
