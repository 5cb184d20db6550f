//! A real PostgreSQL server of a test's own.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::supervised::Supervised;
use crate::wait::eventually;

/// How long a server may take to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The user and group `nobody` of every Linux: PostgreSQL refuses to be run by root.
const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// The only user of the server, with all rights.
const USER: &str = "testkit";

/// Makes a database and starts its server, which need not survive a crash. The arguments are the directories of the
/// programs and of the server.
const SCRIPT: &str = r#"
cd "$2" && "$1/initdb" -D data -U testkit -A trust -E UTF8 --locale=C --no-sync || exit
exec "$1/postgres" -D data -c unix_socket_directories="$2" -c listen_addresses= \
    -c fsync=off -c full_page_writes=off -c synchronous_commit=off -c max_wal_senders=0 \
    -c shared_buffers=4MB -c max_connections=20 -c autovacuum=off
"#;

/// A running PostgreSQL server behind a unix socket in a directory of its own. It ends when it is
/// dropped.
pub struct PostgresServer {
    // Declared first, so that the process is gone before its directory is.
    process: Supervised,
    programs: PathBuf,
    directory: TempDir,
}

impl PostgresServer {
    /// Makes a database and starts its server.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is missing or does not come up.
    #[must_use]
    pub fn start() -> Self {
        let programs = programs().expect(
            "PostgreSQL is missing; run cargo xtask test, which installs the package postgresql",
        );
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut argv = Vec::new();
        if geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("a directory of nobody");
            argv.extend(AS_NOBODY);
        }
        let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let (bin, home) = (path(&programs), path(directory.path()));
        argv.extend(["sh", "-c", SCRIPT, "sh", &bin, &home]);
        let log = directory.path().join("server.log");
        let process = Supervised::start(&log, &argv, &[]);
        let server = Self {
            process,
            programs,
            directory,
        };
        server.until_ready(&log);
        server
    }

    /// A command that runs SQL against this server, one statement for each `-c` that is added.
    #[must_use]
    pub fn psql(&self) -> Command {
        Self::psql_at(&self.address())
    }

    /// Where the server is, for [`PostgresServer::run_at`].
    #[must_use]
    pub fn address(&self) -> String {
        let (programs, directory) = (self.programs.display(), self.directory.path().display());
        format!("{programs}:{directory}")
    }

    /// As [`PostgresServer::psql`], for a process that received the address.
    ///
    /// # Panics
    ///
    /// If the address is invalid.
    fn psql_at(address: &str) -> Command {
        let (programs, directory) = address.split_once(':').expect("the address of a server");
        let mut psql = Command::new(Path::new(programs).join("psql"));
        psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER])
            .args(["-d", "postgres", "-h", directory])
            .stdin(Stdio::null());
        psql
    }

    /// Runs statements and returns their results, a line for each row or command.
    ///
    /// # Panics
    ///
    /// If one of them fails.
    pub fn run(&self, statements: &[&str]) -> String {
        Self::run_at(&self.address(), statements)
    }

    /// As [`PostgresServer::run`], for a process that received the address.
    ///
    /// # Panics
    ///
    /// If one of them fails.
    pub fn run_at(address: &str, statements: &[&str]) -> String {
        let mut psql = Self::psql_at(address);
        for statement in statements {
            psql.args(["-c", statement]);
        }
        let output = psql.output().expect("psql can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements:?}: {error}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn until_ready(&self, log: &Path) {
        eventually(TIMEOUT, || {
            let read_log = || fs::read_to_string(log).unwrap_or_default();
            assert!(self.process.alive(), "postgres ended:\n{}", read_log());
            let query = self.psql().args(["-c", "SELECT 1"]).output();
            query.is_ok_and(|query| query.status.success())
        });
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // At once, but with all of its processes; a killed one would leave them behind for a while.
        self.process.signal(Signal::QUIT);
        if !std::thread::panicking() {
            eventually(TIMEOUT, || !self.process.alive());
        }
    }
}

/// Where the programs of PostgreSQL are: the newest version of the distribution's, else in `PATH`.
fn programs() -> Option<PathBuf> {
    let complete = |directory: &PathBuf| {
        let all = ["initdb", "postgres", "psql"];
        all.iter().all(|program| directory.join(program).is_file())
    };
    let version = |directory: &PathBuf| -> Option<u32> {
        let version = directory.parent()?.file_name()?.to_str()?;
        version.parse().ok()
    };
    let installed = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let installed = installed.map(|entry| entry.path().join("bin"));
    let newest = installed.filter(complete).max_by_key(version);
    newest.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(complete)
    })
}
