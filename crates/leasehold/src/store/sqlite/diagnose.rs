//! Collects the facts about a file for [`doctor`](crate::doctor), without creating it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{Machine, SqliteStore, log, path};
use crate::Result;
use crate::error::invalid;
use crate::store::api::{Keyspace, Query, Store};
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
    let mut missing = MissingFacts::default();
    let found = file.try_exists();
    let exists = found.as_ref().is_ok_and(|exists| *exists);
    let directory = nearest_directory(&file);
    let nearest = if exists { &file } else { &directory };
    let file_system = missing.or_note("the file system", path::file_system(nearest));
    let network = matches!(file_system, Some(FileSystem::Network(_)));
    // Before the file is opened, as the last process to close it removes the log.
    let log = missing.or_note("the log", log::size(&path::real(&file)));
    if exists && path::is_mount(&file).is_none() {
        missing.note("the mounts", "the system does not report them");
    }
    // On a network disk it would be refused, with less explanation than that of the doctor.
    let opened = match exists && !network {
        true => opened(&file, options, space).await.map(Some),
        false => Ok(None),
    };
    let other_boot_id = match &opened {
        Ok(Some(Err(error))) => {
            missing.note("the boot id", error);
            false
        }
        Ok(Some(Ok(is_other))) => *is_other,
        Ok(None) | Err(_) => false,
    };
    let mode = match exists {
        true => missing.or_note("the permissions", mode(&file)),
        false => None,
    };
    let unreachable = found.err().map(|error| {
        let message = format!("its path leads nowhere ({error})");
        invalid(message).with_source(error)
    });
    Ok(FileFacts {
        exists,
        directory_exists: file.parent().is_none_or(Path::is_dir),
        mode,
        directory_writable: writable(&directory),
        free: missing.or_note("the free space", free(&directory)),
        file_system,
        log: log.flatten(),
        other_boot_id,
        missing: missing.0,
        fault: unreachable.or(opened.err()),
        path: file,
    })
}

/// The facts that are missing, each with the reason.
#[derive(Default)]
struct MissingFacts(Vec<String>);

impl MissingFacts {
    fn note(&mut self, what: &str, why: impl fmt::Display) {
        self.0.push(format!("{what} ({why})"));
    }

    /// A fact, or `None` and a note.
    fn or_note<T>(&mut self, what: &str, fact: io::Result<T>) -> Option<T> {
        fact.map_err(|error| self.note(what, error)).ok()
    }
}

/// Opens the file. Returns whether it is in use under another boot id.
async fn opened(
    file: &Path,
    options: &OpenOptions,
    space: &Keyspace,
) -> Result<rusqlite::Result<bool>> {
    let machine = Machine::this()?;
    let here = machine.boot_id.clone();
    let store = SqliteStore::open_on(file, machine, options).await?;
    // The first request detects what opening does not.
    store.read(Query::Names(space.clone())).await?;
    let read = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let boot_id = Connection::open_with_flags(file, read).and_then(|db| {
        db.query_row("SELECT boot_id FROM meta", [], |row| {
            row.get::<_, Option<String>>(0)
        })
    });
    Ok(boot_id.map(|boot_id| boot_id != here))
}

/// The nearest existing ancestor directory of a file.
fn nearest_directory(file: &Path) -> PathBuf {
    let mut directories = file.ancestors().skip(1);
    let there = directories.find(|directory| directory.is_dir());
    there.unwrap_or(Path::new("/")).to_owned()
}

fn mode(file: &Path) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let meta = fs::metadata(file)?;
    Ok(meta.permissions().mode() & 0o777)
}

fn writable(directory: &Path) -> bool {
    use rustix::fs::{Access, access};
    access(directory, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

fn free(directory: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
