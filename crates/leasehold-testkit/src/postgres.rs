//! A real PostgreSQL server of a test's own.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use crate::certs::Certs;
use crate::clock::{ClockShim, compile};
use crate::pgbouncer::PgBouncer;
use crate::process::{AS_NOBODY, NOBODY};
use crate::supervised::Supervised;
use crate::wait::{eventually, free_port};

/// How long a server may take to start, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);

const DISK: &str = include_str!("../shim/disk.c");

/// Where Debian keeps the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The settings of a server with TLS. Its files are in the directory above its data.
const TLS: &str = "-c ssl=on -c ssl_ca_file=../ca.pem -c ssl_cert_file=../server.pem -c ssl_key_file=../server.key";

/// The only user of the server, with all rights.
const USER: &str = "testkit";

/// Copies a database unless there is one, and starts its server, which need not survive a crash of the machine. Each process
/// of the server has the lock of a file, so those of a killed server end before the next one begins. The arguments are the
/// directories of the programs and of the server, its port, the server that it follows, if it is a standby, more settings, and
/// the directory of the database that the first server makes and all others copy.
const SCRIPT: &str = r#"
cd "$2" && exec 9> running && flock 9 || exit
if [ ! -e data/PG_VERSION ] && [ -n "$4" ]; then
    "$1/pg_basebackup" -D data -d "$4" -c fast --no-sync && touch data/standby.signal || exit
elif [ ! -e data/PG_VERSION ]; then
    make='[ -e "$1/data" ] || { rm -rf "$1/new" &&
        "$0/initdb" -D "$1/new" -U testkit -A trust -E UTF8 --locale=C --no-sync && mv "$1/new" "$1/data"; }'
    flock "$6" sh -c "$make" "$1" "$6" && cp -R "$6/data" data || exit
fi
exec "$1/postgres" -D data -c unix_socket_directories="$2" -c listen_addresses=127.0.0.1 -c port="$3" \
    -c fsync=off -c full_page_writes=off -c synchronous_commit=off -c max_wal_senders=0 \
    -c shared_buffers=32MB -c max_connections=800 -c autovacuum=off \
    -c primary_conninfo="$4 application_name=standby" $5
"#;

/// A running PostgreSQL server on a port of 127.0.0.1, and behind a unix socket in a directory of its own. It ends when it
/// is dropped.
pub struct PostgresServer {
    // Declared first, so that the processes are gone before the directory is.
    pooler: Option<PgBouncer>,
    process: Supervised,
    programs: PathBuf,
    directory: TempDir,
    /// The database of which its own was a copy at first.
    template: Arc<TempDir>,
    port: u16,
    setup: Setup,
}

/// What is special about a server.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) clock: Option<ClockShim>,
    /// The shim of a disk, and the file that exists while it is full.
    pub(crate) disk: Option<[PathBuf; 2]>,
    /// The [`PostgresServer::connection`] of its primary, if it is a standby.
    pub(crate) follows: String,
    /// More settings.
    pub(crate) settings: &'static str,
}

impl PostgresServer {
    /// Makes a database and starts its server.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is missing or does not come up.
    #[must_use]
    pub fn start() -> Self {
        Self::start_on(|_| Setup::default())
    }

    /// The same with a wall clock that [`PostgresServer::step_clock`] moves.
    ///
    /// # Panics
    ///
    /// If PostgreSQL or a C compiler is missing, or the server does not come up.
    #[must_use]
    pub fn start_with_clock() -> Self {
        Self::start_on(|_| Setup {
            clock: Some(ClockShim::build()),
            ..Setup::default()
        })
    }

    /// The same with a disk that [`PostgresServer::set_full`] fills.
    ///
    /// # Panics
    ///
    /// If PostgreSQL or a C compiler is missing, or the server does not come up.
    #[must_use]
    pub fn start_with_disk() -> Self {
        Self::start_on(|directory| Setup {
            disk: Some([
                compile(directory, "disk", DISK),
                directory.join("disk.full"),
            ]),
            ..Setup::default()
        })
    }

