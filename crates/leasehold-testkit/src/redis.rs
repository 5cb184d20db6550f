//! A real redis-server of a test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certs::Certs;
use crate::clock::ClockShim;
use crate::resp::Resp;
use crate::supervised::Supervised;
use crate::temp_dir::temp_dir;
use crate::wait::{eventually, free_port};

/// How long a server may take to reply to its first PING.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How many ports to try: another test may take a free port before the server does.
const PORTS_MAX: u32 = 10;

/// The user of [`RedisServer::cli`], which no test changes.
pub(crate) const ADMIN: (&str, &str) = ("testkit", "testkit-password");

/// How to start a [`RedisServer`].
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    lines: String,
    password: Option<String>,
    tls: bool,
    /// The certificates that it shares with others.
    certs: Option<Arc<Certs>>,
    unix_socket: bool,
    clock_shim: bool,
    behind_ms: i64,
    replica: bool,
    sentinel: bool,
    cluster: bool,
}

/// A running redis-server with a directory and a port of its own. It ends when it is dropped.
pub struct RedisServer {
    // Declared first, so that the process is gone before its directory is.
    process: Option<Supervised>,
    options: RedisOptions,
    directory: TempDir,
    certs: Option<Arc<Certs>>,
    clock: Option<ClockShim>,
    port: u16,
    bus_port: u16,
}

/// The data of a server after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Everything.
    Kept,
    /// Nothing.
    Empty,
}

impl RedisOptions {
    /// TLS with a certificate for `localhost`, and no plain port.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self.config("tls-auth-clients no")
    }

    /// TLS that requires a certificate of every client.
    #[must_use]
    pub fn tls_clients(mut self) -> Self {
        self.tls = true;
        self.config("tls-auth-clients yes")
    }

    /// Servers with connections to each other, over TLS if they have it, by certificates of one authority.
    #[must_use]
    pub(crate) fn together(mut self) -> Self {
        if !self.tls {
            return self;
        }
        self.certs = Some(Arc::new(Certs::make()));
        self.config("tls-replication yes")
    }

    /// TLS if another server has it, which is one of [`RedisOptions::together`].
    #[must_use]
    pub(crate) fn alike(self, other: &RedisServer) -> Self {
        if !other.options.tls {
            return self;
        }
        let mut alike = self.tls().config("tls-replication yes");
        alike.certs.clone_from(&other.certs);
        alike
    }

    /// Makes [`RedisServer::url`] name the server's unix socket.
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Adds a user.
    #[must_use]
    pub fn acl(self, user: &str, password: &str, rules: &str) -> Self {
        self.config(&format!("user {user} on >{password} {rules}"))
    }

    /// Requires a password.
    #[must_use]
    pub fn requirepass(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self.config(&format!("requirepass {password}"))
    }

    /// Follows another server.
    #[must_use]
    pub fn replica_of(mut self, master: &RedisServer) -> Self {
        self.replica = true;
        self.has_replicas()
            .config(&format!("replicaof 127.0.0.1 {}", master.port))
    }

    /// Has the credentials for the master that it follows.
    #[must_use]
    pub(crate) fn has_replicas(self) -> Self {
        let (user, password) = ADMIN;
        self.config(&format!("masteruser {user}"))
            .config(&format!("masterauth {password}"))
    }

    /// Watches a server and its replicas as a sentinel.
    #[must_use]
    pub(crate) fn sentinel_of(mut self, name: &str, master: &RedisServer) -> Self {
        self.sentinel = true;
        let (user, password) = ADMIN;
        self.config(&format!(
            "sentinel monitor {name} 127.0.0.1 {} 2",
            master.port
        ))
        .config(&format!("sentinel auth-user {name} {user}"))
        .config(&format!("sentinel auth-pass {name} {password}"))
    }

    /// A node of a cluster, for which a node has failed that is silent for so long.
    pub(crate) fn cluster_node(mut self, node_timeout_ms: u32) -> Self {
        self.cluster = true;
        self.has_replicas()
            .config("cluster-enabled yes")
            .config(&format!("cluster-node-timeout {node_timeout_ms}"))
            // A replica that lags behind on a busy machine takes over all the same.
            .config("cluster-replica-validity-factor 0")
            .config("repl-ping-replica-period 1")
    }

    /// Has every change on disk before it is acknowledged.
    #[must_use]
    pub fn append_only(self) -> Self {
        self.config("appendonly yes").config("appendfsync always")
    }

    /// Lets [`RedisServer::step_clock`] move its wall clock.
    #[must_use]
    pub fn clock_shim(mut self) -> Self {
        self.clock_shim = true;
        self
    }

    /// Starts it so long ago, by its own clock, which is right then.
    #[must_use]
    pub fn started_ago(mut self, millis: i64) -> Self {
        self.clock_shim = true;
        self.behind_ms = millis;
        self
    }

    /// Adds a line to its configuration file.
    #[must_use]
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push_str(line);
        self.lines.push('\n');
        self
    }

    /// Starts several such servers side by side.
    ///
    /// # Panics
    ///
    /// As [`RedisOptions::start`].
    #[must_use]
    pub fn start_many(&self, count: usize) -> Vec<RedisServer> {
        let start = |_| {
            let options = self.clone();
            thread::spawn(|| options.start())
        };
        let starting: Vec<_> = (0..count).map(start).collect();
        let started = starting.into_iter().map(|server| server.join());
        started.map(Result::unwrap).collect()
    }

    /// Starts it and waits until it replies.
    ///
    /// # Panics
    ///
    /// If redis-server is missing or does not start.
    #[must_use]
    pub fn start(self) -> RedisServer {
        let installed = Command::new("redis-server").arg("--version").output();
        assert!(
            installed.is_ok(),
            "redis-server is missing; run cargo xtask test, which installs redis-server"
        );
        let mut server = RedisServer {
            process: None,
            certs: self.tls.then(|| {
                let shared = self.certs.clone();
                shared.unwrap_or_else(|| Arc::new(Certs::make()))
            }),
            clock: self.clock_shim.then(ClockShim::build),
            options: self,
            // In memory: a server with a log, and a node of a cluster, waits for the disk before it replies.
            directory: temp_dir(),
            port: 0,
            bus_port: 0,
        };
        let behind_ms = server.options.behind_ms;
        if behind_ms != 0 {
            server.step_clock(-behind_ms);
        }
        for _ in 0..PORTS_MAX {
            server.port = free_port();
            server.bus_port = free_port();
            match server.launch() {
                Ok(()) => {
                    if behind_ms != 0 {
                        server.step_clock(behind_ms);
                    }
                    return server;
                }
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("redis-server does not start:\n{log}"),
            }
        }
        panic!("every one of {PORTS_MAX} free ports was taken by others");
    }
}

