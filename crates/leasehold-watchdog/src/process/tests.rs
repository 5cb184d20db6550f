use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::wire::{ClientSecret, Hello, Role, ToClient, ToNode};
use leasehold_core::Instant;
use leasehold_testkit::{Helper, eventually};
use rustix::process::{Signal, getuid};

use super::*;
use crate::fuzzing;
use crate::session::{Peer, Session, Step};

const SOON: Duration = Duration::from_secs(20);

/// A process that does nothing, and ends with the test.
fn sleeper() -> Helper {
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    Helper::spawn(sleep)
}

fn owner(process: &Helper) -> Owner {
    Owner {
        gid: 0,
        uid: getuid().as_raw(),
        pid: process.pid().as_raw_nonzero().get().cast_unsigned(),
    }
}

#[tokio::test]
async fn a_process_by_its_id_is_the_same_as_by_its_descriptor() {
    let [sleeper, other] = [sleeper(), sleeper()];
    let by_pid = Process::by_pid(owner(&sleeper), None).unwrap();
    let by_fd = pidfd_open(sleeper.pid(), PidfdFlags::empty()).unwrap();
    let by_fd = Process::new(by_fd, None).unwrap();
    assert_eq!(by_pid.identity(), by_fd.identity());
    assert_eq!(by_pid.pid(), owner(&sleeper).pid);
    let other = Process::by_pid(owner(&other), None).unwrap();
    assert_ne!(by_pid.identity(), other.identity());
}

#[tokio::test]
async fn an_id_of_another_user_is_refused() {
    let sleeper = sleeper();
    let owner = owner(&sleeper);
    let other = Owner {
        uid: owner.uid + 1,
        ..owner
    };
    assert!(Process::by_pid(other, None).is_err());
}

/// As the command of a run by sudo: the client must not be taken for dead before it has ended.
#[tokio::test]
async fn a_further_process_of_a_client_may_be_of_another_user() {
    let shared = fuzzing::shared();
    let (client, command) = (sleeper(), sleeper());
    let owner = owner(&client);
    let process = Arc::new(Process::by_pid(owner, None).unwrap());
    let other = Owner {
        uid: owner.uid + 1,
        ..owner
    };
    let mut session = Session::new(&shared, Peer::Local(process, other));
    let secret = ClientSecret::from_random([0; 32]);
    let hello = ToNode::Hello(Hello {
        token: None,
        role: Role::Client(secret, fuzzing::tests::client_info()),
    });
    let now = Instant::from_nanos(1);
    let reply = session.handle_message(hello, || None, now);
    let is_welcome = matches!(reply, Step::Reply(ToClient::Welcome { .. }));
    assert!(is_welcome, "{reply:?}");
    let pidfd = pidfd_open(command.pid(), PidfdFlags::NONBLOCK).unwrap();
    let reply = session.handle_message(ToNode::Process, || Some(pidfd), now);
    let is_joined = matches!(reply, Step::Reply(ToClient::Joined));
    assert!(is_joined, "{reply:?}");
}

#[tokio::test]
async fn a_zombie_has_ended_and_a_stopped_process_has_not() {
    let mut sleeper = sleeper();
    let process = Process::by_pid(owner(&sleeper), None).unwrap();
    sleeper.signal(Signal::STOP);
    eventually(SOON, || {
        process.silence_reason() == "it is stopped by a signal"
    });
    assert!(!process.has_ended());
    sleeper.signal(Signal::KILL);
    // Nobody waits for it: it stays a zombie.
    tokio::time::timeout(SOON, process.ended()).await.unwrap();
    assert!(process.has_ended());
    assert_eq!(process.silence_reason(), "it has ended");
    sleeper.kill();
    assert!(process.has_ended());
    assert!(Process::by_pid(owner(&sleeper), None).is_err());
}
