//! The directory of the notify_sockets, beside the file.
//!
//! The directory may belong to another user, who can rename and replace everything in it at any moment. So
//! nothing there gets an owner or a mode by its name: each socket is made ready in a directory that only
//! this user can change, and moved to its place when it is ready.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::ClientId;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Stat, Uid, chmodat, chownat, fstat,
    mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::process::geteuid;

use super::private::{self, PrivateDirectory};
use super::send;
use crate::store::sqlite::path;

/// How many notify_sockets are looked at when one is hung: so many that what killed processes left is a
/// small part of the whole, however many come and are killed.
const TIDIED: usize = 16;

/// A notify_socket that nobody hears is removed if it is older than this: a young one may be about to be
/// hung.
const LITTER_AGE: Duration = Duration::from_secs(60);

/// Where the notify_sockets hang.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    file: PathBuf,
    path: PathBuf,
}

/// The directory, open and checked.
#[derive(Debug)]
pub(super) struct OpenFolder {
    fd: OwnedFd,
    path: PathBuf,
    file: Metadata,
}

impl SocketDirectory {
    /// The directory of a file's notify_sockets. It need not be there.
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

    /// Where the notify_socket of a client hangs.
    pub(super) fn place(&self, client: ClientId) -> PathBuf {
        self.path.join(client.to_string())
    }

    /// Opens it. A link in its place is refused, and so is a directory of a user who may not use the file.
    pub(super) fn open(&self) -> io::Result<OpenFolder> {
        let fd = open_directory(CWD, &self.path, OFlags::NOFOLLOW)?;
        let file = fs::metadata(&self.file)?;
        if !may_use(&file, &fstat(&fd)?, geteuid()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the directory of the sockets belongs to a user who may not use the file; delete it",
            ));
        }
        Ok(OpenFolder {
            fd,
            path: self.path.clone(),
            file,
        })
    }

    /// Opens it, and makes it before if it is missing, for those who may use the file.
    pub(super) fn make(&self) -> io::Result<OpenFolder> {
        match self.open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let file = fs::metadata(&self.file)?;
        let directory = open_directory(CWD, parent, OFlags::empty())?;
        let private = PrivateDirectory::make(&directory, parent)?;
        mkdirat(private.fd(), private::ENTRY, Mode::RWXU)?;
        // Whoever may read the file may look into the directory.
        let mode = file.mode() & 0o666;
        share(&private, &file, mode | (mode & 0o444) >> 2)?;
        match publish_directory(&private, &directory, name) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            published => published?,
        }
        self.open()
    }

    /// Removes some notify_sockets that nobody hears any more: their processes were killed.
    pub(super) fn tidy(&self) {
        let (Ok(directory), Ok(entries)) = (self.open(), fs::read_dir(&self.path)) else {
            return;
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in fastrand::choose_multiple(names, TIDIED) {
            if !is_old(&self.path.join(&name)) {
                continue;
            }
            match name.parse() {
                Ok(client) if send::is_refused(&directory, client) => directory.remove(client),
                Err(_) if PrivateDirectory::is_named(&name) => {
                    private::remove(&directory.fd, &name)
                }
                _ => {}
            }
        }
    }
}

impl OpenFolder {
    /// Binds the socket of a client, for those who may use the file. Whatever hung in its place is gone
    /// then. Also tells what the socket is known by.
    pub(super) fn bind(&self, client: ClientId) -> io::Result<(UnixDatagram, (u64, u64))> {
        let private = PrivateDirectory::make(&self.fd, &self.path)?;
        let socket = UnixDatagram::bind(private.address()?)?;
        share(&private, &self.file, self.file.mode() & 0o666)?;
        let meta = fs::symlink_metadata(private.address()?)?;
        let name = client.to_string();
        renameat(private.fd(), private::ENTRY, &self.fd, name)?;
        Ok((socket, (meta.dev(), meta.ino())))
    }

    /// Connects a socket to that of a client. A link in its place is not followed: it could lead to a
    /// socket of another program.
    #[cfg(target_os = "linux")]
    pub(super) fn connect(&self, socket: &UnixDatagram, client: ClientId) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;

        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let notify_socket = openat(&self.fd, client.to_string(), flags, Mode::empty())?;
        refuse_other_than_socket(&fstat(&notify_socket)?)?;
        socket.connect(format!("/proc/self/fd/{}", notify_socket.as_raw_fd()))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn connect(&self, socket: &UnixDatagram, client: ClientId) -> io::Result<()> {
        let name = client.to_string();
        refuse_other_than_socket(&statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        socket.connect(self.path.join(name))
    }

    /// Removes the socket of a client.
    pub(super) fn remove(&self, client: ClientId) {
        let _ = unlinkat(&self.fd, client.to_string(), AtFlags::empty());
    }
}

/// Opens a directory, to reach what is in it.
pub(super) fn open_directory(
    at: impl AsFd,
    path: impl rustix::path::Arg,
    more: OFlags,
) -> io::Result<OwnedFd> {
    // It need not be readable for that.
    #[cfg(target_os = "linux")]
    let more = more | OFlags::PATH;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(openat(at, path, flags, Mode::empty())?)
}

/// Whether the owner of a directory may use the file beside it, so that its sockets are to be trusted
/// as much as the locks. A member of the file's group has made the directory with that group.
fn may_use(file: &Metadata, directory: &Stat, me: Uid) -> bool {
    directory.st_uid == file.uid()
        || directory.st_uid == me.as_raw()
        || (directory.st_gid == file.gid() && file.mode() & 0o020 != 0)
        || file.mode() & 0o002 != 0
}

/// Gives what is in a private directory the file's owner and group, where that is allowed, and a mode.
/// Root, which may use every file, must not shut its owner out.
fn share(private: &PrivateDirectory<'_>, file: &Metadata, mode: u32) -> io::Result<()> {
    let (directory, entry) = (private.fd(), private::ENTRY);
    let own = statat(directory, entry, AtFlags::SYMLINK_NOFOLLOW)?;
    let owner = (own.st_uid != file.uid()).then(|| Uid::from_raw(file.uid()));
    let group = (own.st_gid != file.gid()).then(|| Gid::from_raw(file.gid()));
    let give = |owner| chownat(directory, entry, owner, group, AtFlags::SYMLINK_NOFOLLOW);
    if let Err(error) = give(owner).or_else(|_| give(None)) {
        tracing::debug!(%error, "a notify_socket cannot be given the group of the file");
    }
    let mode = Mode::from_raw_mode(mode as RawMode);
    Ok(chmodat(directory, entry, mode, AtFlags::empty())?)
}

/// Moves a directory to its place, unless something is there.
fn publish_directory(
    private: &PrivateDirectory<'_>,
    directory: &OwnedFd,
    name: &OsStr,
) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{RenameFlags, renameat_with};
        use rustix::io::Errno;

        let flags = RenameFlags::NOREPLACE;
        match renameat_with(private.fd(), private::ENTRY, directory, name, flags) {
            // Some file systems cannot do that.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            renamed => return Ok(renamed?),
        }
    }
    Ok(renameat(private.fd(), private::ENTRY, directory, name)?)
}

fn refuse_other_than_socket(stat: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a socket",
        )),
    }
}

fn is_old(place: &Path) -> bool {
    let changed = fs::symlink_metadata(place).and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > LITTER_AGE))
}
