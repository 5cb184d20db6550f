//! A real server of buckets of a test's own: moto, which keeps objects in memory, or one of `cargo xtask matrix`.

use std::env;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::supervised::Supervised;
use crate::wait::free_port;

/// How long a server may take to start.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The Python with moto and psycopg, in the directory of everything that cargo builds.
const PYTHON: &str = "moto/bin/python";

/// The bucket that every server has.
const BUCKET: &str = "locks";

/// The variable with the path of another program than moto. `cargo xtask matrix` sets it.
const PROGRAM: &str = "TESTKIT_BUCKETS";

/// The account of Azurite, and a signature with its public key for requests that create, write and list.
const ACCOUNT: &str = "/devstoreaccount1";
const SIGNATURE: &str = "sv=2018-11-09&ss=b&srt=co&sp=rwlc&se=2999-01-01\
                         &sig=mkEUT0gpqwKEUS%2BVwLziRJqn%2B3k992V8YAILlOZbCoU%3D";
const AZURITE_OPTIONS: &str =
    "--blobHost 127.0.0.1 --inMemoryPersistence --silent --disableTelemetry";

/// The options of SeaweedFS, and those that each name a port of their own.
const OPTIONS: &str = "-logtostderr=true server -s3=true -s3.autoCreateBucket=false -s3.port.iceberg=0 \
                       -s3.port.lance=0 -ip=127.0.0.1 -ip.bind=127.0.0.1 -volume.max=100 \
                       -master.volumeSizeLimitMB=64 -master.telemetry=false";
const PORTS: &str = "s3.port.grpc master.port master.port.grpc volume.port volume.port.grpc filer.port filer.port.grpc";

/// Serves one request at a time: moto itself checks a condition and writes in two steps. It also keeps all objects that there
/// ever were, to end them together.
const SCRIPT: &str = r#"
import sys, threading
from moto.s3.models import FakeKey
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
FakeKey.__new__ = staticmethod(lambda cls, *_, **__: object.__new__(cls))
moto, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()
def serve(environ, start_response):
    with lock:
        return moto(environ, start_response)
run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
"#;

/// A running server of buckets on a port of 127.0.0.1, which accepts any credentials. It ends when it is dropped.
pub struct BucketServer {
    // Declared first, so that the process is gone before the directory is.
    process: Supervised,
    _directory: TempDir,
    port: u16,
}

