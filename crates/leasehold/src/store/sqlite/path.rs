//! The path of the file, and its preparation for opening.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ffi;

use super::error::{Fault, failure, of_system};
use crate::error::invalid;
use crate::store::diagnose::FileSystem;
use crate::{Error, Result};

/// The absolute path in a `sqlite:` URL. Nothing is decoded or expanded.
pub(super) fn parse(url: &str) -> Result<PathBuf> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = match path.strip_prefix("//") {
        Some(path) if !path.is_empty() && !Path::new(path).is_absolute() => {
            return Err(invalid(
                "sqlite:// must be followed by an absolute path; write sqlite:PATH for a relative one",
            ));
        }
        Some(path) => path,
        None => path,
    };
    if path.is_empty() {
        return Err(invalid("the URL names no file; write sqlite:PATH"));
    }
    if path == "~" || path.starts_with("~/") {
        return Err(invalid(
            "~ is not expanded in a store URL; write the whole path of the file",
        ));
    }
    absolute(Path::new(path))
}

/// The path from the root: the file is opened again if it was replaced, and the program may have
/// changed its directory by then.
pub(super) fn absolute(path: &Path) -> Result<PathBuf> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(invalid("the path of the file must not contain a zero byte"));
    }
    std::path::absolute(path)
        .map_err(|error| invalid("the path of the file cannot be made absolute").with_source(error))
}

/// Creates an empty file if it is missing, accessible to this user only, and refuses what cannot be a store.
///
/// An existing file is not opened here: by POSIX, closing it would drop the locks that another connection of
/// this process has on it. For the same reason the caller opens one store at a time.
///
/// If another process is creating a file in the directory, the fault is busy.
pub(super) fn prepare(path: &Path) -> Result<(), Fault> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => {
            return Err(invalid("it is a directory; name a file in it").into());
        }
        Ok(meta) if !meta.is_file() => {
            return Err(invalid("it is not a regular file; choose another path").into());
        }
        Ok(meta) => refuse_second_name(path, &meta)?,
        Err(_) => {
            check_directory(path)?;
            create_file(path)?;
        }
    }
    refuse_network(path).map_err(Fault::from)
}

/// The path of one of the files that SQLite keeps beside the file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The path of a file without symbolic links, which may differ between the programs that share it.
pub(super) fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Distinguishes a file from one that replaces it.
pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Refuses a missing directory: created for a misspelt path, the file would be a store that no other program uses.
fn check_directory(path: &Path) -> Result<()> {
    match path.parent().map(fs::metadata) {
        Some(Err(error))
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            let message = "its directory does not exist; correct the path, or create the directory";
            Err(invalid(message).with_source(error))
        }
        _ => Ok(()),
    }
}

/// Creates the file, unless another process has created it. Processes do this one after another, so that none removes
/// the log that another one has begun.
fn create_file(path: &Path) -> Result<(), Fault> {
    let directory = path.parent().unwrap_or(path);
    let directory = File::open(directory).map_err(uncreatable)?;
    match directory.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(failure(ffi::SQLITE_BUSY)),
        Err(TryLockError::Error(error)) => return Err(uncreatable(error).into()),
    }
    let created = create_if_missing(path);
    // Closing it is not enough: a fork may have inherited it.
    let _ = directory.unlock();
    created.map_err(Fault::from)
}

fn create_if_missing(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(uncreatable(error)),
    }
    // Left over from a deleted file. SQLite would use them for this one. Once it exists, they may be its own.
    for suffix in ["-wal", "-shm", "-journal"] {
        if let Err(error) = fs::remove_file(beside(path, suffix))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(uncreatable(error));
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop).map_err(uncreatable)
}

fn uncreatable(error: io::Error) -> Error {
    of_system(error, |error| {
        invalid(format!(
            "the file cannot be created ({}); make its directory readable and writable for this user or \
             choose another path",
            error.kind()
        ))
    })
}

/// Refuses a file that may have another name that is not a symbolic link: SQLite keeps log and shared memory
/// beside the name, so programs that use different names do not exclude each other. After the second name was
/// created, the file is refused under both.
fn refuse_second_name(path: &Path, meta: &fs::Metadata) -> Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    if meta.nlink() > 1 {
        return Err(invalid(format!(
            "the file has {} names (hard links), and programs that use different ones do not exclude \
             each other; remove all but one, and use a symbolic link where another is needed",
            meta.nlink()
        )));
    }
    if is_mount(path) == Some(true) {
        return Err(invalid(
            "the file is a mount by itself, and programs that reach it another way do not exclude \
             those that use this one; mount its directory instead of the file",
        ));
    }
    Ok(())
}

