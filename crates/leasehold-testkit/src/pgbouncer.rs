//! PgBouncer in transaction mode, in front of a PostgreSQL server.

use std::env;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::Path;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::process::{AS_NOBODY, LINE_TIMEOUT, NOBODY};
use crate::supervised::Supervised;
use crate::wait::free_port;

/// The variable with the path of the program. `cargo xtask matrix` sets it: all clients reach their server through it.
const PROGRAM: &str = "TESTKIT_PGBOUNCER";

/// The variable that is set if notifications take the direct way.
const LISTEN: &str = "TESTKIT_LISTEN";

/// A pooler that lends its connections for a transaction each. It ends when it is dropped.
pub(crate) struct PgBouncer {
    // Declared first, so that the process is gone before its directory is.
    _process: Supervised,
    _directory: TempDir,
    port: u16,
    server: u16,
}

impl PgBouncer {
    /// Starts the program that the environment names, in front of the server at a port of 127.0.0.1. `None`: it names none.
    pub(crate) fn of_environment(server: u16) -> Option<Self> {
        let program = env::var(PROGRAM).ok()?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (port, home) = (free_port(), directory.path());
        let file = |name: &str, text: &str| {
            let path = home.join(name);
            fs::write(&path, text).expect("a file in the temporary directory");
            path.to_str().expect("a plain path").to_owned()
        };
        let users = file("users.txt", "\"testkit\" \"\"\n\"app\" \"\"\n");
        let config = file(
            "pgbouncer.ini",
            &format!(
                "[databases]\n* = host=127.0.0.1 port={server}\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = trust\nauth_file = {users}\npool_mode = transaction\n\
                 default_pool_size = 8\nmax_client_conn = 1000\n"
            ),
        );
        let mut argv = Vec::new();
        if geteuid().is_root() {
            for path in [home, Path::new(&users), Path::new(&config)] {
                chown(path, Some(NOBODY), Some(NOBODY)).expect("a file of nobody");
            }
            argv.extend(AS_NOBODY);
        }
        argv.extend([&*program, &*config]);
        let process = Supervised::start(&home.join("pgbouncer.log"), &argv, &[]);
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let ready = process.until_ready(LINE_TIMEOUT, listens);
        ready.unwrap_or_else(|log| panic!("pgbouncer ended:\n{log}"));
        Some(Self {
            _process: process,
            _directory: directory,
            port,
            server,
        })
    }

    /// The URL for a role, by which a client reaches the database.
    pub(crate) fn url(&self, role: &str, database: &str) -> String {
        let at = |port: u16| format!("postgres://{role}@127.0.0.1:{port}/{database}");
        match env::var_os(LISTEN) {
            Some(_) => format!("{}?listen={}", at(self.port), at(self.server)),
            None => at(self.port),
        }
    }
}
