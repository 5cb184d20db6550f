use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::wire::{ClientSecret, Hello, Introduction, Role, ToClient, ToNode};
use leasehold_core::Instant;
use rustix::process::{Signal, getuid, kill_process};

use super::*;
use crate::files::Files;
use crate::session::{Peer, Session, Step};
use crate::settings::{Settings, StoreSettings};
use crate::shared::Shared;

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

fn file() -> Counted {
    Arc::<Files>::default().count(1)
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
    let by_pid = Process::by_pid(sleeper.owner(), file()).unwrap();
    let by_fd = pidfd_open(sleeper.pid(), PidfdFlags::empty()).unwrap();
    let by_fd = Process::new(by_fd, file()).unwrap();
    assert_eq!(by_pid.identity(), by_fd.identity());
    assert_eq!(by_pid.pid(), sleeper.0.id());
    let other = Sleeper::start();
    let other = Process::by_pid(other.owner(), file()).unwrap();
    assert_ne!(by_pid.identity(), other.identity());
}

#[tokio::test]
async fn an_id_of_another_user_is_refused() {
    let sleeper = Sleeper::start();
    let owner = Owner {
        uid: sleeper.owner().uid + 1,
        ..sleeper.owner()
    };
    assert!(Process::by_pid(owner, file()).is_err());
}

/// As the command of a run by sudo: the client must not be taken for dead before it has ended.
#[tokio::test]
async fn a_further_process_of_a_client_may_be_of_another_user() {
    let store = StoreSettings {
        name: Some("main".to_owned()),
        url: "redis://nowhere".to_owned(),
        ..StoreSettings::default()
    };
    let settings = Settings {
        stores: vec![store],
        ..Settings::default()
    };
    let shared = Shared::new(&settings, None).unwrap();
    let (client, command) = (Sleeper::start(), Sleeper::start());
    let process = Arc::new(Process::by_pid(client.owner(), file()).unwrap());
    let owner = Owner {
        uid: client.owner().uid + 1,
        ..client.owner()
    };
    let mut session = Session::new(&shared, Peer::Local(process, owner));
    let introduction = Introduction {
        process_nonce: [0; 16],
        store: "main".to_owned(),
        namespace: "leasehold".to_owned(),
        tenant: "default".to_owned(),
        host: String::new(),
        pid: 1,
        program: String::new(),
        label: String::new(),
    };
    let hello = ToNode::Hello(Hello {
        token: None,
        role: Role::Client(ClientSecret::from_random([0; 32]), introduction),
    });
    let now = Instant::from_nanos(1);
    let answer = session.hear(hello, || None, now);
    let welcomed = matches!(answer, Step::Say(ToClient::Welcome { .. }));
    assert!(welcomed, "{answer:?}");
    let pidfd = pidfd_open(command.pid(), PidfdFlags::NONBLOCK).unwrap();
    let answer = session.hear(ToNode::Process, || Some(pidfd), now);
    let joined = matches!(answer, Step::Say(ToClient::Joined));
    assert!(joined, "{answer:?}");
}

#[tokio::test]
async fn a_descriptor_of_something_else_is_refused() {
    let descriptor = OwnedFd::from(tempfile::tempfile().unwrap());
    assert!(Process::new(descriptor, file()).is_err());
}

/// A new process gets the id of one that has ended: it is another, and does not bring the first one back.
#[tokio::test]
async fn an_id_that_is_given_away_again_is_of_another_process() {
    const LAST: &str = "/proc/sys/kernel/ns_last_pid";
    let mut first = Sleeper::start();
    let gone = Process::by_pid(first.owner(), file()).unwrap();
    let pid = first.0.id();
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    assert!(gone.is_gone());
    assert!(Process::by_pid(first.owner(), file()).is_err());
    if std::fs::write(LAST, pid.to_string()).is_err() {
        // Only root may choose who gets which id.
        return;
    }
    // Others start processes at the same time.
    for _ in 0..1_000 {
        std::fs::write(LAST, (pid - 1).to_string()).unwrap();
        let second = Sleeper::start();
        if second.0.id() == pid {
            let other = Process::by_pid(second.owner(), file()).unwrap();
            assert_eq!(other.pid(), pid);
            assert_ne!(other.identity(), gone.identity());
            assert!(gone.is_gone() && !other.is_gone());
            return;
        }
    }
    panic!("nobody got the id {pid} again");
}

#[tokio::test]
async fn stopped_is_not_gone_and_a_zombie_is() {
    let sleeper = Sleeper::start();
    let process = Process::by_pid(sleeper.owner(), file()).unwrap();
    kill_process(sleeper.pid(), Signal::STOP).unwrap();
    leasehold_testkit::eventually(SOON, || process.why() == "it is stopped by a signal");
    assert!(!process.is_gone());
    kill_process(sleeper.pid(), Signal::KILL).unwrap();
    // Nobody waits for it: it stays a zombie.
    tokio::time::timeout(SOON, process.gone()).await.unwrap();
    assert!(process.is_gone());
    assert_eq!(process.why(), "it has ended");
}
