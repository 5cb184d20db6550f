//! A real etcd cluster of a test's own: one member, or three.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certs::Certs;
use crate::supervised::Supervised;
use crate::wait::{eventually, free_port};

/// How long members may take to have a leader.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// How many sets of ports to try: another test may take a free port before a member does.
const STARTS_MAX: u32 = 10;

/// The password of the user `root` after [`EtcdCluster::enable_auth`].
const ROOT: &str = "root:testkit-password";

/// How to start an [`EtcdCluster`].
#[derive(Clone, Debug, Default)]
pub struct EtcdOptions {
    arguments: Vec<String>,
    tls: bool,
}

impl EtcdOptions {
    /// Adds an argument of the program.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// TLS with a certificate for `localhost`, which requires one of each client.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts so many members, and waits until they have a leader.
    ///
    /// # Panics
    ///
    /// If etcd is missing or does not come up.
    #[must_use]
    pub fn start(self, count: usize) -> EtcdCluster {
        for _ in 0..STARTS_MAX {
            let ports = (0..count).map(|_| [free_port(), free_port()]).collect();
            let mut cluster = EtcdCluster {
                members: Vec::new(),
                ports,
                directory: tempfile::tempdir().expect("a temporary directory"),
                certs: self.tls.then(|| Arc::new(Certs::make())),
                options: self.clone(),
                has_auth: false,
            };
            for nth in 0..count {
                let process = cluster.launch(nth);
                cluster.members.push(Some(process));
            }
            if cluster.until_ready() {
                return cluster;
            }
        }
        panic!("every one of {STARTS_MAX} sets of free ports was taken by others");
    }
}

/// Running members on ports of 127.0.0.1. They end when this is dropped.
pub struct EtcdCluster {
    // Declared first, so that the processes are gone before the directory is.
    members: Vec<Option<Supervised>>,
    /// For clients and for the other members.
    ports: Vec<[u16; 2]>,
    directory: TempDir,
    certs: Option<Arc<Certs>>,
    options: EtcdOptions,
    has_auth: bool,
}