/// Whether a path is a mount point. `None`: unknown.
#[cfg(target_os = "linux")]
pub(super) fn is_mount(path: &Path) -> Option<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};

    const MOUNT: StatxAttributes = StatxAttributes::MOUNT_ROOT;
    match statx(CWD, path, AtFlags::empty(), StatxFlags::empty()) {
        Ok(stat) if stat.stx_attributes_mask.contains(MOUNT) => {
            Some(stat.stx_attributes.contains(MOUNT))
        }
        // Before Linux 5.8.
        _ => {
            let info = fs::read("/proc/self/mountinfo").ok()?;
            Some(is_in_mountinfo(&info, &real(path)))
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn is_mount(_path: &Path) -> Option<bool> {
    None
}

/// Whether a path is a mount point, by the fifth field of the lines of `/proc/self/mountinfo`.
#[cfg(target_os = "linux")]
fn is_in_mountinfo(info: &[u8], path: &Path) -> bool {
    let mut escaped = Vec::new();
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            _ => escaped.push(byte),
        }
    }
    let mut lines = info.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&escaped))
}

/// Refuses a file on a network file system: another machine could also write it, and would free the locks of
/// this one.
fn refuse_network(path: &Path) -> Result<()> {
    match file_system(path) {
        Ok(FileSystem::Network(name)) => Err(invalid(format!(
            "it is on a network file system ({name}), and a SQLite store is for one machine; \
             choose a path on a local disk, or a Redis store"
        ))),
        // If it cannot be found out, it is local in all likelihood; `doctor` reports that it is unknown.
        Ok(FileSystem::Foreign(_) | FileSystem::Memory | FileSystem::Local) | Err(_) => Ok(()),
    }
}

/// The kind of file system of a file.
///
/// # Errors
///
/// If the system does not report it.
#[cfg(target_os = "linux")]
pub(super) fn file_system(path: &Path) -> io::Result<FileSystem> {
    let stat = rustix::fs::statfs(path)?;
    // The type of the field differs between architectures; the numbers have 32 bits.
    let magic = (stat.f_type as u64) & 0xffff_ffff;
    let name = |list: &[(u64, &'static str)]| {
        let found = list.iter().find(|(number, _)| *number == magic);
        found.map(|(_, name)| *name)
    };
    Ok(match (name(&NETWORK), name(&FOREIGN)) {
        (Some(name), _) => FileSystem::Network(name),
        (None, Some(name)) => FileSystem::Foreign(name),
        (None, None) if MEMORY.contains(&magic) => FileSystem::Memory,
        (None, None) => FileSystem::Local,
    })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn file_system(_path: &Path) -> io::Result<FileSystem> {
    Err(io::ErrorKind::Unsupported.into())
}

/// File systems that several machines may mount, by their numbers in Linux, without FUSE and 9p, which provide local
/// files as often.
#[cfg(target_os = "linux")]
const NETWORK: [(u64, &str); 13] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x786f_4256, "vboxsf"),
];

/// File systems whose files may be anywhere.
#[cfg(target_os = "linux")]
const FOREIGN: [(u64, &str); 2] = [(0x6573_5546, "FUSE"), (0x0102_1997, "9p")];

/// `tmpfs` and `ramfs`.
#[cfg(target_os = "linux")]
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_it_is_written() {
        for (url, path) in [
            ("sqlite:/var/lib/x.db", "/var/lib/x.db"),
            ("sqlite:///var/lib/x.db", "/var/lib/x.db"),
            ("sqlite:/a%20b?c#d", "/a%20b?c#d"),
            ("sqlite:/~/x", "/~/x"),
        ] {
            assert_eq!(parse(url).unwrap(), Path::new(path), "{url}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(parse("sqlite:a/b.db").unwrap(), here.join("a/b.db"));
        assert_eq!(parse("sqlite::memory:").unwrap(), here.join(":memory:"));
        assert!(parse("sqlite:/a\0b").is_err());
    }

    #[test]
    fn leftovers_are_removed_by_one_process_and_before_the_file_exists() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        let log = beside(&path, "-wal");
        fs::write(&log, "").unwrap();
        let other = File::open(directory.path()).unwrap();
        other.lock().unwrap();
        assert!(prepare(&path).unwrap_err().is_busy());
        assert!(!path.exists());
        other.unlock().unwrap();
        prepare(&path).unwrap();
        assert!(path.exists() && !log.exists());
        // The other process has created the file, and has written to it.
        fs::write(&log, "").unwrap();
        create_file(&path).unwrap();
        assert!(log.exists());
    }

    #[test]
    fn no_file_is_created_beside_a_log_that_cannot_be_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks.db");
        fs::create_dir(beside(&path, "-wal")).unwrap();
        assert!(prepare(&path).is_err());
        assert!(!path.exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_mount_is_found_without_statx() {
        let info = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n\
            30 22 8:1 /locks.db /srv/a\\040b\\134c/locks.db rw - ext4 /dev/sda rw\n";
        for (path, found) in [
            ("/srv/a b\\c/locks.db", true),
            ("/", true),
            ("/srv/a b\\c", false),
            ("/locks.db", false),
        ] {
            assert_eq!(is_in_mountinfo(info, Path::new(path)), found, "{path}");
        }
    }
}
