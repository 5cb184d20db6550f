//! The servers that the tests start: found, or installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::packages::Package;
use crate::tools::{find, output};

const REDIS: Package = Package {
    name: "redis-server",
    program: "redis-server",
    by_hand: "install Redis 7 and put redis-server in PATH",
};

const POSTGRES: Package = Package {
    name: "postgresql",
    program: "postgres",
    by_hand: "install PostgreSQL and put initdb, postgres and psql in PATH",
};

/// Where Debian keeps the programs of PostgreSQL: a folder for each version, none of them in `PATH`.
const POSTGRES_VERSIONS: &str = "/usr/lib/postgresql";

/// Makes sure that there is a redis-server.
pub(crate) fn ensure_redis() -> Result<(), String> {
    let program = ensure(&REDIS, || find("redis-server"))?;
    tell_version(&program)
}

/// Makes sure that there is a PostgreSQL.
pub(crate) fn ensure_postgres() -> Result<(), String> {
    let program = ensure(&POSTGRES, postgres)?;
    tell_version(&program)
}

fn ensure(package: &Package, look: impl Fn() -> Option<PathBuf>) -> Result<PathBuf, String> {
    if let Some(program) = look() {
        return Ok(program);
    }
    package.install()?;
    let (name, program) = (package.name, package.program);
    look().ok_or_else(|| format!("the package {name} was installed but has no {program}"))
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

fn tell_version(program: &Path) -> Result<(), String> {
    let version = output(Command::new(program).arg("--version"))?;
    println!("{}", version.trim());
    Ok(())
}
