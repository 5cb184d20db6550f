//! The helper: the process of a client whose connection the test reads and writes, or a node.
//!
//! | command | effect | reply |
//! |---|---|---|
//! | `node LISTEN URL` | runs a node until the next command | `listening`, `stopped` |
//! | `connect SOCKET` | connects to a node | |
//! | `write HEX` | writes bytes | |
//! | `write-and-die HEX` | writes bytes, and kills the process | |
//! | `read` | reads bytes | the bytes in hex, empty at the end of the connection |
//! | `process PID` | sends a `Process` message with the pidfd of a process | |
//! | `close` | closes the connection | |

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use leasehold::__private::wire::ToNode;
use leasehold_testkit::helper::{self, Commands, reply};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open};

use crate::peer::send_with_descriptors;

/// In the helper: obeys the commands of a test.
pub(crate) fn serve() {
    let mut commands = helper::commands();
    let mut stream: Option<UnixStream> = None;
    while let Some(command) = commands.blocking_next() {
        let words: Vec<_> = command.split_whitespace().collect();
        match (&words[..], stream.as_ref()) {
            (["node", listen, store], _) => return node(listen, store, commands),
            (["connect", socket], _) => stream = Some(UnixStream::connect(socket).unwrap()),
            (["close"], _) => stream = None,
            // A node that has ended the connection does not take the bytes.
            (["write", bytes], Some(mut stream)) => drop(stream.write_all(&from_hex(bytes))),
            (["write-and-die", bytes], Some(mut stream)) => {
                let _ = stream.write_all(&from_hex(bytes));
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            (["read"], Some(mut stream)) => {
                let mut bytes = [0; 4096];
                let read = stream.read(&mut bytes).unwrap_or(0);
                reply(to_hex(&bytes[..read]));
            }
            (["process", pid], Some(stream)) => {
                let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
                let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
                send_with_descriptors(stream, &ToNode::Process, &[pidfd.as_fd()]);
            }
            _ => panic!("{command:?} is not a command"),
        }
    }
}

/// Is a node until the next command.
#[tokio::main]
async fn node(listen: &str, store: &str, mut commands: Commands) {
    let listen = Listen::parse(listen).unwrap();
    let node = Node::start(Settings::new(vec![listen], vec![StoreSettings::new(store)]));
    let node = node.await.unwrap();
    reply("listening");
    commands.next().await;
    node.stop().await;
    reply("stopped");
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    let digits = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
    digits
        .map(|digits| u8::from_str_radix(digits, 16).unwrap())
        .collect()
}