impl EtcdCluster {
    /// One member.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start(1)
    }

    /// Options of a cluster.
    #[must_use]
    pub fn options() -> EtcdOptions {
        EtcdOptions::default()
    }

    /// The URL of the store for all members.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// The URL for a user.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    fn url_with(&self, credentials: &str) -> String {
        let hosts: Vec<_> = (0..self.ports.len()).map(|nth| self.host(nth)).collect();
        let hosts = hosts.join(",");
        match &self.certs {
            None => format!("etcd://{credentials}{hosts}"),
            Some(certs) => {
                let [ca, cert, key] =
                    [&certs.ca, &certs.client, &certs.client_key].map(|it| it.display());
                format!("etcds://{credentials}{hosts}?ca={ca}&cert={cert}&key={key}")
            }
        }
    }

    /// Host and port of a member.
    #[must_use]
    pub fn host(&self, nth: usize) -> String {
        let name = if self.certs.is_some() {
            "localhost"
        } else {
            "127.0.0.1"
        };
        format!("{name}:{}", self.port(nth))
    }

    /// The port of a member for clients.
    #[must_use]
    pub fn port(&self, nth: usize) -> u16 {
        self.ports[nth][0]
    }

    /// The number of the member that leads.
    ///
    /// # Panics
    ///
    /// If none does in time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let mut leader = None;
        eventually(READY_WITHIN, || {
            leader = (0..self.ports.len()).find(|nth| {
                let status = self
                    .command(&self.host(*nth), &["endpoint", "status"])
                    .output();
                let status = status.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
                // Address, id, version, size, whether it leads.
                status.is_ok_and(|it| it.split(", ").nth(4) == Some("true"))
            });
            leader.is_some()
        });
        leader.expect("a leader")
    }

    /// Kills a member, as a crash would.
    pub fn kill9(&mut self, nth: usize) {
        self.members[nth] = None;
    }

    /// Starts a member that was killed, with its data.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self, nth: usize) {
        self.members[nth] = Some(self.launch(nth));
        assert!(self.until_ready(), "a member does not start again");
    }

    /// Kills all members, and starts them after some time, with their data.
    ///
    /// # Panics
    ///
    /// If they do not come up.
    pub fn restart_all(&mut self, after: Duration) {
        self.members.fill_with(|| None);
        thread::sleep(after);
        for nth in 0..self.members.len() {
            self.members[nth] = Some(self.launch(nth));
        }
        assert!(self.until_ready(), "the members do not start again");
    }

    /// Stops a member: it keeps its connections and replies to nothing.
    pub fn pause(&self, nth: usize) {
        self.member(nth).stop();
    }

    /// Lets a stopped member go on.
    pub fn resume(&self, nth: usize) {
        self.member(nth).signal(Signal::CONT);
    }

    fn member(&self, nth: usize) -> &Supervised {
        self.members[nth].as_ref().expect("a running member")
    }

    /// Requires users and passwords. There is `root` for [`EtcdCluster::ctl`], and a user with the rights in a prefix.
    pub fn enable_auth(&mut self, user: &str, password: &str, prefix: &str) {
        self.ctl(&["user", "add", ROOT]);
        self.ctl(&["user", "grant-role", "root", "root"]);
        self.ctl(&["user", "add", &format!("{user}:{password}")]);
        self.ctl(&["role", "add", "locks"]);
        let grant = [
            "role",
            "grant-permission",
            "locks",
            "readwrite",
            prefix,
            "--prefix=true",
        ];
        self.ctl(&grant);
        self.ctl(&["user", "grant-role", user, "locks"]);
        self.ctl(&["auth", "enable"]);
        self.has_auth = true;
    }

    /// Runs a command of etcdctl, and returns its output.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.try_ctl(arguments);
        output.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    /// As [`EtcdCluster::ctl`], with the error of the command.
    ///
    /// # Errors
    ///
    /// What it has written to stderr.
    ///
    /// # Panics
    ///
    /// If etcdctl is missing, or no member runs.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let running = self.members.iter().position(Option::is_some);
        let host = self.host(running.expect("a running member"));
        let output = self.command(&host, arguments).output();
        let output =
            output.expect("etcdctl is missing; run cargo xtask test, which installs etcd-client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Puts a value under each of these keys.
    ///
    /// # Panics
    ///
    /// If it fails.
    pub fn put_all(&self, keys: &[String]) {
        let running = self.members.iter().position(Option::is_some);
        let host = self.host(running.expect("a running member"));
        // A server takes 128 operations in a transaction.
        for part in keys.chunks(100) {
            let mut command = self.command(&host, &["txn"]);
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let mut etcdctl = command.spawn().expect("etcdctl");
            let puts: Vec<_> = part.iter().map(|key| format!("put {key} x")).collect();
            let mut input = etcdctl.stdin.take().expect("its input");
            // No comparison, these operations, and no others.
            let sent = write!(input, "\n{}\n\n\n", puts.join("\n"));
            sent.expect("it reads");
            drop(input);
            assert!(etcdctl.wait().expect("its end").success(), "{puts:?}");
        }
    }

    fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(arguments);
        command.args(["--endpoints", &format!("{}://{host}", self.scheme())]);
        if let Some(certs) = &self.certs {
            command.arg("--cacert").arg(&certs.ca);
            command.arg("--cert").arg(&certs.client);
            command.arg("--key").arg(&certs.client_key);
        }
        if self.has_auth {
            command.args(["--user", ROOT]);
        }
        command
    }

    fn scheme(&self) -> &str {
        if self.certs.is_some() {
            "https"
        } else {
            "http"
        }
    }

    fn launch(&self, nth: usize) -> Supervised {
        let [client, peer] = self.ports[nth];
        let client = format!("{}://127.0.0.1:{client}", self.scheme());
        let peer_of = |[_, peer]: &[u16; 2]| format!("http://127.0.0.1:{peer}");
        let peers = self.ports.iter().enumerate();
        let peers: Vec<_> = peers
            .map(|(nth, ports)| format!("m{nth}={}", peer_of(ports)))
            .collect();
        let peer = peer_of(&[0, peer]);
        let data = self.directory.path().join(format!("data{nth}"));
        let mut argv = vec!["etcd".to_owned()];
        for (name, value) in [
            ("name", format!("m{nth}")),
            ("data-dir", data.display().to_string()),
            ("listen-client-urls", client.clone()),
            ("advertise-client-urls", client),
            ("listen-peer-urls", peer.clone()),
            ("initial-advertise-peer-urls", peer),
            ("initial-cluster", peers.join(",")),
        ] {
            argv.push(format!("--{name}={value}"));
        }
        if let Some(certs) = &self.certs {
            for (name, file) in [
                ("cert-file", &certs.server),
                ("key-file", &certs.server_key),
                ("trusted-ca-file", &certs.ca),
            ] {
                argv.push(format!("--{name}={}", file.display()));
            }
            argv.push("--client-cert-auth".to_owned());
        }
        // It need not survive a crash of the machine, and its passwords need not resist anybody.
        argv.extend(["--unsafe-no-fsync", "--bcrypt-cost=4"].map(str::to_owned));
        argv.extend(self.options.arguments.iter().cloned());
        let argv: Vec<_> = argv.iter().map(String::as_str).collect();
        Supervised::start(&self.log(nth), &argv, &[])
    }

    fn log(&self, nth: usize) -> std::path::PathBuf {
        self.directory.path().join(format!("log{nth}"))
    }

    /// Waits until each running member replies. Returns whether they do, or one found its port taken.
    fn until_ready(&self) -> bool {
        let start = Instant::now();
        let running = || (0..self.members.len()).filter(|nth| self.members[*nth].is_some());
        loop {
            let is_ready = |nth: usize| {
                let read = self.command(&self.host(nth), &["get", "x"]).output();
                read.is_ok_and(|read| read.status.success())
            };
            if running().all(is_ready) {
                return true;
            }
            for nth in running() {
                let log = read(&self.log(nth));
                if !self.member(nth).alive() {
                    assert!(
                        log.contains("address already in use"),
                        "etcd ended; cargo xtask test installs etcd-server:\n{log}"
                    );
                    return false;
                }
                assert!(start.elapsed() < READY_WITHIN, "not ready:\n{log}");
            }
        }
    }
}

fn read(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}
