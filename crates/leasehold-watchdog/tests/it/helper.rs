//! The helper: a client of a node that sends single messages of the protocol, or a node.
//!
//! | command | effect | reply |
//! |---|---|---|
//! | `node LISTEN URL` | runs a node until the next command | `listening`, `stopped` |
//! | `hello SOCKET CLIENT NONCE STORE` | connects to a node | the node's message |
//! | `register NUMBER NAME TTL SILENCE KEEP` | registers a lease | the node's message |
//! | `register-many PREFIX COUNT TTL SILENCE` | registers leases that are numbered from 1 | `ok` |
//! | `register-and-die NUMBER NAME TTL SILENCE` | registers a lease, and kills the process | |
//! | `unregister NUMBER` | unregisters a lease | the node's message |
//! | `heartbeat`, `disconnect` | sends that | |
//! | `beats MILLIS` | sends a heartbeat in this interval | `ok` |
//! | `process PID` | registers a further process | the node's message |
//! | `ask CLIENT NUMBER` | queries a lease | the node's message |
//! | `hear` | receives a message | it, or `closed` |
//! | `close` | closes the connection | |

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::{
    Changes, ClientInfo, ClientSecret, Hello, Registration, Role, ToClient, ToNode,
};
use leasehold_testkit::helper::{self, Commands, reply};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[derive(Default)]
struct Actor {
    stream: Option<Arc<Mutex<UnixStream>>>,
    decoder: Decoder,
    batch: u64,
}

/// In the helper: obeys the commands of a test.
pub(crate) fn serve() {
    let mut commands = helper::commands();
    let mut actor = Actor::default();
    while let Some(command) = commands.blocking_next() {
        let words: Vec<_> = command.split_whitespace().collect();
        match words[..] {
            ["node", listen, store] => return node(listen, store, commands),
            _ => actor.obey(&words),
        }
    }
}

/// Is a node until the next command.
#[tokio::main]
async fn node(listen: &str, store: &str, mut commands: Commands) {
    let node = Node::start(Settings {
        listen: vec![Listen::parse(listen).unwrap()],
        stores: vec![StoreSettings {
            url: store.to_owned(),
            ..StoreSettings::default()
        }],
        ..Settings::default()
    });
    let node = node.await.unwrap();
    reply("listening");
    commands.next().await;
    node.stop().await;
    reply("stopped");
}

impl Actor {
    fn obey(&mut self, words: &[&str]) {
        match *words {
            ["hello", socket, client, nonce, store] => self.hello(socket, client, nonce, store),
            ["register", number, name, ttl, patience, keep] => {
                self.change(
                    vec![registration(number, name, ttl, patience, keep)],
                    vec![],
                );
            }
            ["register-many", prefix, count, ttl, patience] => {
                for first in (1..=number(count)).step_by(500) {
                    let part = first..(first + 500).min(number(count) + 1);
                    let part = part.map(|number| {
                        let number = number.to_string();
                        let name = format!("{prefix}/{number}");
                        registration(&number, &name, ttl, patience, "-")
                    });
                    let answer = self.changed(part.collect(), vec![]);
                    assert!(answer.ends_with("refused: [] }"), "{answer}");
                }
                reply("ok");
            }
            ["register-and-die", number, name, ttl, patience] => {
                let registration = registration(number, name, ttl, patience, "-");
                self.send(&ToNode::Changes(Changes {
                    batch: self.batch + 1,
                    register: vec![registration],
                    unregister: vec![],
                }));
                let signal = rustix::process::Signal::KILL;
                rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
            }
            ["unregister", lease] => self.change(vec![], vec![number(lease)]),
            ["heartbeat"] => self.send(&ToNode::Heartbeat),
            ["beats", pause] => self.beats(Duration::from_millis(number(pause))),
            ["process", pid] => self.process(pid.parse().unwrap()),
            ["ask", client, lease] => {
                let client = secret(client).client_id().to_bytes();
                let number = number(lease);
                self.send(&ToNode::LeaseQuery { client, number });
                self.answer();
            }
            ["disconnect"] => self.send(&ToNode::Disconnect),
            ["hear"] => self.answer(),
            ["close"] => self.stream = None,
            _ => panic!("what is {words:?}?"),
        }
    }

    fn hello(&mut self, socket: &str, client: &str, nonce: &str, store: &str) {
        let stream = UnixStream::connect(socket).unwrap();
        self.stream = Some(Arc::new(Mutex::new(stream)));
        self.decoder = Decoder::default();
        self.send(&ToNode::Hello(Hello {
            token: None,
            role: Role::Client(
                secret(client),
                ClientInfo {
                    process_nonce: id(nonce),
                    store: store.to_owned(),
                    namespace: "test".into(),
                    tenant: "default".into(),
                    host: "host".into(),
                    pid: std::process::id(),
                    program: "actor".into(),
                    label: String::new(),
                },
            ),
        }));
        self.answer();
    }

    fn change(&mut self, register: Vec<Registration>, unregister: Vec<u64>) {
        reply(self.changed(register, unregister));
    }

    fn changed(&mut self, register: Vec<Registration>, unregister: Vec<u64>) -> String {
        self.batch += 1;
        self.send(&ToNode::Changes(Changes {
            batch: self.batch,
            register,
            unregister,
        }));
        self.heard()
    }

    /// Says that it lives, as long as it does.
    fn beats(&self, pause: Duration) {
        let stream = Arc::clone(self.stream.as_ref().unwrap());
        let frame = encode(&ToNode::Heartbeat).unwrap();
        std::thread::spawn(move || {
            while stream.lock().unwrap().write_all(&frame).is_ok() {
                std::thread::sleep(pause);
            }
        });
        reply("ok");
    }

    /// Names a further process.
    fn process(&mut self, pid: i32) {
        let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        let frame = encode(&ToNode::Process).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [pidfd.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let stream = self.stream.as_ref().unwrap().lock().unwrap();
        let parts = [std::io::IoSlice::new(&frame)];
        sendmsg(&*stream, &parts, &mut control, SendFlags::empty()).unwrap();
        drop(stream);
        self.answer();
    }

    fn send(&self, word: &ToNode) {
        let mut stream = self.stream.as_ref().unwrap().lock().unwrap();
        // Whoever is sent away cannot say more.
        let _ = stream.write_all(&encode(word).unwrap());
    }

    /// Tells the next word of the node.
    fn answer(&mut self) {
        reply(self.heard());
    }

    fn heard(&mut self) -> String {
        let mut stream = {
            let stream = self.stream.as_ref().unwrap().lock().unwrap();
            stream.try_clone().unwrap()
        };
        loop {
            match self.decoder.message::<ToClient>().unwrap() {
                Some(word) => return format!("{word:?}"),
                None => {
                    let mut bytes = [0; 4096];
                    match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => return "closed".into(),
                        Ok(read) => self.decoder.push(&bytes[..read]),
                    }
                }
            }
        }
    }
}

fn registration(lease: &str, name: &str, ttl: &str, patience: &str, keep: &str) -> Registration {
    Registration {
        number: number(lease),
        name: name.to_owned(),
        ttl_ms: ttl.parse().unwrap(),
        silence_timeout_ms: patience.parse().unwrap(),
        keep_ms: keep.parse().ok(),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

/// What only the client of a number knows.
fn secret(number: &str) -> ClientSecret {
    let mut bytes = [0; 32];
    bytes[16..].copy_from_slice(&id(number));
    ClientSecret::from_random(bytes)
}

fn id(text: &str) -> [u8; 16] {
    u128::from_str_radix(text, 16).unwrap().to_be_bytes()
}