impl RedisServer {
    /// A plain server.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// A server with options.
    #[must_use]
    pub fn options() -> RedisOptions {
        RedisOptions::default()
    }

    /// The URL of the server, with its password if it requires one and with the file of its
    /// certificate authority if it has TLS.
    #[must_use]
    pub fn url(&self) -> String {
        if self.options.unix_socket {
            return format!("redis+unix:{}", self.socket().display());
        }
        let password = self.options.password.as_ref();
        self.url_with(&password.map_or(String::new(), |password| format!(":{password}@")))
    }

    /// The parameters of its URL, with their question mark.
    pub(crate) fn query(&self) -> String {
        let certs = self.certs.as_ref();
        certs.map_or(String::new(), |certs| format!("?ca={}", certs.ca.display()))
    }

    /// The URL of the server for one of its users.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    /// The part of a URL with a certificate of a client that the server accepts.
    ///
    /// # Panics
    ///
    /// If it does not have TLS.
    #[must_use]
    pub fn client_certificate(&self) -> String {
        let certs = self.certs.as_ref().expect("a server with TLS");
        let (cert, key) = (certs.client.display(), certs.client_key.display());
        format!("cert={cert}&key={key}")
    }

    /// The certificate of its authority, and a certificate of a client that it accepts with its key, in PEM.
    ///
    /// # Panics
    ///
    /// If it does not have TLS.
    #[must_use]
    pub fn certificates(&self) -> [String; 3] {
        let certs = self.certs.as_ref().expect("a server with TLS");
        let files = [&certs.ca, &certs.client, &certs.client_key];
        files.map(|file| fs::read_to_string(file).expect("a file"))
    }

