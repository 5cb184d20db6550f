//! What a process can do to itself that others may take for its death.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::SubjectArgs;

/// How long a forked child lives if nobody ends it.
const CHILD_SECONDS: u32 = 60;

/// Ends the main thread. The process lives on with its others.
#[expect(
    unsafe_code,
    reason = "no library ends one thread of a process and not the others"
)]
pub(super) fn end_this_thread() -> ! {
    // SAFETY: the thread ends here and now; nothing that others use is on its stack but what they own.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    // Nothing comes here.
    std::process::abort()
}

/// Forks a child that has all descriptors, and only waits. Answers its id.
#[expect(
    unsafe_code,
    reason = "the child is not to execute anything: it keeps all descriptors"
)]
pub(super) fn fork() -> i32 {
    // SAFETY: the child calls nothing but what may be called between fork and exec.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above. The alarm ends it.
        unsafe {
            libc::alarm(CHILD_SECONDS);
            loop {
                libc::pause();
            }
        }
    }
    child
}

/// Executes this program in the place of itself, which takes other locks then. Answers why it cannot.
pub(super) fn exec(args: &SubjectArgs) -> String {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.to_string(),
    };
    let mut command = Command::new(program);
    command
        .arg("watchdog-subject")
        .args(["--url", &args.url])
        .args(["--ttl-ms", &args.ttl_ms.to_string()])
        .args(["--prefix", &format!("{}-next", args.prefix)]);
    for node in &args.node {
        command.args(["--node", node]);
    }
    command.exec().to_string()
}
