//! Temporary directories.

use tempfile::TempDir;

/// A directory in memory, where the system has one for that. Other processes may keep a disk busy for longer than a store
/// may take to reply.
///
/// # Panics
///
/// If no directory can be made.
#[must_use]
pub fn temp_dir() -> TempDir {
    let memory = TempDir::new_in("/dev/shm");
    memory
        .or_else(|_| TempDir::new())
        .expect("a temporary directory")
}