    /// The same with TLS. It knows clients that the same authority has signed.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is missing or does not come up.
    #[must_use]
    pub fn start_with_tls(certs: &Certs) -> Self {
        Self::start_on(|directory| {
            for file in [&certs.ca, &certs.server, &certs.server_key] {
                let copy = directory.join(file.file_name().expect("the name of a file"));
                fs::copy(file, &copy).expect("a file of the server");
                // It refuses a key that others can read.
                let own = Permissions::from_mode(0o600);
                fs::set_permissions(&copy, own).expect("a file of the server");
                give_to_server(&copy);
            }
            Setup {
                settings: TLS,
                ..Setup::default()
            }
        })
    }

    pub(crate) fn start_on(setup: impl FnOnce(&Path) -> Setup) -> Self {
        let programs = programs().expect(
            "PostgreSQL is missing; run cargo xtask test, which installs the package postgresql",
        );
        let (directory, template) = (directory(), template());
        let (port, setup) = (free_port(), setup(directory.path()));
        let paths = [&*programs, directory.path(), template.path()];
        let mut server = Self {
            pooler: None,
            process: start_process(paths, port, &setup),
            programs,
            directory,
            template,
            port,
            setup,
        };
        server.until_ready();
        server.pooler = PgBouncer::of_environment(port);
        server
    }

    /// The URL of its database for the user with all rights, as a client reaches it.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.pooler {
            Some(pooler) => pooler.url(USER, "postgres"),
            None => format!("postgres://{USER}@127.0.0.1:{}/postgres", self.port),
        }
    }

    /// The directory of its socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its port, also in the name of its socket.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Kills its first process, the postmaster, and starts it again when the others have ended.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self) {
        self.crash();
        self.launch();
    }

    /// Kills its first process. The others end when they notice it, unless they are stopped.
    pub(crate) fn crash(&self) {
        self.process.signal(Signal::KILL);
        eventually(TIMEOUT, || !self.process.alive());
    }

    /// Starts it after a crash, as the standby of a server that it copies.
    pub(crate) fn follow(&mut self, follows: String) {
        let seconds = TIMEOUT.as_secs().to_string();
        let mut remove = Command::new("flock");
        remove.args(["-w", &seconds, "running", "rm", "-rf", "data"]);
        let removed = remove.current_dir(self.directory.path()).status();
        assert!(removed.is_ok_and(|it| it.success()), "its data is in use");
        self.setup.follows = follows;
        self.launch();
    }

    /// How a standby connects to it.
    pub(crate) fn connection(&self) -> String {
        let directory = self.directory.path().display();
        format!("host={directory} port={} user={USER}", self.port)
    }

    fn launch(&mut self) {
        // PostgreSQL takes the id of a process that is not reaped for a running server.
        self.process.reap();
        let paths = [&*self.programs, self.directory.path(), self.template.path()];
        self.process = start_process(paths, self.port, &self.setup);
        self.until_ready();
    }

    /// Fills its disk, or makes room: no file of it can grow while the disk is full.
    ///
    /// # Panics
    ///
    /// If it was not started with such a disk.
    pub fn set_full(&self, full: bool) {
        let disk = self.setup.disk.as_ref();
        let [_, file] = disk.expect("a server with a disk of its own");
        match full {
            true => drop(File::create(file).expect("the file of a full disk")),
            false => fs::remove_file(file).expect("the file of a full disk"),
        }
    }

    /// Moves its wall clock by so many milliseconds.
    ///
    /// # Panics
    ///
    /// If it was not started with a clock of its own.
    pub fn step_clock(&self, delta_ms: i64) {
        let clock = self.setup.clock.as_ref();
        clock
            .expect("a server with a clock of its own")
            .step(delta_ms);
    }

    /// Lets its wall clock run a thousand times slower from now on.
    ///
    /// # Panics
    ///
    /// If it was not started with a clock of its own.
    pub fn slow_clock(&self) {
        let clock = self.setup.clock.as_ref();
        clock.expect("a server with a clock of its own").slow_down();
    }

    /// Adds a rule before those of its `pg_hba.conf`, and waits until it is in force.
    ///
    /// # Panics
    ///
    /// If its settings cannot be changed.
    pub fn add_rule(&self, rule: &str) {
        let file = self.directory.path().join("data/pg_hba.conf");
        let rules = fs::read_to_string(&file).expect("the rules of its access");
        fs::write(&file, format!("{rule}\n{rules}")).expect("the rules of its access");
        // A new session has the time at which the server has read its settings.
        let read_at = || self.run(&["SELECT pg_conf_load_time()"]);
        let before = read_at();
        self.run(&["SELECT pg_reload_conf()"]);
        eventually(TIMEOUT, || read_at() != before);
    }

    /// A command that runs SQL against this server, one statement for each `-c` that is added.
    #[must_use]
    pub fn psql(&self) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", USER])
            .args(["-d", "postgres", "-p", &self.port.to_string(), "-h"])
            .arg(self.directory.path())
            .stdin(Stdio::null());
        psql
    }

    /// Runs statements and returns their results, a line for each row or command.
    ///
    /// # Panics
    ///
    /// If one of them fails.
    pub fn run(&self, statements: &[&str]) -> String {
        let mut psql = self.psql();
        for statement in statements {
            psql.args(["-c", statement]);
        }
        let output = psql.output().expect("psql can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{statements:?}: {error}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn until_ready(&self) {
        let socket = self
            .directory
            .path()
            .join(format!(".s.PGSQL.{}", self.port));
        let ready = self.process.until_ready(TIMEOUT, || {
            // The program takes longer to start than the server.
            if UnixStream::connect(&socket).is_err() {
                return false;
            }
            let query = self.psql().args(["-c", "SELECT 1"]).output();
            query.is_ok_and(|query| query.status.success())
        });
        ready.unwrap_or_else(|log| panic!("postgres ended:\n{log}"));
    }
}

