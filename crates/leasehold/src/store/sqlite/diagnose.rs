//! Collects the facts about a file for [`doctor`](crate::doctor), without creating it.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{Machine, SqliteStore, log, path};
use crate::Result;
use crate::store::api::{Keyspace, Store};
use crate::store::diagnose::{FileFacts, FileSystem};
use crate::store::options::OpenOptions;

/// Collects the facts about the file that a URL names. If it exists, it is opened as by every client.
///
/// # Errors
///
/// That of a URL that does not name a file.
pub(in crate::store) async fn diagnose(
    url: &str,
    options: &OpenOptions,
    space: &Keyspace,
) -> Result<FileFacts> {
    let file = path::parse(url)?;
    let exists = file.exists();
    let directory = nearest_directory(&file);
    let nearest = if exists { &file } else { &directory };
    let file_system = path::file_system(nearest);
    let network = matches!(file_system, FileSystem::Network(_));
    // Before the file is opened, as the last process to close it removes the log.
    let log = log::size(&path::real(&file));
    // On a network disk it would be refused, with less explanation than that of the doctor.
    let opened = match exists && !network {
        true => opened(url, options, space).await,
        false => Ok(false),
    };
    Ok(FileFacts {
        exists,
        mode: exists.then(|| mode(&file)).flatten(),
        directory_writable: writable(&directory),
        free: free(&directory),
        file_system,
        log,
        other_boot_id: *opened.as_ref().unwrap_or(&false),
        fault: opened.err(),
        path: file,
    })
}

/// Opens the file. Returns whether it is in use under another boot id.
async fn opened(url: &str, options: &OpenOptions, space: &Keyspace) -> Result<bool> {
    let store = SqliteStore::open(url, options).await?;
    // The first request detects what opening does not.
    store.list(space).await?;
    let read = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let boot_id = Connection::open_with_flags(&store.path, read).and_then(|db| {
        db.query_row("SELECT boot_id FROM meta", [], |row| {
            row.get::<_, Option<String>>(0)
        })
    });
    let here = Machine::this()?.boot_id;
    Ok(boot_id.is_ok_and(|boot_id| boot_id != here))
}

/// The nearest existing ancestor directory of a file.
fn nearest_directory(file: &Path) -> PathBuf {
    let mut directories = file.ancestors().skip(1);
    let there = directories.find(|directory| directory.is_dir());
    there.unwrap_or(Path::new("/")).to_owned()
}

fn mode(file: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = fs::metadata(file).ok()?;
    Some(meta.permissions().mode() & 0o777)
}

fn writable(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

fn free(directory: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
