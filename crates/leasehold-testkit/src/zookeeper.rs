//! A real ZooKeeper ensemble of a test's own: one server, or three.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certs::Certs;
use crate::supervised::Supervised;
use crate::wait::free_port;

/// How long servers may take to have a leader.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How many sets of ports to try: another test may take a free port before a server does.
const STARTS_MAX: u32 = 10;

/// The archives of ZooKeeper, in the directory of everything that cargo builds.
const JARS: &str = "zookeeper";

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Running servers on ports of 127.0.0.1. They end when this is dropped.
pub struct ZookeeperServer {
    // Declared first, so that the processes are gone before the directory is.
    servers: Vec<Option<Supervised>>,
    /// For clients, for the other servers, for their elections, and for clients over TLS.
    ports: Vec<[u16; 4]>,
    directory: TempDir,
    /// Further lines of the configuration.
    lines: String,
    certs: Option<Arc<Certs>>,
}

impl ZookeeperServer {
    /// One server.
    #[must_use]
    pub fn start() -> Self {
        Self::with(1, "")
    }

    /// So many servers with further lines in their configuration. Waits until they have a leader.
    ///
    /// # Panics
    ///
    /// If Java or ZooKeeper is missing, or they do not come up.
    #[must_use]
    pub fn with(count: usize, lines: &str) -> Self {
        Self::begin(count, lines, None)
    }

    /// One server, whose URL is over TLS with a certificate for `localhost` and `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// As [`ZookeeperServer::with`].
    #[must_use]
    pub fn tls() -> Self {
        Self::begin(1, "", Some(Arc::new(Certs::make())))
    }

    fn begin(count: usize, lines: &str, certs: Option<Arc<Certs>>) -> Self {
        for _ in 0..STARTS_MAX {
            let ports = || [free_port(), free_port(), free_port(), free_port()];
            let mut ensemble = Self {
                servers: Vec::new(),
                ports: (0..count).map(|_| ports()).collect(),
                directory: tempfile::tempdir().expect("a temporary directory"),
                lines: lines.to_owned(),
                certs: certs.clone(),
            };
            for nth in 0..count {
                let process = ensemble.launch(nth);
                ensemble.servers.push(Some(process));
            }
            if ensemble.until_ready() {
                return ensemble;
            }
        }
        panic!("every one of {STARTS_MAX} sets of free ports was taken by others");
    }

