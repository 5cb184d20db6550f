//! The servers that the tests start. Missing ones are installed with apt-get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use crate::tools::{find, output, run};

/// Where Debian keeps the programs of PostgreSQL: a directory for each version, none of them in `PATH`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Installs redis-server if it is missing.
pub(crate) fn ensure_redis() -> Result<(), String> {
    ensure("redis-server", || find("redis-server"))
}

/// Installs PostgreSQL if it is missing.
pub(crate) fn ensure_postgres() -> Result<(), String> {
    ensure("postgresql", postgres)
}

/// Installs a package, unless its program is there. The service of the package has the same name.
fn ensure(package: &str, locate: impl Fn() -> Option<PathBuf>) -> Result<(), String> {
    if locate().is_none() {
        install(package)?;
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

/// Installs a package, and stops its service: the tests start servers of their own.
fn install(package: &str) -> Result<(), String> {
    let root = geteuid().is_root();
    let sudo = || output(Command::new("sudo").args(["-n", "true"])).is_ok();
    if find("apt-get").is_none() || !(root || sudo()) {
        return Err(format!(
            "{package} is missing, and installing it takes apt-get, and root or sudo without a password; install \
             Redis 7 and PostgreSQL, and put redis-server, initdb, postgres and psql in PATH"
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
    let stopped = match Path::new("/run/systemd/system").exists() {
        true => as_root(&format!("systemctl disable --now {package}")),
        false => as_root(&format!("service {package} stop")),
    };
    if let Err(error) = stopped {
        println!("WARNING: the service of the package may be running: {error}");
    }
    Ok(())
}
