//! What the tests need beside servers: a compiler and room for what it writes.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use rustix::fs::statvfs;

use crate::tools::{output, root, target};

/// The compiler of the gate, which cargo requires for this package. The published crates compile with an older one.
const RUST: &str = env!("CARGO_PKG_RUST_VERSION");

/// What the directory of compiled crates needs: 4 GB after a run on Linux, and a fifth for other linkers.
const GIGABYTES: u64 = 5;

/// How long a run takes on two cores that do nothing else, with the build.
const MINUTES: u32 = 12;

/// Prints what the tests need and how long they take. Fails if the room is too small.
pub(crate) fn check() -> Result<(), String> {
    println!(
        "All tests take about {MINUTES} minutes on two idle cores, with the build. They need Rust {RUST}, a C compiler, \
         redis-server 7, PostgreSQL, etcd, Java, curl with repo1.maven.org, python3 with venv and PyPI, and {GIGABYTES} GB in {}.",
        target().display()
    );
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = output(Command::new(rustc).arg("--version"))?;
    println!("{}", version.trim());
    let directory = if target().is_dir() {
        target()
    } else {
        root().into()
    };
    let disk = statvfs(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let free = disk.f_bavail * disk.f_frsize;
    let room = free + size(&target());
    if room < GIGABYTES * 1_000_000_000 {
        return Err(format!(
            "the tests need {GIGABYTES} GB in {}, and {} MB are free there; free some, or set CARGO_TARGET_DIR to a \
             directory on another disk",
            target().display(),
            free / 1_000_000
        ));
    }
    Ok(())
}

/// How many bytes the files of a directory have.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_directory_is_that_of_its_files() {
        let directory = env::temp_dir().join(format!("leasehold-size-{}", std::process::id()));
        let inner = directory.join("inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(directory.join("a"), [0; 10]).unwrap();
        fs::write(inner.join("b"), [0; 20]).unwrap();
        let found = size(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!((found, size(&directory)), (30, 0));
    }
}
