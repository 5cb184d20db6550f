//! The tests that depend on the server, on the servers of today.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::steps::Steps;
use crate::tasks::cargo_test;
use crate::tools::{cargo_line, output, root, run, target};
use crate::{faults, processes};

const NEEDS: &str = "\
Needs a C compiler, apt-get and dpkg (but not root), http://deb.debian.org, the package debian-archive-keyring, and 250 MB
in target/servers beside the build. Takes about 10 minutes on two idle cores after the build.";

/// The name of each server, its program, and the releases of Debian from which it is taken; the last one has it.
const SERVERS: [(&str, &str, &str); 4] = [
    ("redis-7.0", "redis", "bookworm"),
    ("redis-8.0", "redis", "trixie"),
    ("valkey-8.0", "valkey", "bookworm bookworm-backports"),
    ("valkey-8.1", "valkey", "trixie"),
];

const TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- \
                     conformance:: doctor:: --skip memory:: --skip sqlite::";

/// Runs the conformance suite, the tests of the doctor, and random faults of one server and many masters on each server.
pub(crate) fn test(steps: &mut Steps) {
    println!("{NEEDS}");
    processes::adopt_orphans();
    steps.run("build the tests", || {
        let build = "build --workspace --locked --tests --bin";
        run(cargo_line(build).arg(faults::PROGRAM))
    });
    if steps.failed() {
        return;
    }
    for (name, program, suites) in SERVERS {
        steps.run(name, || {
            let path = env::var_os("PATH").unwrap_or_default();
            let bin = unpack(&target().join("servers").join(name), program, suites)?;
            let version = output(Command::new(bin.join("redis-server")).arg("--version"))?;
            println!("{}", version.trim());
            let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path)));
            let path = path.map_err(|error| error.to_string())?;
            run(cargo_test(TESTS).env("PATH", &path))?;
            faults::short(&["--only", "random"], Some(&path))
        });
    }
    steps.run("no process is left running", processes::check_descendants);
}

/// Returns the directory with the `redis-server` of a server.
fn unpack(directory: &Path, program: &str, suites: &str) -> Result<PathBuf, String> {
    let bin = directory.join("bin");
    if !bin.join("redis-server").is_file() {
        fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut sh = Command::new("sh");
        sh.arg(root().join("xtask/src/unpack-server.sh"))
            .current_dir(directory);
        run(sh.env("PROGRAM", program).env("SUITES", suites))?;
    }
    Ok(bin)
}