/// A directory of the user that runs the servers.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    give_to_server(directory.path());
    directory
}

/// Gives a path to the user that runs the servers.
fn give_to_server(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("a path of nobody");
    }
}

/// The directory of the database that all servers of this process copy.
fn template() -> Arc<TempDir> {
    static USED: Mutex<Weak<TempDir>> = Mutex::new(Weak::new());
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    used.upgrade().unwrap_or_else(|| {
        let new = Arc::new(directory());
        *used = Arc::downgrade(&new);
        new
    })
}

fn start_process(paths: [&Path; 3], port: u16, setup: &Setup) -> Supervised {
    let [bin, home, template] = paths.map(|path| path.to_str().expect("a plain path"));
    let port = port.to_string();
    let mut argv = Vec::new();
    if geteuid().is_root() {
        argv.extend(AS_NOBODY);
    }
    argv.extend(["sh", "-c", SCRIPT, "sh", bin, home, &port]);
    argv.extend([&*setup.follows, setup.settings, template]);
    let clock = setup.clock.as_ref().map(ClockShim::env);
    let env = clock.or(match &setup.disk {
        Some([library, full]) => Some([("LD_PRELOAD", &**library), ("DISK_FULL_FILE", &**full)]),
        None => None,
    });
    let env = env.as_ref().map_or(&[][..], |env| &env[..]);
    Supervised::start(&Path::new(home).join("server.log"), &argv, env)
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

/// Where the programs of PostgreSQL are: in `PATH`, else the newest version of the distribution's.
fn programs() -> Option<PathBuf> {
    let complete = |directory: &PathBuf| {
        let all = ["initdb", "pg_basebackup", "postgres", "psql"];
        all.iter().all(|program| directory.join(program).is_file())
    };
    let version = |directory: &PathBuf| -> Option<u32> {
        let version = directory.parent()?.file_name()?.to_str()?;
        version.parse().ok()
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).find(complete).or_else(|| {
        let installed = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
        let installed = installed.map(|entry| entry.path().join("bin"));
        installed.filter(complete).max_by_key(version)
    })
}
