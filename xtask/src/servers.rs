//! The servers that the tests start. Missing ones are installed with apt-get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::tools::{find, output, run, target};

/// Where Debian keeps the programs of PostgreSQL: a directory for each version, none of them in `PATH`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Installs redis-server if it is missing.
pub(crate) fn ensure_redis() -> Result<(), String> {
    ensure("redis-server", "redis-server", || find("redis-server"))
}

/// Installs PostgreSQL if it is missing.
pub(crate) fn ensure_postgres() -> Result<(), String> {
    ensure("postgresql", "postgresql", postgres)
}

/// Installs etcd and its client if one is missing.
pub(crate) fn ensure_etcd() -> Result<(), String> {
    let both = || find("etcd").filter(|_| find("etcdctl").is_some());
    ensure("etcd-server etcd-client", "etcd", both)
}

/// The S3 server of the tests, and what it is built on.
const MOTO: &str = "moto[s3]==5.2.1 werkzeug==3.1.8 flask==3.1.3 flask-cors==6.0.1";

/// Installs the S3 server if it is missing, beside the build. Takes python3 with venv, and PyPI.
pub(crate) fn ensure_s3() -> Result<(), String> {
    let directory = target().join("moto");
    let complete = directory.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|installed| installed == MOTO) {
        return Ok(());
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(&directory))?;
    let mut pip = Command::new(directory.join("bin/python"));
    run(pip
        .args(["-m", "pip", "--quiet", "install", "--no-compile"])
        .args(MOTO.split(' ')))?;
    fs::write(&complete, MOTO).map_err(|error| format!("{}: {error}", complete.display()))
}

/// The credentials for it. It accepts any.
pub(crate) const S3_CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "testkit"),
    ("AWS_SECRET_ACCESS_KEY", "testkit-secret"),
];

/// The archives of ZooKeeper, each with its SHA-256, and where they are.
const ZOOKEEPER: &str = include_str!("zookeeper.txt");
const ARCHIVES: &str = "https://repo1.maven.org/maven2";

/// Fetches ZooKeeper, and installs a Java to run it, unless they are there.
pub(crate) fn ensure_zookeeper() -> Result<(), String> {
    ensure("default-jre-headless", "", || find("java"))?;
    let directory = target().join("zookeeper");
    let complete = directory.join("complete");
    if fs::read_to_string(&complete).is_ok_and(|fetched| fetched == ZOOKEEPER) {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(&directory).map_err(failed)?;
    let mut sums = String::new();
    for line in ZOOKEEPER.lines() {
        let (sum, path) = line.split_once(' ').unwrap_or_default();
        let file = path.rsplit('/').next().unwrap_or(path);
        sums.push_str(&format!("{sum}  {file}\n"));
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--fail",
            "--retry",
            "5",
            "--output",
        ]);
        run(curl
            .arg(directory.join(file))
            .arg(format!("{ARCHIVES}/{path}")))?;
    }
    fs::write(directory.join("sums"), sums).map_err(failed)?;
    let mut check = Command::new("sha256sum");
    run(check
        .args(["--check", "--quiet", "sums"])
        .current_dir(&directory))?;
    fs::write(&complete, ZOOKEEPER).map_err(failed)
}

/// Installs packages, and stops their service, unless their program is there.
fn ensure(
    package: &str,
    service: &str,
    locate: impl Fn() -> Option<PathBuf>,
) -> Result<(), String> {
    if locate().is_none() {
        install(package, service)?;
    }
    let program = locate().ok_or_else(|| format!("the package {package} has no program"))?;
    let version = output(Command::new(program).arg("--version"))?;
    println!("{}", version.trim());
    Ok(())
}

fn postgres() -> Option<PathBuf> {
    let versions = fs::read_dir(Path::new(POSTGRES_VERSIONS)).into_iter();
    let programs = versions
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin/postgres"));
    let installed = programs.filter(|program| program.is_file()).max();
    installed.or_else(|| find("postgres").filter(|_| find("initdb").is_some()))
}

/// Installs packages, and stops their service: the tests start servers of their own.
fn install(package: &str, service: &str) -> Result<(), String> {
    let root = geteuid().is_root();
    let sudo = || output(Command::new("sudo").args(["-n", "true"])).is_ok();
    if find("apt-get").is_none() || !(root || sudo()) {
        return Err(format!(
            "{package} is missing, and installing it takes apt-get, and root or sudo without a password; install \
             Redis 7, PostgreSQL and etcd 3.4, and put redis-server, initdb, postgres, psql, etcd and etcdctl in PATH"
        ));
    }
    let prefix = if root { "" } else { "sudo -n " };
    let as_root = |line: &str| {
        let line = format!("{prefix}env DEBIAN_FRONTEND=noninteractive {line}");
        let mut words = line.split(' ');
        run(Command::new(words.next().unwrap_or_default()).args(words))
    };
    as_root("apt-get -q update")?;
    as_root(&format!(
        "apt-get -q install -y --no-install-recommends {package}"
    ))?;
    if service.is_empty() {
        return Ok(());
    }
    let stopped = match Path::new("/run/systemd/system").exists() {
        true => as_root(&format!("systemctl disable --now {service}")),
        false => as_root(&format!("service {service} stop")),
    };
    if let Err(error) = stopped {
        println!("WARNING: the service of the package may be running: {error}");
    }
    Ok(())
}
