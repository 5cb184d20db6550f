//! A process, identified by its pidfd.
//!
//! A pidfd becomes readable when the last thread of the process has ended, and never otherwise: not when the process
//! is stopped, traced or frozen, nor when only its main thread has ended. A zombie has ended.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt::PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::permits::FilePermit;

/// The file system of pidfds, in which each process has its own inode number.
const PIDFS_MAGIC: rustix::fs::FsWord = 0x5049_4446;

/// A process of a client.
#[derive(Debug)]
pub(crate) struct Process {
    pidfd: AsyncFd<OwnedFd>,
    identity: Identity,
    /// Its process id in the namespace of the node. 0 if it is not visible there.
    pid: u32,
    _file: Option<FilePermit>,
}

/// The identity of a process: equal for two descriptors of one process, and different for two processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The inode number of its pidfd, unique since the machine was started.
    Inode(u64),
    /// Its process id and its start time, in ticks. For kernels before 6.9.
    Started(u32, u64),
}

/// The credentials of the peer of a unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) uid: u32,
    gid: u32,
    pid: u32,
}

impl Owner {
    pub(crate) fn of(socket: impl AsFd) -> io::Result<Self> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let pid = credentials.pid.as_raw_nonzero().get();
        Ok(Self {
            uid: credentials.uid.as_raw(),
            gid: credentials.gid.as_raw(),
            pid: u32::try_from(pid).unwrap_or(0),
        })
    }
}

impl Process {
    /// The process that has connected to a unix socket.
    pub(crate) fn of_peer(
        socket: impl AsFd,
        owner: Owner,
        file: Option<FilePermit>,
    ) -> io::Result<Self> {
        match getsockopt(&socket.as_fd(), PeerPidfd) {
            Ok(pidfd) => Self::new(pidfd, file),
            // A kernel before 6.5.
            Err(nix::errno::Errno::ENOPROTOOPT) => Self::by_pid(owner, file),
            Err(error) => Err(error.into()),
        }
    }

    /// The process with the id of the peer, if it runs as the peer's user and has not been replaced meanwhile.
    fn by_pid(owner: Owner, file: Option<FilePermit>) -> io::Result<Self> {
        let other = || io::Error::other("the process has ended, and another has its id");
        let before = proc::started(owner.pid)?;
        let pid = i32::try_from(owner.pid).ok().and_then(Pid::from_raw);
        let pidfd = pidfd_open(pid.ok_or_else(other)?, PidfdFlags::NONBLOCK)?;
        let same = proc::started(owner.pid)? == before && proc::uid(owner.pid)? == owner.uid;
        if !same {
            return Err(other());
        }
        Self::new(pidfd, file)
    }

    /// The process of a descriptor.
    pub(crate) fn new(pidfd: OwnedFd, file: Option<FilePermit>) -> io::Result<Self> {
        let pid = proc::pid_of(&pidfd)?;
        let identity = match inode(&pidfd)? {
            Some(inode) => Identity::Inode(inode),
            None => started(&pidfd, pid)?,
        };
        Ok(Self {
            pidfd: register(pidfd)?,
            identity,
            pid,
            _file: file,
        })
    }

    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// A hash of the addresses that the kernel drew for its program; it changes with each exec. `None`: they are not
    /// readable.
    pub(crate) fn address_hash(&self) -> Option<u64> {
        let hash = proc::address_hash(self.pid);
        hash.filter(|_| !self.has_ended())
    }

    /// The group of the peer when it connected, and the present supplementary groups of the process.
    pub(crate) fn groups(&self, owner: Owner) -> Vec<u32> {
        let mut groups = proc::groups(self.pid);
        if self.has_ended() {
            // They may belong to another process that has its id now.
            groups.clear();
        }
        groups.push(owner.gid);
        groups
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        is_readable(self.pidfd.get_ref())
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) {
        loop {
            let Ok(mut ready) = self.pidfd.readable().await else {
                // The runtime ends, which proves nothing about the process.
                return std::future::pending().await;
            };
            if self.has_ended() {
                return;
            }
            ready.clear_ready();
        }
    }

    /// The likely reason for its silence, for people.
    pub(crate) fn silence_reason(&self) -> String {
        if self.has_ended() {
            return "it has ended".into();
        }
        proc::silence_reason(self.pid)
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.get_ref().as_fd()
    }
}

/// Whether the process of a descriptor has ended.
///
/// # Errors
///
/// If the descriptor is not a pidfd.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    proc::pid_of(pidfd)?;
    Ok(is_readable(pidfd))
}

fn is_readable(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().contains(PollFlags::IN)
}

/// The identity of a process by its id and start time. Fails for a process that is not visible here.
fn started(pidfd: &OwnedFd, pid: u32) -> io::Result<Identity> {
    let started = proc::started(pid)?;
    // If its id was reused meanwhile, the start time is that of another process.
    match proc::pid_of(pidfd)? == pid && pid != 0 {
        true => Ok(Identity::Started(pid, started)),
        false => Err(io::Error::other("the process has ended")),
    }
}

/// Registers a descriptor with the runtime.
#[expect(
    unsafe_code,
    reason = "the runtime wants to be sure that the descriptor stays the same"
)]
fn register(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is the same and stays open as long as it lives.
    let registered = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) };
    Ok(registered?)
}

/// The inode number of a pidfd. `None`: the kernel is older than 6.9.
fn inode(pidfd: &OwnedFd) -> io::Result<Option<u64>> {
    let file_system = rustix::fs::fstatfs(pidfd)?;
    if file_system.f_type != PIDFS_MAGIC {
        return Ok(None);
    }
    Ok(Some(rustix::fs::fstat(pidfd)?.st_ino))
}

mod proc;

#[cfg(test)]
mod tests;
