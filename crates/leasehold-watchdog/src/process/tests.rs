use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::wire::{ClientSecret, Hello, Role, ToClient, ToNode};
use leasehold_core::Instant;
use rustix::process::{Signal, getuid, kill_process};

use super::*;
use crate::fuzzing;
use crate::session::{Peer, Session, Step};

const SOON: Duration = Duration::from_secs(20);

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    fn owner(&self) -> Owner {
        Owner {
            gid: 0,
            uid: getuid().as_raw(),
            pid: self.0.id(),
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_process_by_its_id_is_the_same_as_by_its_descriptor() {
    let sleeper = Sleeper::start();
    let by_pid = Process::by_pid(sleeper.owner(), None).unwrap();
    let by_fd = pidfd_open(sleeper.pid(), PidfdFlags::empty()).unwrap();
    let by_fd = Process::new(by_fd, None).unwrap();
    assert_eq!(by_pid.identity(), by_fd.identity());
    assert_eq!(by_pid.pid(), sleeper.0.id());
    let other = Sleeper::start();
    let other = Process::by_pid(other.owner(), None).unwrap();
    assert_ne!(by_pid.identity(), other.identity());
}

#[tokio::test]
async fn an_id_of_another_user_is_refused() {
    let sleeper = Sleeper::start();
    let owner = Owner {
        uid: sleeper.owner().uid + 1,
        ..sleeper.owner()
    };
    assert!(Process::by_pid(owner, None).is_err());
}

/// As the command of a run by sudo: the client must not be taken for dead before it has ended.
#[tokio::test]
async fn a_further_process_of_a_client_may_be_of_another_user() {
    let shared = fuzzing::shared();
    let (client, command) = (Sleeper::start(), Sleeper::start());
    let process = Arc::new(Process::by_pid(client.owner(), None).unwrap());
    let owner = Owner {
        uid: client.owner().uid + 1,
        ..client.owner()
    };
    let mut session = Session::new(&shared, Peer::Local(process, owner));
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
    let mut sleeper = Sleeper::start();
    let process = Process::by_pid(sleeper.owner(), None).unwrap();
    kill_process(sleeper.pid(), Signal::STOP).unwrap();
    leasehold_testkit::eventually(SOON, || {
        process.silence_reason() == "it is stopped by a signal"
    });
    assert!(!process.has_ended());
    kill_process(sleeper.pid(), Signal::KILL).unwrap();
    // Nobody waits for it: it stays a zombie.
    tokio::time::timeout(SOON, process.ended()).await.unwrap();
    assert!(process.has_ended());
    assert_eq!(process.silence_reason(), "it has ended");
    sleeper.0.wait().unwrap();
    assert!(process.has_ended());
    assert!(Process::by_pid(sleeper.owner(), None).is_err());
}
