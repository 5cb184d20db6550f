//! The folder of the bells, beside the file.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::ClientId;
use rustix::fs::{Gid, Uid, chown};

use super::call;
use crate::store::sqlite::path;

/// A path up to this long fits into the address of a socket on every system.
const ADDRESS_MAX: usize = 100;

/// How many bells are looked at when one is hung: so many that what killed processes left is a
/// small part of the whole, however many come and are killed.
const TIDIED: usize = 16;

/// A bell that nobody hears is removed if it is older than this: a young one may be about to be
/// hung.
const LITTER_AGE: Duration = Duration::from_secs(60);

/// Where the bells hang.
#[derive(Debug)]
pub(super) struct Folder {
    file: PathBuf,
    path: PathBuf,
}

/// What a socket is found by.
#[derive(Debug)]
pub(super) struct Address {
    path: PathBuf,
    /// Keeps the short way to a long path open.
    _folder: Option<fs::File>,
}

impl AsRef<Path> for Address {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl Folder {
    /// The folder of a file's bells. It need not be there.
    pub(super) fn beside(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            path: path::beside(file, "-wake"),
        }
    }

    /// Whether it is that of this file.
    pub(super) fn is_beside(&self, file: &Path) -> bool {
        self.file == file
    }

    /// Where the bell of a client hangs.
    pub(super) fn place(&self, client: ClientId) -> PathBuf {
        self.path.join(client.to_string())
    }

    /// The same as the address of a socket.
    pub(super) fn address(&self, client: ClientId) -> io::Result<Address> {
        let place = self.place(client);
        if place.as_os_str().len() <= ADDRESS_MAX {
            return Ok(Address {
                path: place,
                _folder: None,
            });
        }
        shortcut(&self.path, client)
    }

    /// Makes it, for those who may use the file.
    pub(super) fn make(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                let file = self.share(&self.path)?;
                // Whoever may read the file may look into the folder.
                let mode = file | (file & 0o444) >> 2;
                fs::set_permissions(&self.path, Permissions::from_mode(mode))
            }
        }
    }

    /// Lets those use a bell who may use the file.
    pub(super) fn open_up(&self, bell: &Path) -> io::Result<()> {
        let mode = self.share(bell)?;
        fs::set_permissions(bell, Permissions::from_mode(mode))
    }

    /// Gives it the file's owner and group, where that is allowed, and says what mode the file has.
    /// Root, which may use every file, must not shut its owner out.
    fn share(&self, place: &Path) -> io::Result<u32> {
        let (file, own) = (fs::metadata(&self.file)?, fs::metadata(place)?);
        let owner = (own.uid() != file.uid()).then(|| Uid::from_raw(file.uid()));
        let group = (own.gid() != file.gid()).then(|| Gid::from_raw(file.gid()));
        let given = chown(place, owner, group).or_else(|_| chown(place, None, group));
        if let Err(error) = given {
            tracing::debug!(%error, "a bell cannot be given the group of the file");
        }
        Ok(file.mode() & 0o666)
    }

    /// Removes some bells that nobody hears any more: their processes were killed.
    pub(super) fn tidy(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else {
            return;
        };
        let clients = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        for client in fastrand::choose_multiple(clients, TIDIED) {
            let place = self.place(client);
            if call::is_refused(self, client) && is_old(&place) {
                let _ = fs::remove_file(place);
            }
        }
    }
}

fn is_old(place: &Path) -> bool {
    let changed = fs::symlink_metadata(place).and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > LITTER_AGE))
}

/// A path that is too long for an address, by way of the open folder.
#[cfg(target_os = "linux")]
fn shortcut(folder: &Path, client: ClientId) -> io::Result<Address> {
    use std::os::fd::AsRawFd as _;

    let folder = fs::File::open(folder)?;
    Ok(Address {
        path: format!("/proc/self/fd/{}/{client}", folder.as_raw_fd()).into(),
        _folder: Some(folder),
    })
}

#[cfg(not(target_os = "linux"))]
fn shortcut(_folder: &Path, _client: ClientId) -> io::Result<Address> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "the path of the file is too long for a socket beside it",
    ))
}
