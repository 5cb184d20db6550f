//! A wall clock that a test can move, for one process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../shim/clock.c");

pub(crate) struct ClockShim {
    library: PathBuf,
    offset: PathBuf,
}

impl ClockShim {
    /// Compiles the shim into a directory.
    pub(crate) fn build(directory: &Path) -> Self {
        let shim = Self {
            library: compile(directory, "clock", SOURCE),
            offset: directory.join("clock.offset"),
        };
        shim.set(0);
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
        let bytes = fs::read(&self.offset).expect("the offset file");
        let offset = i64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        self.set(offset + delta_ms);
    }

    fn set(&self, offset_ms: i64) {
        use std::os::unix::fs::FileExt;

        // Not truncated on the way: the process has it mapped.
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.offset)
            .expect("the offset file");
        file.write_all_at(&offset_ms.to_ne_bytes(), 0)
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
