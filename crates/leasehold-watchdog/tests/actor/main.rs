//! A process that speaks with a node by its words, as it is told on its standard input: what the tests stop,
//! kill and replace.

// A helper of tests fails by panicking, as they do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::{
    Changes, ClientInfo, ClientSecret, Hello, Registration, Role, ToClient, ToNode,
};
use leasehold_watchdog::{Listen, Node, Settings, StoreSettings};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

#[derive(Default)]
struct Actor {
    stream: Option<Arc<Mutex<UnixStream>>>,
    decoder: Decoder,
    batch: u64,
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    if let [_, "node", listen, store] = arguments[..] {
        return node(listen, store);
    }
    let mut actor = Actor::default();
    let stdin = std::io::stdin();
    loop {
        let mut line = String::new();
        if stdin.lock().read_line(&mut line).unwrap() == 0 {
            return;
        }
        let words: Vec<_> = line.split_whitespace().collect();
        actor.obey(&words);
    }
}

/// Is a node, until it is told to stop.
#[tokio::main]
async fn node(listen: &str, store: &str) {
    let node = Node::start(Settings {
        listen: vec![Listen::parse(listen).unwrap()],
        stores: vec![StoreSettings {
            url: store.to_owned(),
            ..StoreSettings::default()
        }],
        ..Settings::default()
    });
    let node = node.await.unwrap();
    say("listening");
    let told = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    told.await.unwrap().unwrap();
    node.stop().await;
    say("stopped");
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
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
                say("ok");
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
            ["inherit"] => self.inherit(),
            ["exec"] => panic!("{}", Command::new(std::env::current_exe().unwrap()).exec()),
            ["end-main"] => end_main(),
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
        say(&self.changed(register, unregister));
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
        say("ok");
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

    /// Starts a child that has the connection as well, and does not know it.
    fn inherit(&self) {
        let stream = self.stream.as_ref().unwrap().lock().unwrap();
        fcntl_setfd(&*stream, FdFlags::empty()).unwrap();
        let child = Command::new("sleep").arg("1000").spawn().unwrap().id();
        fcntl_setfd(&*stream, FdFlags::CLOEXEC).unwrap();
        say(&child.to_string());
    }

    fn send(&self, word: &ToNode) {
        let mut stream = self.stream.as_ref().unwrap().lock().unwrap();
        // Whoever is sent away cannot say more.
        let _ = stream.write_all(&encode(word).unwrap());
    }

    /// Tells the next word of the node.
    fn answer(&mut self) {
        say(&self.heard());
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

/// Ends the main thread alone.
#[expect(
    unsafe_code,
    reason = "the standard library ends the process with its main thread"
)]
fn end_main() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
    say("ok");
    // SAFETY: nothing of this thread is used by others.
    unsafe {
        nix::libc::syscall(nix::libc::SYS_exit, 0);
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