    /// The process id of the server.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process().pid()
    }

    /// The directory of its data.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The port of the server on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port for the other nodes of its cluster.
    pub(crate) fn bus_port(&self) -> u16 {
        self.bus_port
    }

    /// Whether its process runs or is stopped.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.process.as_ref().is_some_and(Supervised::alive)
    }

    /// Whether its process is stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.process.as_ref().is_some_and(Supervised::stopped)
    }

    /// Kills the server, as a crash would.
    pub fn kill9(&mut self) {
        let process = self.process();
        process.signal(Signal::KILL);
        eventually(READY_WITHIN, || !process.alive());
    }

    /// Stops the server: it keeps its connections and replies to nothing.
    pub fn stop(&self) {
        self.process().stop();
    }

    /// Lets a stopped server go on.
    pub fn cont(&self) {
        self.process().signal(Signal::CONT);
    }

    /// Ends the server, if it still runs, and starts it again on the same port.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self, memory: Restart) {
        if memory == Restart::Kept && self.process().alive() {
            self.cli(&["SAVE"]);
        }
        self.process = None;
        if memory == Restart::Empty {
            let _ = fs::remove_file(self.directory.path().join("dump.rdb"));
            let _ = fs::remove_dir_all(self.directory.path().join("appendonlydir"));
        }
        if let Err(log) = self.launch() {
            panic!("redis-server does not start again:\n{log}");
        }
    }

    /// Runs one command as administrator and returns its reply as text.
    ///
    /// # Panics
    ///
    /// If the server replies with an error or not at all.
    pub fn cli(&self, args: &[&str]) -> String {
        let reply = self.try_cli(args);
        reply.unwrap_or_else(|error| panic!("{args:?}: {error}"))
    }

    /// As [`RedisServer::cli`], with the server's error.
    ///
    /// # Errors
    ///
    /// The error of the server, or the reason why there is no reply.
    pub fn try_cli(&self, args: &[&str]) -> Result<String, String> {
        let mut resp = Resp::connect(&self.socket()).map_err(|error| error.to_string())?;
        let (user, password) = ADMIN;
        let mut call = |args: &[&str]| {
            resp.call(args)
                .unwrap_or_else(|error| Err(error.to_string()))
        };
        call(&["AUTH", user, password])?;
        call(args)
    }

    /// Moves the server's wall clock by so many milliseconds.
    ///
    /// # Panics
    ///
    /// If it was started without [`RedisOptions::clock_shim`].
    pub fn step_clock(&self, delta_ms: i64) {
        let clock = self.clock.as_ref();
        clock.expect("a server with a clock shim").step(delta_ms);
    }

    /// Lets the server's wall clock run a thousand times slower from now on.
    ///
    /// # Panics
    ///
    /// If it was started without [`RedisOptions::clock_shim`].
    pub fn slow_clock(&self) {
        let clock = self.clock.as_ref();
        clock.expect("a server with a clock shim").slow_down();
    }

    fn url_with(&self, credentials: &str) -> String {
        let (port, query) = (self.port, self.query());
        match &self.certs {
            Some(_) => format!("rediss://{credentials}localhost:{port}/0{query}"),
            None => format!("redis://{credentials}127.0.0.1:{port}/0"),
        }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    fn process(&self) -> &Supervised {
        self.process.as_ref().expect("a started server")
    }

    /// Starts the process and waits until it replies. Returns its log if it ends instead.
    fn launch(&mut self) -> Result<(), String> {
        let directory = self.directory.path();
        let config = directory.join("redis.conf");
        let log = directory.join("redis.log");
        // The socket of an earlier process would be taken for that of this one.
        let _ = fs::remove_file(self.socket());
        let _ = fs::remove_file(&log);
        fs::write(&config, self.config()).expect("the configuration file");
        let env = self.clock.as_ref().map(ClockShim::env);
        let mut argv = vec!["redis-server", config.to_str().expect("a plain path")];
        if self.options.sentinel {
            argv.push("--sentinel");
        }
        let process = Supervised::start(&log, &argv, env.as_ref().map_or(&[], |env| &env[..]));
        process.until_ready(READY_WITHIN, || self.ready())?;
        self.process = Some(process);
        Ok(())
    }

    fn ready(&self) -> bool {
        let synced = || {
            let info = self.try_cli(&["INFO", "replication"]).unwrap_or_default();
            info.contains("master_link_status:up")
        };
        self.try_cli(&["PING"]).is_ok() && (!self.options.replica || synced())
    }

    fn config(&self) -> String {
        let (user, password) = ADMIN;
        let mut config = format!(
            "bind 127.0.0.1\n\
             dir {}\n\
             unixsocket {}\n\
             user {user} on >{password} ~* &* +@all\n",
            self.directory.path().display(),
            self.socket().display(),
        );
        if !self.options.sentinel {
            config.push_str(
                "save \"\"\n\
                 repl-diskless-sync-delay 0\n\
                 enable-debug-command yes\n",
            );
        }
        let port = self.port;
        config += &match &self.certs {
            Some(certs) => format!(
                "port 0\n\
                 tls-port {port}\n\
                 tls-ca-cert-file {}\n\
                 tls-cert-file {}\n\
                 tls-key-file {}\n",
                certs.ca.display(),
                certs.server.display(),
                certs.server_key.display(),
            ),
            None => format!("port {port}\n"),
        };
        if self.options.cluster {
            config += &format!("cluster-port {}\n", self.bus_port);
            if self.certs.is_some() {
                config.push_str("tls-cluster yes\n");
            }
        }
        config + &self.options.lines
    }
}
