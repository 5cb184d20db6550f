//! System calls around the start of a guardian and of its command.

// The only file with unsafe code: for system calls between fork and exec, and for the descriptor that a guardian
// inherits.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::protocol::{COMMAND, FIRST_ARGUMENT};

/// Starts a guardian that inherits one end of a channel, with variables that are set, or removed if they have no value.
pub(super) fn spawn_guardian(
    channel: &UnixStream,
    environment: &[(&'static str, Option<OsString>)],
) -> io::Result<Pid> {
    let descriptor = channel.as_raw_fd();
    // This path is valid even if the program file was replaced since the start.
    let mut guardian = Command::new("/proc/self/exe");
    guardian
        .arg0(FIRST_ARGUMENT)
        .arg(COMMAND)
        .arg(descriptor.to_string())
        // Out of the reach of the terminal's signals.
        .process_group(0);
    for (name, value) in environment {
        match value {
            Some(value) => guardian.env(name, value),
            None => guardian.env_remove(name),
        };
    }
    // SAFETY: between fork and exec only async-signal-safe work may be done. This is one system call, on a
    // descriptor that the caller keeps open.
    unsafe {
        guardian.pre_exec(move || {
            let channel = BorrowedFd::borrow_raw(descriptor);
            Ok(fcntl_setfd(channel, FdFlags::empty())?)
        });
    }
    spawn(&mut guardian)
}

/// Starts a process. Dropped, its `std::process::Child` is neither killed nor reaped.
pub(super) fn spawn(command: &mut Command) -> io::Result<Pid> {
    Ok(Pid::from_child(&command.spawn()?))
}

/// The channel to the runner, if this process was started as a guardian.
pub(super) fn inherited_channel() -> Option<UnixStream> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != COMMAND {
        return None;
    }
    let descriptor: RawFd = arguments.next()?.to_str()?.parse().ok()?;
    // The standard streams belong to the standard library.
    if descriptor <= 2 {
        return None;
    }
    // SAFETY: the descriptor was inherited for this purpose, and nothing else in this process owns it.
    let channel = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // The command must not inherit it: its end is how the runner learns that the guardian has ended.
    fcntl_setfd(&channel, FdFlags::CLOEXEC).ok()?;
    Some(channel.into())
}

/// Kills the command when the guardian is killed. Must be called by the main thread: the signal is sent when the
/// calling thread ends.
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let arm = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe work may be done. `arm` makes two system
    // calls and allocates nothing.
    unsafe {
        command.pre_exec(arm);
    }
}