impl BucketServer {
    /// Starts a server, and makes a bucket.
    ///
    /// # Panics
    ///
    /// If the program is missing or does not come up.
    #[must_use]
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (port, log) = (free_port(), directory.path().join("server.log"));
        let service = Service::of_environment();
        let process = Supervised::start(&log, service.command(port, directory.path()), &[]);
        let is_done = |target: &str, text: &str| {
            let reply = request(port, "PUT", target, text).unwrap_or_default();
            let status = reply.lines().next();
            status.is_some_and(|status| status.contains(" 200 ") || status.contains(" 201 "))
        };
        let [bucket, object, _] = service.targets();
        let is_ready = || {
            is_done(&bucket, "");
            is_done(&object, "ready")
        };
        let ready = process.until_ready(TIMEOUT, is_ready);
        ready.unwrap_or_else(|log| panic!("the server of buckets ended:\n{log}"));
        Self {
            process,
            _directory: directory,
            port,
        }
    }

    /// The bucket, and a prefix that no other store has.
    #[must_use]
    pub fn fresh_path() -> String {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("{BUCKET}/{}", NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// The URL of a store below a prefix that no other has.
    #[must_use]
    pub fn url(&self) -> String {
        Self::url_at(self.port, &Self::fresh_path())
    }

    /// The URL of a store in a bucket, with or without a prefix, of the server at a port, which may be that of a proxy.
    #[must_use]
    pub fn url_at(port: u16, path: &str) -> String {
        let (scheme, account) = match Service::of_environment() {
            Service::Moto | Service::Seaweedfs(_) => ("s3", ""),
            Service::Azurite(_) => ("az", ACCOUNT),
        };
        format!("{scheme}://{path}?endpoint=http://127.0.0.1:{port}{account}&allow-http")
    }

    /// The number of all objects but the descriptions of clients, of the first 1,000. `None`: nobody replies.
    #[must_use]
    pub fn objects(&self) -> Option<usize> {
        let [_, _, list] = Service::of_environment().targets();
        let reply = request(self.port, "GET", &list, "")?;
        let [keys, blobs, clients] =
            ["<Key>", "<Blob>", "%7B"].map(|part| reply.matches(part).count());
        Some(keys + blobs - clients)
    }

    /// Stops it: it keeps its connections and replies to nothing.
    pub fn pause(&self) {
        self.process.stop();
    }

    /// Lets it go on after a stop.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// Which server it is. All but moto serve requests at the same time, and have the path of their program.
enum Service {
    Moto,
    Seaweedfs(String),
    Azurite(String),
}

impl Service {
    fn of_environment() -> Self {
        let Ok(path) = env::var(PROGRAM) else {
            return Self::Moto;
        };
        let program = path.rsplit('/').next().unwrap_or_default();
        match program {
            "weed" => Self::Seaweedfs(path),
            "azurite-blob" => Self::Azurite(path),
            _ => panic!("{PROGRAM}={path}: no known server of buckets"),
        }
    }

    /// The command that serves at a port.
    fn command(&self, port: u16, directory: &Path) -> Vec<String> {
        match self {
            Self::Moto => moto(port),
            Self::Seaweedfs(path) => seaweedfs(path, port, directory),
            Self::Azurite(path) => {
                let port = port.to_string();
                let command = [path.as_str(), "--blobPort", &port].into_iter();
                let argv = command.chain(AZURITE_OPTIONS.split(' '));
                argv.map(str::to_owned).collect()
            }
        }
    }

    /// The targets of requests for the bucket, an object in it, and the list of its objects.
    fn targets(&self) -> [String; 3] {
        match self {
            Self::Azurite(_) => [
                format!("{ACCOUNT}/{BUCKET}?restype=container&{SIGNATURE}"),
                format!("{ACCOUNT}/{BUCKET}/ready?{SIGNATURE}"),
                format!("{ACCOUNT}/{BUCKET}?restype=container&comp=list&{SIGNATURE}"),
            ],
            _ => ["", "/ready", "?list-type=2"].map(|rest| format!("/{BUCKET}{rest}")),
        }
    }
}

/// The command of moto.
fn moto(port: u16) -> Vec<String> {
    let python = python().expect("moto is missing; run cargo xtask test, which installs it");
    let (python, port) = (python.to_str().expect("a plain path"), port.to_string());
    [python, "-c", SCRIPT, &port].map(str::to_owned).to_vec()
}

/// The command of SeaweedFS, which would accept only the credentials in its environment.
fn seaweedfs(program: &str, port: u16, directory: &Path) -> Vec<String> {
    let name_max = "WEED_FILER_OPTIONS_MAX_FILE_NAME_LENGTH=1024";
    let command = ["env", "-u", "AWS_ACCESS_KEY_ID", name_max, program];
    let directory = directory.display();
    let own = [
        format!("-dir={directory}"),
        format!("-filer.localSocket={directory}/filer.sock"),
        format!("-s3.localSocket={directory}/s3.sock"),
        format!("-s3.port={port}"),
    ];
    let ports = PORTS.split(' ');
    let ports = ports.map(|option| format!("-{option}={}", free_port()));
    let argv = command.into_iter().chain(OPTIONS.split(' '));
    argv.map(str::to_owned).chain(own).chain(ports).collect()
}

/// The reply to a request with a text. `None`: nobody replies.
fn request(port: u16, method: &str, target: &str, text: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(TIMEOUT)).ok()?;
    let length = text.len();
    // Azurite needs the type of a new object.
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n\
         x-ms-blob-type: BlockBlob\r\nConnection: close\r\n\r\n{text}"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    Some(reply)
}

/// The Python with moto and psycopg, if it is installed.
#[must_use]
pub fn python() -> Option<PathBuf> {
    // The tests are below the directory of everything that cargo builds.
    let program = env::current_exe().ok()?;
    let mut above = program.ancestors().map(|directory| directory.join(PYTHON));
    above.find(|python| python.exists())
}
