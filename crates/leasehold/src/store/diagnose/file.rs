//! Facts about a file.

/// A write-ahead log that is larger than this, in bytes, is not checkpointed: normally it is reset after 4 MB.
pub(crate) const LOG_MAX: u64 = 64 * 1024 * 1024;

/// The facts about a file.
#[cfg(feature = "doctor")]
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub(crate) path: std::path::PathBuf,
    /// Whether the file exists. If not, it will be created in its directory.
    pub(crate) exists: bool,
    /// Whether its directory exists. A store does not create it.
    pub(crate) directory_exists: bool,
    /// `None`: unknown.
    pub(crate) file_system: Option<FileSystem>,
    /// The permission bits. `None` where there are none.
    pub(crate) mode: Option<u32>,
    /// Whether this user may create files in its directory.
    pub(crate) directory_writable: bool,
    /// The number of bytes that this user may still write there.
    pub(crate) free: Option<u64>,
    /// The size of its write-ahead log in bytes, if there is one.
    pub(crate) log: Option<u64>,
    /// Whether the processes that have it open have another boot id than this one: they are in other containers.
    pub(crate) other_boot_id: bool,
    /// The facts that are missing, each with the reason.
    pub(crate) missing: Vec<String>,
    /// Why it cannot be opened.
    pub(crate) fault: Option<crate::Error>,
}

/// The kind of file system of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Other machines may also have it mounted.
    Network(&'static str),
    /// Unknown.
    Foreign(&'static str),
    /// It is lost when the machine stops.
    Memory,
    /// None of these.
    Local,
}
