//! Directories that no other user can change.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::process::geteuid;

/// The only entry of a private directory. It has this name until it is moved to its path.
pub(super) const ENTRY: &str = "leasehold-new";

/// The prefix of their names, with which no client id begins.
const PREFIX: &str = ".private-";

/// A path up to this long fits into the address of a socket on every system.
#[cfg(not(target_os = "linux"))]
const ADDRESS_MAX: usize = 100;

/// A new directory that only this user can change, in one that others may change. Dropping it removes it.
///
/// Others can rename and replace it. So its descriptor is checked, and everything goes through that.
#[derive(Debug)]
pub(super) struct PrivateDirectory<'a> {
    parent: &'a OwnedFd,
    #[cfg(not(target_os = "linux"))]
    path: PathBuf,
    name: String,
    fd: OwnedFd,
}

impl<'a> PrivateDirectory<'a> {
    /// Creates one in an open directory, which is at `path`.
    #[cfg_attr(
        target_os = "linux",
        expect(unused_variables, reason = "an address by way of /proc")
    )]
    pub(super) fn make(parent: &'a OwnedFd, path: &Path) -> io::Result<Self> {
        let name = format!("{PREFIX}{:016x}", fastrand::u64(..));
        mkdirat(parent, &name, Mode::RWXU)?;
        let fd = open_directory(parent, &name, OFlags::NOFOLLOW)?;
        let stat = fstat(&fd)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a directory that was just created does not belong to this user",
            ));
        }
        Ok(Self {
            parent,
            #[cfg(not(target_os = "linux"))]
            path: path.join(&name),
            name,
            fd,
        })
    }

    /// Whether a directory with this name is one, or what a killed process left of it.
    pub(super) fn is_named(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// The directory itself, wherever it was moved to.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The entry as the address of a socket.
    #[cfg(target_os = "linux")]
    pub(super) fn address(&self) -> io::Result<PathBuf> {
        use std::os::fd::AsRawFd as _;

        Ok(format!("/proc/self/fd/{}/{ENTRY}", self.fd.as_raw_fd()).into())
    }

    /// Only the entries of the directory are used later, so a path suffices.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn address(&self) -> io::Result<PathBuf> {
        let address = self.path.join(ENTRY);
        if address.as_os_str().len() <= ADDRESS_MAX {
            return Ok(address);
        }
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the path of the file is too long for a socket beside it",
        ))
    }
}

impl Drop for PrivateDirectory<'_> {
    fn drop(&mut self) {
        remove(self.parent, &self.name);
    }
}

/// Opens a directory, to reach its entries.
pub(super) fn open_directory(
    at: impl AsFd,
    path: impl rustix::path::Arg,
    more: OFlags,
) -> io::Result<OwnedFd> {
    // It need not be readable for this.
    #[cfg(target_os = "linux")]
    let more = more | OFlags::PATH;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | more;
    Ok(openat(at, path, flags, Mode::empty())?)
}

/// Removes a private directory and its entry. Symbolic links are not followed.
pub(super) fn remove(parent: &OwnedFd, name: &str) {
    if let Ok(directory) = open_directory(parent, name, OFlags::NOFOLLOW) {
        for flags in [AtFlags::empty(), AtFlags::REMOVEDIR] {
            let _ = unlinkat(&directory, ENTRY, flags);
        }
    }
    let _ = unlinkat(parent, name, AtFlags::REMOVEDIR);
}
