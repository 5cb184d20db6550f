//! The directory of the notify sockets, beside the file.
//!
//! The directory may belong to another user, who can rename and replace everything in it at any moment. So
//! owners and modes are never set by name there: each socket is prepared in a directory that only this user
//! can change, and then moved to its path.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_core::ClientId;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Stat, Uid, chmodat, chownat, fstat,
    mkdirat, renameat, statat, unlinkat,
};
use rustix::process::geteuid;

use super::private::{self, PrivateDirectory, open_directory};
use crate::store::sqlite::path;

/// The number of sockets checked when one is bound: enough to keep those of killed processes a small part of
/// all, however many are killed.
const STALE_CHECKS: usize = 16;

/// A closed socket is removed if it is older than this: a younger one may be about to be bound.
const STALE_AGE: Duration = Duration::from_secs(60);

/// The directory of the notify sockets.
#[derive(Debug)]
pub(super) struct SocketDirectory {
    file: PathBuf,
    path: PathBuf,
}

/// The directory, open and checked.
#[derive(Debug)]
pub(super) struct OpenDirectory {
    fd: OwnedFd,
    path: PathBuf,
    file: Metadata,
}

impl SocketDirectory {
    /// The directory of the notify sockets of a file. It need not exist.
    pub(super) fn beside(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            path: path::beside(file, "-wake"),
        }
    }

    /// Whether it belongs to this file.
    pub(super) fn is_beside(&self, file: &Path) -> bool {
        self.file == file
    }

    /// The path of the socket of a client.
    pub(super) fn socket_path(&self, client: ClientId) -> PathBuf {
        self.path.join(client.to_string())
    }

    /// Opens it. A symbolic link is refused, and so is a directory of a user who may not use the file.
    pub(super) fn open(&self) -> io::Result<OpenDirectory> {
        let fd = open_directory(CWD, &self.path, OFlags::NOFOLLOW)?;
        let file = fs::metadata(&self.file)?;
        if !may_use(&file, &fstat(&fd)?, geteuid()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the directory of the sockets belongs to a user who may not use the file; delete it",
            ));
        }
        Ok(OpenDirectory {
            fd,
            path: self.path.clone(),
            file,
        })
    }

    /// Opens it, and creates it first if it is missing, for the users who may use the file.
    pub(super) fn make(&self) -> io::Result<OpenDirectory> {
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
        // Read access to the file implies access to the directory.
        let mode = file.mode() & 0o666;
        share(&private, &file, mode | (mode & 0o444) >> 2)?;
        match publish_directory(&private, &directory, name) {
            // Another process has created it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            published => published?,
        }
        self.open()
    }

    /// Removes some sockets of processes that were killed.
    pub(super) fn remove_stale(&self) {
        let (Ok(directory), Ok(entries)) = (self.open(), fs::read_dir(&self.path)) else {
            return;
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in fastrand::choose_multiple(names, STALE_CHECKS) {
            if !is_old(&self.path.join(&name)) {
                continue;
            }
            match name.parse() {
                Ok(client) if directory.is_closed(client) => directory.remove(client),
                Err(_) if PrivateDirectory::is_named(&name) => {
                    private::remove(&directory.fd, &name);
                }
                _ => {}
            }
        }
    }
}

impl OpenDirectory {
    /// Binds the socket of a client, for the users who may use the file, and replaces what was at its path.
    /// Also returns the device and inode number of the socket.
    pub(super) fn bind(&self, client: ClientId) -> io::Result<(UnixDatagram, (u64, u64))> {
        let private = PrivateDirectory::make(&self.fd, &self.path)?;
        let socket = UnixDatagram::bind(private.address()?)?;
        share(&private, &self.file, self.file.mode() & 0o666)?;
        let meta = fs::symlink_metadata(private.address()?)?;
        let name = client.to_string();
        renameat(private.fd(), private::ENTRY, &self.fd, name)?;
        Ok((socket, (meta.dev(), meta.ino())))
    }

    /// A new socket that is connected to that of a client and does not block.
    pub(super) fn connect(&self, client: ClientId) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        self.connect_to(&socket, client)?;
        Ok(socket)
    }

    /// Whether the socket of a client is certainly closed.
    fn is_closed(&self, client: ClientId) -> bool {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        self.connect(client).is_err_and(refused)
    }

    /// A symbolic link is not followed: it could lead to a socket of another program.
    #[cfg(target_os = "linux")]
    fn connect_to(&self, socket: &UnixDatagram, client: ClientId) -> io::Result<()> {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::openat;

        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = openat(&self.fd, client.to_string(), flags, Mode::empty())?;
        refuse_other_than_socket(&fstat(&target)?)?;
        socket.connect(format!("/proc/self/fd/{}", target.as_raw_fd()))
    }

    #[cfg(not(target_os = "linux"))]
    fn connect_to(&self, socket: &UnixDatagram, client: ClientId) -> io::Result<()> {
        let name = client.to_string();
        refuse_other_than_socket(&statat(&self.fd, &name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        socket.connect(self.path.join(name))
    }

    /// Removes the socket of a client.
    pub(super) fn remove(&self, client: ClientId) {
        let _ = unlinkat(&self.fd, client.to_string(), AtFlags::empty());
    }
}

/// Whether the owner of a directory may use the file beside it, so that its sockets are to be trusted
/// as much as the locks. A member of the group of the file has made the directory with that group.
fn may_use(file: &Metadata, directory: &Stat, me: Uid) -> bool {
    directory.st_uid == file.uid()
        || directory.st_uid == me.as_raw()
        || (directory.st_gid == file.gid() && file.mode() & 0o020 != 0)
        || file.mode() & 0o002 != 0
}

/// Gives the entry of a private directory the owner and group of the file, where that is allowed, and a mode.
/// A socket made by root must not lock the owner of the file out.
fn share(private: &PrivateDirectory<'_>, file: &Metadata, mode: u32) -> io::Result<()> {
    let (directory, entry) = (private.fd(), private::ENTRY);
    let own = statat(directory, entry, AtFlags::SYMLINK_NOFOLLOW)?;
    let owner = (own.st_uid != file.uid()).then(|| Uid::from_raw(file.uid()));
    let group = (own.st_gid != file.gid()).then(|| Gid::from_raw(file.gid()));
    let give = |owner| chownat(directory, entry, owner, group, AtFlags::SYMLINK_NOFOLLOW);
    if let Err(error) = give(owner).or_else(|_| give(None)) {
        tracing::debug!(%error, "a notify socket cannot be given the group of the file");
    }
    let mode = Mode::from_raw_mode(mode as RawMode);
    Ok(chmodat(directory, entry, mode, AtFlags::empty())?)
}

/// Moves a directory to its path, unless that is taken.
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
            // Some file systems do not support this.
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

fn is_old(path: &Path) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > STALE_AGE))
}
