//! A real etcd cluster of a test's own: one member, or three.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::certs::Certs;
use crate::members::{Members, Program, READY_WITHIN};
use crate::wait::found_within;

/// The password of the user `root` after [`EtcdCluster::enable_auth`].
const ROOT: &str = "root:testkit-password";

/// Options of an [`EtcdCluster`].
#[derive(Clone, Debug, Default)]
pub struct Etcd {
    arguments: Vec<String>,
    tls: bool,
    has_auth: bool,
}

/// Running members of etcd.
pub type EtcdCluster = Members<Etcd>;

impl Etcd {
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
        let certs = self.tls.then(|| Arc::new(Certs::make()));
        Members::begin(count, &self, certs.as_ref())
    }
}

impl EtcdCluster {
    /// One member.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start(1)
    }

    /// Options of a cluster.
    #[must_use]
    pub fn options() -> Etcd {
        Etcd::default()
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
        let (_, name) = self.scheme_and_host();
        format!("{name}:{}", self.port(nth))
    }

    /// The number of the member that leads.
    ///
    /// # Panics
    ///
    /// If none does in time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let leads = |nth: &usize| {
            let mut status = self.command(&self.host(*nth), &["endpoint", "status"]);
            let status = status.output().expect("etcdctl").stdout;
            // Address, id, version, size, whether it leads.
            String::from_utf8_lossy(&status).split(", ").nth(4) == Some("true")
        };
        let leader = found_within(READY_WITHIN, || (0..self.ports.len()).find(leads));
        leader.expect("a leader")
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
        self.program.has_auth = true;
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
    /// The text that the command wrote to stderr.
    ///
    /// # Panics
    ///
    /// If etcdctl is missing, or no member runs.
    pub fn try_ctl(&self, arguments: &[&str]) -> Result<String, String> {
        let host = self.host(self.running().next().expect("a running member"));
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
        let host = self.host(self.running().next().expect("a running member"));
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
        let (scheme, _) = self.scheme_and_host();
        command.args(["--endpoints", &format!("{scheme}://{host}")]);
        if let Some(certs) = &self.certs {
            command.arg("--cacert").arg(&certs.ca);
            command.arg("--cert").arg(&certs.client);
            command.arg("--key").arg(&certs.client_key);
        }
        if self.program.has_auth {
            command.args(["--user", ROOT]);
        }
        command
    }

    fn scheme_and_host(&self) -> (&'static str, &'static str) {
        match self.certs {
            Some(_) => ("https", "localhost"),
            None => ("http", "127.0.0.1"),
        }
    }
}

impl Program for Etcd {
    const PORT_TAKEN: &'static str = "address already in use";

    fn command(members: &EtcdCluster, nth: usize) -> Vec<String> {
        let [client, peer, ..] = members.ports[nth];
        let (scheme, _) = members.scheme_and_host();
        let client = format!("{scheme}://127.0.0.1:{client}");
        let peer_of = |peer: u16| format!("http://127.0.0.1:{peer}");
        let peers = members.ports.iter().enumerate();
        let peers: Vec<_> = peers
            .map(|(nth, ports)| format!("m{nth}={}", peer_of(ports[1])))
            .collect();
        let peer = peer_of(peer);
        let data = members.data(nth);
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
        if let Some(certs) = &members.certs {
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
        argv.extend(members.program.arguments.iter().cloned());
        argv
    }

    fn is_ready(members: &EtcdCluster, nth: usize) -> bool {
        let host = members.host(nth);
        let read = members.command(&host, &["get", "x"]).output();
        read.is_ok_and(|read| read.status.success())
    }
}
