//! A wall clock that a test can move, for one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

const SOURCE: &str = include_str!("../shim/clock.c");

/// The places of the numbers in its file.
const OFFSET: u64 = 0;
const SLOWNESS: u64 = 1;
const SINCE: u64 = 2;

pub(crate) struct ClockShim {
    _directory: TempDir,
    library: PathBuf,
    offset: PathBuf,
}

impl ClockShim {
    /// Compiles the shim on a disk: the system may not allow a library to be loaded from memory.
    pub(crate) fn build() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        let shim = Self {
            library: compile(path, "clock", SOURCE),
            offset: path.join("clock.offset"),
            _directory: directory,
        };
        for number in [OFFSET, SINCE, SLOWNESS] {
            shim.set(number, 0);
        }
        shim
    }

    /// The variables of the process.
    pub(crate) fn env(&self) -> [(&str, &Path); 2] {
        [
            ("LD_PRELOAD", &self.library),
            ("CLOCK_OFFSET_FILE", &self.offset),
        ]
    }

    /// Moves the clock by so many milliseconds.
    pub(crate) fn step(&self, delta_ms: i64) {
        let numbers = fs::read(&self.offset).expect("the offset file");
        let offset = numbers.first_chunk().copied().expect("eight bytes");
        self.set(OFFSET, i64::from_ne_bytes(offset) + delta_ms);
    }

    /// Lets the clock run a thousand times slower from now on.
    pub(crate) fn slow_down(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("a time after 1970").as_nanos();
        self.set(SINCE, now.try_into().expect("a time before 2262"));
        self.set(SLOWNESS, 1_000);
    }

    fn set(&self, nth: u64, number: i64) {
        use std::os::unix::fs::FileExt;

        // Not truncated on the way: the process has it mapped.
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.offset)
            .expect("the offset file");
        file.write_all_at(&number.to_ne_bytes(), nth * 8)
            .expect("the offset file");
    }
}

/// Compiles a shim into a directory, and returns the library.
pub(crate) fn compile(directory: &Path, name: &str, source: &str) -> PathBuf {
    let [file, library] = ["c", "so"].map(|suffix| directory.join(format!("{name}.{suffix}")));
    fs::write(&file, source).expect("the shim's source");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
        .args([&library, &file])
        .status()
        .expect("cc is missing; install a C compiler");
    assert!(status.success(), "the {name} shim does not compile");
    library
}
