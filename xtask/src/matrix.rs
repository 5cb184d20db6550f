//! The tests that depend on the server, on the servers of today.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::steps::Steps;
use crate::tasks::cargo_test;
use crate::tools::{cargo_line, output, root, run, target};
use crate::{faults, processes, servers};

const NEEDS: &str = "\
Needs what the tests need, Go 1.26 with a module proxy, npm with a registry, apt-get and dpkg (but not root),
http://deb.debian.org, the package debian-archive-keyring, and 1.8 GB in target/servers beside the build and the caches
of Go and npm. Takes about 20 minutes on two idle cores after the builds.";

/// The servers, by their names in `matrix-server.sh`, which makes their programs, with the tests that they cannot pass:
/// Redis 8.0.2 ends with a failed assertion when it reloads its data beside a client with tracking.
const REDIS: [(&str, &str); 4] = [
    ("redis-7.0", ""),
    (
        "redis-8.0",
        "--skip a_server_that_loads_its_data_is_waited_for",
    ),
    ("valkey-8.0", ""),
    ("valkey-8.1", ""),
];
const POSTGRES: [&str; 2] = ["postgresql-17", "postgresql-18"];
const PGBOUNCER: &str = "pgbouncer";
const ETCD: &str = "etcd-3.6.16";
/// With the names of their programs.
const BUCKETS: [(&str, &str); 2] = [
    ("seaweedfs-4.53", "weed"),
    ("azurite-3.37.0", "azurite-blob"),
];

const REDIS_TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- \
                           conformance:: doctor:: redis::faults redis::transient redis::losses redis::grants \
                           redis::replicas redis::rights --skip memory:: --skip sqlite:: --skip postgres:: \
                           --skip databases:: --skip objects:: --skip etcd:: --skip zookeeper:: --skip clusters::";

const POSTGRES_TESTS: &str = "test --package leasehold --locked --no-fail-fast --test it -- \
                              postgres:: doctor::databases:: fence::held::";

/// A pooler has errors of its own, and a finding of the doctor.
const POOLED_SKIPS: &str = "--skip settings_that_lose_locks --skip what_is_wrong_is_one_clear_error \
                            --skip a_server_that_is_gone_is_a_certain_failure --skip with_a_password_from_the_url";

/// Without a connection beside the pooler, waiters poll, and a loss is noticed at the next renewal.
const POLLING_TESTS: &str = "test --package leasehold --locked --no-fail-fast --test it -- \
                             conformance::postgres:: in_one_record::postgres:: fence::held:: \
                             postgres::transactions:: --skip a_revocation_makes_the_holder_lost \
                             --skip waiters_are_described_in_their_order";

const ETCD_TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- \
                          etcd:: the_etcd_store doctor::clusters::";

const OBJECTS_TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- objects::";

/// The filters match modules inside another module, which are only those of the conformance suite.
const MEMBERS_TESTS: &str =
    "test --workspace --locked --no-fail-fast --test it -- ::etcd:: ::zookeeper::";

/// Runs the conformance suite, the tests of the doctor and of faults, and random faults of one server and many masters on
/// each server of Redis; the tests of PostgreSQL on other versions, and behind a pooler of transactions; the tests and
/// random faults of etcd on another version; those of buckets on other servers; and the conformance suite on three members
/// of etcd and of ZooKeeper.
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
    for (server, skips) in REDIS {
        steps.run(server, || {
            let path = path(server, "redis-server")?;
            let tests = format!("{REDIS_TESTS} {skips}");
            run(cargo_test(&tests).env("PATH", &path))?;
            faults::short(
                &["--only", "single,masters"],
                Some(("PATH", path.as_os_str())),
            )
        });
    }
    for server in POSTGRES {
        steps.run(server, || {
            let path = path(server, "postgres")?;
            run(cargo_test(POSTGRES_TESTS).env("PATH", path))
        });
    }
    let pooled_tests = format!("{POSTGRES_TESTS} {POOLED_SKIPS}");
    for (name, tests, listen) in [
        ("pgbouncer", POLLING_TESTS, None),
        ("pgbouncer, ?listen=", &pooled_tests, Some("1")),
    ] {
        steps.run(name, || {
            path(PGBOUNCER, "pgbouncer")?;
            let program = bin(PGBOUNCER)?.join("pgbouncer");
            let mut test = cargo_test(tests);
            test.env("TESTKIT_PGBOUNCER", program);
            test.envs(listen.map(|listen| ("TESTKIT_LISTEN", listen)));
            run(&mut test)
        });
    }
    steps.run(ETCD, || {
        servers::ensure(&["etcd"])?;
        let path = path(ETCD, "etcd")?;
        run(cargo_test(ETCD_TESTS).env("PATH", &path))?;
        faults::short(&["--only", "etcd"], Some(("PATH", path.as_os_str())))
    });
    for (server, program) in BUCKETS {
        steps.run(server, || {
            let program = bin(server)?.join(program);
            run(cargo_test(OBJECTS_TESTS).env("TESTKIT_BUCKETS", &program))?;
            let variable = ("TESTKIT_BUCKETS", program.as_os_str());
            faults::short(&["--only", "bucket"], Some(variable))
        });
    }
    steps.run("three members of etcd and of ZooKeeper", || {
        servers::ensure(&["etcd", "zookeeper"])?;
        run(cargo_test(MEMBERS_TESTS).env("TESTKIT_MEMBERS", "3"))
    });
    steps.run("no process is left running", processes::check_descendants);
}

/// The directory of the programs of a server, after they were made.
fn bin(server: &str) -> Result<PathBuf, String> {
    let directory = target().join("servers").join(server);
    if !directory.join("complete").is_file() {
        fs::create_dir_all(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let mut script = Command::new("sh");
        script.arg(root().join("xtask/src/matrix-server.sh"));
        run(script.arg(server).current_dir(&directory))?;
    }
    Ok(directory.join("bin"))
}

/// The search path with the programs of a server first. Prints the version of one.
fn path(server: &str, program: &str) -> Result<OsString, String> {
    let bin = bin(server)?;
    let version = output(Command::new(bin.join(program)).arg("--version"))?;
    println!("{}", version.trim());
    let path = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path)));
    path.map_err(|error| error.to_string())
}
