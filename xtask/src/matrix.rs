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
Needs what the tests need, Go 1.26 with a module proxy, apt-get and dpkg (but not root), http://deb.debian.org, the
package debian-archive-keyring, and 900 MB in target/servers beside the build. Takes about 15 minutes on two idle cores
after the build.";

/// Packages of Debian or modules of Go, and programs in them.
struct Server {
    name: &'static str,
    /// The script that makes the programs.
    script: &'static str,
    /// The releases of Debian from which they are taken; the last one has them.
    suites: &'static str,
    packages: &'static str,
    /// The names of the programs, and their paths.
    programs: &'static str,
}

const DEBIAN: &str = "unpack-server.sh";
const GO: &str = "build-server.sh";

/// The servers of Redis. The package of the server itself has only links to a program of the tools.
const REDIS: [Server; 4] = [
    Server {
        name: "redis-7.0",
        script: DEBIAN,
        suites: "bookworm",
        packages: "redis-tools",
        programs: "redis-server=usr/bin/redis-check-rdb",
    },
    Server {
        name: "redis-8.0",
        script: DEBIAN,
        suites: "trixie",
        packages: "redis-tools",
        programs: "redis-server=usr/bin/redis-check-rdb",
    },
    Server {
        name: "valkey-8.0",
        script: DEBIAN,
        suites: "bookworm bookworm-backports",
        packages: "valkey-tools",
        programs: "redis-server=usr/bin/valkey-check-rdb",
    },
    Server {
        name: "valkey-8.1",
        script: DEBIAN,
        suites: "trixie",
        packages: "valkey-tools",
        programs: "redis-server=usr/bin/valkey-check-rdb",
    },
];

const POSTGRES: Server = Server {
    name: "postgresql-17",
    script: DEBIAN,
    suites: "trixie",
    packages: "postgresql-17",
    programs: "initdb=usr/lib/postgresql/17/bin/initdb postgres=usr/lib/postgresql/17/bin/postgres \
               psql=usr/lib/postgresql/17/bin/psql pg_basebackup=usr/lib/postgresql/17/bin/pg_basebackup",
};

const PGBOUNCER: Server = Server {
    name: "pgbouncer",
    script: DEBIAN,
    suites: "trixie",
    packages: "pgbouncer",
    programs: "pgbouncer=usr/sbin/pgbouncer",
};

/// The server alone: the tests read the output of the etcdctl of the machine.
const ETCD: Server = Server {
    name: "etcd-3.6.16",
    script: GO,
    suites: "",
    packages: "go.etcd.io/etcd/server/v3@v3.6.16",
    programs: "etcd=go.etcd.io/etcd/server/v3",
};

const REDIS_TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- \
                           conformance:: doctor:: --skip memory:: --skip sqlite:: --skip postgres:: \
                           --skip databases:: --skip objects:: --skip etcd:: --skip zookeeper:: --skip clusters::";

const POSTGRES_TESTS: &str = "test --package leasehold --locked --no-fail-fast --test it -- \
                              postgres:: doctor::databases:: fence::held::";

const ETCD_TESTS: &str = "test --workspace --locked --no-fail-fast --test it -- \
                          etcd:: the_etcd_store doctor::clusters::";

/// The filters match modules inside another module, which are only those of the conformance suite.
const MEMBERS_TESTS: &str =
    "test --workspace --locked --no-fail-fast --test it -- ::etcd:: ::zookeeper::";

/// Runs the conformance suite, the tests of the doctor, and random faults of one server and many masters on each server of
/// Redis; the tests of PostgreSQL on another version, and behind a pooler of transactions; the tests and random faults of
/// etcd on another version; and the conformance suite on three members of etcd and of ZooKeeper.
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
    for server in &REDIS {
        steps.run(server.name, || {
            let path = server.path("redis-server")?;
            run(cargo_test(REDIS_TESTS).env("PATH", &path))?;
            faults::short(&["--only", "single,masters"], Some(&path))
        });
    }
    steps.run(POSTGRES.name, || {
        let path = POSTGRES.path("postgres")?;
        run(cargo_test(POSTGRES_TESTS).env("PATH", path))
    });
    for (name, listen) in [("pgbouncer", None), ("pgbouncer, ?listen=", Some("1"))] {
        steps.run(name, || {
            PGBOUNCER.path("pgbouncer")?;
            let mut test = cargo_test(POSTGRES_TESTS);
            test.env(
                "TESTKIT_PGBOUNCER",
                PGBOUNCER.directory().join("bin/pgbouncer"),
            );
            test.envs(listen.map(|listen| ("TESTKIT_LISTEN", listen)));
            run(&mut test)
        });
    }
    steps.run(ETCD.name, || {
        servers::ensure(&["etcd"])?;
        let path = ETCD.path("etcd")?;
        run(cargo_test(ETCD_TESTS).env("PATH", &path))?;
        faults::short(&["--only", "etcd"], Some(&path))
    });
    steps.run("three members of etcd and of ZooKeeper", || {
        servers::ensure(&["etcd", "zookeeper"])?;
        run(cargo_test(MEMBERS_TESTS).env("TESTKIT_MEMBERS", "3"))
    });
    steps.run("no process is left running", processes::check_descendants);
}

impl Server {
    fn directory(&self) -> PathBuf {
        target().join("servers").join(self.name)
    }

    /// The search path with its programs first, after they were made. Prints the version of one.
    fn path(&self, program: &str) -> Result<OsString, String> {
        let directory = self.directory();
        let bin = directory.join("bin");
        if !directory.join("complete").is_file() {
            fs::create_dir_all(&directory)
                .map_err(|error| format!("{}: {error}", directory.display()))?;
            let mut sh = Command::new("sh");
            sh.arg(root().join("xtask/src").join(self.script))
                .current_dir(&directory);
            sh.env("PACKAGES", self.packages);
            sh.env("PROGRAMS", self.programs);
            run(sh.env("SUITES", self.suites))?;
        }
        let version = output(Command::new(bin.join(program)).arg("--version"))?;
        println!("{}", version.trim());
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([bin].into_iter().chain(env::split_paths(&path)));
        path.map_err(|error| error.to_string())
    }
}
