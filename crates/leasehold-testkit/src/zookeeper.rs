//! A real ZooKeeper ensemble of a test's own: one server, or three.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::certs::Certs;
use crate::members::{Members, Program};
use crate::wait::addresses;

/// The archives of ZooKeeper, in the directory of everything that cargo builds.
const JARS: &str = "zookeeper";

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// Options of a [`ZookeeperServer`].
#[derive(Clone, Debug, Default)]
pub struct Zookeeper {
    /// Further lines of the configuration.
    lines: String,
    /// Whether a server that has lost the majority can be read.
    has_read_only_mode: bool,
}

/// Running servers of ZooKeeper. Their ports are for clients, for the other servers, for their elections, and for clients
/// over TLS.
pub type ZookeeperServer = Members<Zookeeper>;

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
        let program = Zookeeper {
            lines: lines.to_owned(),
            ..Zookeeper::default()
        };
        Self::begin(count, &program, None)
    }

    /// Three servers, each of which can be read if it has lost the others.
    ///
    /// # Panics
    ///
    /// As [`ZookeeperServer::with`].
    #[must_use]
    pub fn with_read_only_mode() -> Self {
        let program = Zookeeper {
            has_read_only_mode: true,
            ..Zookeeper::default()
        };
        Self::begin(3, &program, None)
    }

    /// One server, whose URL is over TLS with a certificate for `localhost` and `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// As [`ZookeeperServer::with`].
    #[must_use]
    pub fn tls() -> Self {
        let certs = Arc::new(Certs::make());
        Self::begin(1, &Zookeeper::default(), Some(&certs))
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
        let hosts = addresses("127.0.0.1", self.ports.iter().map(|ports| ports[nth]));
        format!("{scheme}://{credentials}{hosts}{path}{query}")
    }

    /// The number of the server that leads, or of the only one. `None`: there is no leader now.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        self.running().find(|nth| {
            let reply = ask(self.port(*nth), "srvr").unwrap_or_default();
            reply.contains("Mode: leader") || reply.contains("Mode: standalone")
        })
    }

    /// The number of all nodes but the descriptions of clients in the default keyspace. `None`: nobody replies.
    #[must_use]
    pub fn nodes(&self) -> Option<usize> {
        self.running().find_map(|nth| {
            let reply = ask(self.port(nth), "srvr")?;
            let mut lines = reply.lines();
            let count = lines.find_map(|line| line.strip_prefix("Node count: "))?;
            let count: usize = count.trim().parse().ok()?;
            let documents = children(self.port(nth), "/leasehold/doc/leasehold/default")?;
            Some(count - documents.iter().filter(|byte| **byte == b'{').count())
        })
    }

    /// Closes a session that has nodes, as a client that has its id and its password. `None`: there is none, or it has ended.
    pub fn close_session(&self, drawn: usize) -> Option<()> {
        // A server without a majority knows none.
        let mut ports = self.running().map(|nth| self.port(nth));
        ports.find_map(|port| close_session(port, drawn))
    }

    /// Whether a session has a node.
    #[must_use]
    pub fn has_ephemeral(&self, path: &str) -> bool {
        let mut dumps = self.running().filter_map(|nth| ask(self.port(nth), "dump"));
        dumps.any(|dump| dump.lines().any(|line| line.trim() == path))
    }
}

impl Program for Zookeeper {
    const PORT_TAKEN: &'static str = "";

    fn command(members: &ZookeeperServer, nth: usize) -> Vec<String> {
        let jars = jars().expect("ZooKeeper is missing; run cargo xtask test, which fetches it");
        let data = members.data(nth);
        fs::create_dir_all(&data).expect("a directory for the data");
        fs::write(data.join("myid"), nth.to_string()).expect("the id of a server");
        let client = members.ports[nth][0];
        let mut config = format!(
            "tickTime=500\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={client}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,dump\n\
             maxClientCnxns=0\nforceSync=no\n{}\n",
            data.display(),
            members.program.lines
        );
        if members.ports.len() > 1 {
            for (nth, [_, peer, election, _]) in members.ports.iter().enumerate() {
                // Writing to a string does not fail.
                let _ = writeln!(config, "server.{nth}=127.0.0.1:{peer}:{election}");
            }
        }
        if let Some(certs) = &members.certs {
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
                members.ports[nth][3],
                pem.display()
            );
        }
        let file = data.join("zoo.cfg");
        fs::write(&file, config).expect("a configuration");
        let (jars, file) = (format!("{}/*", jars.display()), file.display().to_string());
        let options = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let is_readable = members.program.has_read_only_mode;
        let read_only = format!("-Dreadonlymode.enabled={is_readable}");
        let options = [&["java", &read_only][..], &options].concat();
        let argv = [&options[..], &["-cp", &jars, MAIN, &file]].concat();
        argv.into_iter().map(str::to_owned).collect()
    }

    fn is_ready(members: &ZookeeperServer, nth: usize) -> bool {
        let [client, .., secure] = members.ports[nth];
        // The port with TLS is opened after the other one.
        let is_secure =
            members.certs.is_none() || TcpStream::connect(("127.0.0.1", secure)).is_ok();
        is_secure && ask(client, "srvr").is_some_and(|reply| reply.contains("Mode: "))
    }
}

/// The password of a session, which its server makes by Java's `Random` from its id.
fn password(id: u64) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    let mut state = id ^ 0xB341_5C00 ^ MULTIPLIER;
    let mut next = || {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(11);
        // The upper 32 of 48 bits.
        ((state >> 16) as u32).to_le_bytes()
    };
    (0..4).flat_map(|_| next()).collect()
}

fn close_session(port: u16, drawn: usize) -> Option<()> {
    let dump = ask(port, "dump")?;
    // The line above the nodes of a session.
    let lines = dump.lines();
    let ids = lines.filter_map(|line| line.strip_prefix("0x")?.strip_suffix(':'));
    let ids: Vec<_> = ids.collect();
    let id = u64::from_str_radix(ids.get(drawn % ids.len().max(1))?, 16).ok()?;
    // The number of the request, which no other one of the session has, and its kind.
    let close = [i32::MAX, -11].map(i32::to_be_bytes).concat();
    request(port, id, &close).map(drop)
}

/// The reply to a request for the names of the children of a node, where the node is there.
fn children(port: u16, path: &str) -> Option<Vec<u8>> {
    let length = i32::try_from(path.len()).ok()?;
    let head = [1, 8, length].map(i32::to_be_bytes).concat();
    // Without a watch.
    request(port, 0, &[&head, path.as_bytes(), &[0]].concat())
}

/// The reply to a request in a session, 0 for a new one. `None`: nobody replies.
fn request(port: u16, session: u64, request: &[u8]) -> Option<Vec<u8>> {
    let connect = [
        // The version, and the last transaction that was seen.
        &[0_u8; 12][..],
        &10_000_u32.to_be_bytes(),
        &session.to_be_bytes(),
        &16_u32.to_be_bytes(),
        &password(session),
        // Not to read from a server without a majority.
        &[0_u8],
    ]
    .concat();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    let mut reply = Vec::new();
    for body in [&connect, request] {
        let length = u32::try_from(body.len()).ok()?.to_be_bytes();
        stream.write_all(&[&length, body].concat()).ok()?;
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        reply.resize(u32::from_be_bytes(length) as usize, 0);
        stream.read_exact(&mut reply).ok()?;
    }
    Some(reply)
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