    /// The URL of the store for all servers.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("", "")
    }

    /// The URL for credentials, which end with `@`, and a path, which begins with a slash.
    #[must_use]
    pub fn url_of(&self, credentials: &str, path: &str) -> String {
        let (scheme, nth, query) = match &self.certs {
            None => ("zookeeper", 0, String::new()),
            Some(certs) => ("zookeepers", 3, format!("?ca={}", certs.ca.display())),
        };
        let hosts = self.ports.iter();
        let hosts = hosts.map(|ports| format!("127.0.0.1:{}", ports[nth]));
        let hosts = hosts.collect::<Vec<_>>().join(",");
        format!("{scheme}://{credentials}{hosts}{path}{query}")
    }

    /// The port of a server for clients, without TLS.
    #[must_use]
    pub fn port(&self, nth: usize) -> u16 {
        self.ports[nth][0]
    }

    /// The number of the server that leads, or of the only one. `None`: there is no leader now.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.servers.len()).find(|nth| {
            self.servers[*nth].is_some()
                && ask(self.ports[*nth][0], "srvr").is_some_and(|it| {
                    it.contains("Mode: leader") || it.contains("Mode: standalone")
                })
        })
    }

    /// Whether a session has a node.
    #[must_use]
    pub fn has_ephemeral(&self, path: &str) -> bool {
        let dumps = self
            .ports
            .iter()
            .filter_map(|[client, ..]| ask(*client, "dump"));
        dumps
            .into_iter()
            .any(|dump| dump.lines().any(|line| line.trim() == path))
    }

    /// Kills a server, as a crash would.
    pub fn kill9(&mut self, nth: usize) {
        self.servers[nth] = None;
    }

    /// Starts a server that was killed, with its data.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self, nth: usize) {
        self.servers[nth] = Some(self.launch(nth));
        assert!(self.until_ready(), "a server does not start again");
    }

    /// Kills all servers, and starts them with their data after a time.
    ///
    /// # Panics
    ///
    /// If they do not come up.
    pub fn restart_all(&mut self, after: Duration) {
        self.servers.fill_with(|| None);
        std::thread::sleep(after);
        for nth in 0..self.servers.len() {
            self.servers[nth] = Some(self.launch(nth));
        }
        assert!(self.until_ready(), "the servers do not start again");
    }

    /// Stops a server: it keeps its connections and replies to nothing.
    pub fn pause(&self, nth: usize) {
        self.server(nth).stop();
    }

    /// Lets a stopped server go on.
    pub fn resume(&self, nth: usize) {
        self.server(nth).signal(Signal::CONT);
    }

    fn server(&self, nth: usize) -> &Supervised {
        self.servers[nth].as_ref().expect("a running server")
    }

    fn launch(&self, nth: usize) -> Supervised {
        let jars = jars().expect("ZooKeeper is missing; run cargo xtask test, which fetches it");
        let data = self.directory.path().join(format!("data{nth}"));
        fs::create_dir_all(&data).expect("a directory for the data");
        fs::write(data.join("myid"), nth.to_string()).expect("the id of a server");
        let client = self.ports[nth][0];
        let mut config = format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={client}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,dump\n\
             maxClientCnxns=0\nforceSync=no\n{}\n",
            data.display(),
            self.lines
        );
        if self.ports.len() > 1 {
            for (nth, [_, peer, election, _]) in self.ports.iter().enumerate() {
                // Writing to a string does not fail.
                let _ = writeln!(config, "server.{nth}=127.0.0.1:{peer}:{election}");
            }
        }
        if let Some(certs) = &self.certs {
            // A file has both the key and the certificate.
            let pem = data.join("server.pem");
            let parts = [&certs.server_key, &certs.server];
            let parts = parts.map(|part| fs::read_to_string(part).expect("a file in PEM"));
            fs::write(&pem, parts.concat()).expect("the certificate of a server");
            let _ = writeln!(
                config,
                "secureClientPort={}\nsecureClientPortAddress=127.0.0.1\n\
                 serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
                 ssl.keyStore.location={}\nssl.clientAuth=none",
                self.ports[nth][3],
                pem.display()
            );
        }
        let file = self.directory.path().join(format!("zoo{nth}.cfg"));
        fs::write(&file, config).expect("a configuration");
        let (jars, file) = (format!("{}/*", jars.display()), file.display().to_string());
        let argv = [
            "java",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            &jars,
            MAIN,
            &file,
        ];
        Supervised::start(&self.log(nth), &argv, &[])
    }

    fn log(&self, nth: usize) -> PathBuf {
        self.directory.path().join(format!("log{nth}"))
    }

    /// Waits until each running server serves. Returns whether they do, or one has ended, such as one whose port was taken.
    fn until_ready(&self) -> bool {
        let start = Instant::now();
        let running = || (0..self.servers.len()).filter(|nth| self.servers[*nth].is_some());
        loop {
            let is_ready = |nth: usize| {
                let [client, .., secure] = self.ports[nth];
                // The port with TLS is opened after the other one.
                let is_secure =
                    self.certs.is_none() || TcpStream::connect(("127.0.0.1", secure)).is_ok();
                is_secure && ask(client, "srvr").is_some_and(|reply| reply.contains("Mode: "))
            };
            if running().all(is_ready) {
                return true;
            }
            if !running().all(|nth| self.server(nth).alive()) {
                return false;
            }
            let logs = running().map(|nth| fs::read_to_string(self.log(nth)).unwrap_or_default());
            let is_late = start.elapsed() > READY_WITHIN;
            assert!(!is_late, "not ready:\n{}", logs.collect::<String>());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The reply to a command of four letters. `None`: nobody replies.
fn ask(port: u16, command: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(command.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    Some(reply)
}

/// The tests are below the directory of everything that cargo builds.
fn jars() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let mut above = program.ancestors().map(|directory| directory.join(JARS));
    above.find(|jars| jars.join("complete").exists())
}
