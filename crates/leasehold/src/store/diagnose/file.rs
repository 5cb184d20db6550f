//! What was seen of a file.

use std::path::PathBuf;

use crate::Error;

/// A log of SQLite's that is larger than this, in bytes, is not written back: it is started over after 4 MB.
pub(crate) const LOG_MAX: u64 = 64 * 1024 * 1024;

/// What was seen of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub(crate) path: PathBuf,
    /// The file, or the folder in which it will be made.
    pub(crate) exists: bool,
    pub(crate) file_system: FileSystem,
    /// The lowest nine bits say who may do what. `None` where there are no such.
    pub(crate) mode: Option<u32>,
    /// Whether this user may make files in its folder.
    pub(crate) folder_writable: bool,
    /// How many bytes this user may still write there.
    pub(crate) free: Option<u64>,
    /// How many bytes its log has, if it has one.
    pub(crate) log: Option<u64>,
    /// Whether those who have it open run under another boot id than this process: in other containers.
    pub(crate) other_boot_id: bool,
    /// Why it cannot be opened.
    pub(crate) fault: Option<Error>,
}

/// What kind of file system a file is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Others may have it mounted, too.
    Network(&'static str),
    /// It may be anything.
    Foreign(&'static str),
    /// It ends with the machine.
    Memory,
    /// None of these.
    Local,
}
