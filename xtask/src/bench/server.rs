//! The Redis servers of a comparison.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::tools::{OwnedChild, output};

/// A server of our own on a free port. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    _process: OwnedChild,
    port: u16,
}

/// The number of masters of a lock over many.
const MASTERS: usize = 5;

/// A single server, and the masters of locks over many.
#[derive(Debug)]
pub(super) struct Servers {
    one: [Server; 1],
    masters: Vec<Server>,
}

impl Servers {
    pub(super) fn start() -> Result<Self, String> {
        let masters = (0..MASTERS).map(|_| Server::start());
        Ok(Self {
            one: [Server::start()?],
            masters: masters.collect::<Result<_, _>>()?,
        })
    }

    /// The single server, or the masters.
    pub(super) fn of(&self, many: bool) -> &[Server] {
        if many { &self.masters } else { &self.one }
    }

    pub(super) fn version(&self) -> Result<String, String> {
        self.one[0].version()
    }
}

/// The commands that a server ran.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calls {
    /// Calls of scripts, and the commands that some libraries lock with instead.
    pub(super) locks: u64,
    /// All that came from clients or scripts.
    pub(super) all: u64,
}

impl Calls {
    /// The sum over servers.
    pub(super) fn of(servers: &[Server]) -> Result<Self, String> {
        let mut sum = Self::default();
        for server in servers {
            let calls = server.calls()?;
            sum.locks += calls.locks;
            sum.all += calls.all;
        }
        Ok(sum)
    }
}

impl Server {
    fn start() -> Result<Self, String> {
        crate::servers::ensure_redis()?;
        let failed = |error: std::io::Error| format!("redis-server: {error}");
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(failed)?
            .port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let server = Self {
            _process: OwnedChild(child),
            port,
        };
        let end = Instant::now() + Duration::from_secs(10);
        while let Err(error) = server.send("PING") {
            if Instant::now() > end {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn flush(&self) -> Result<(), String> {
        self.send("FLUSHALL").map(drop)
    }

    fn version(&self) -> Result<String, String> {
        let info = self.send("INFO server")?;
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        Ok(line.unwrap_or_default().trim().to_owned())
    }

    fn calls(&self) -> Result<Calls, String> {
        let mut calls = Calls::default();
        for line in self.send("INFO commandstats")?.lines() {
            let Some((command, stats)) = line.split_once(":calls=") else {
                continue;
            };
            let number = stats.split(',').next().unwrap_or_default();
            let number: u64 = number.parse().unwrap_or(0);
            calls.all += number;
            if let "cmdstat_eval" | "cmdstat_evalsha" | "cmdstat_fcall" = command {
                calls.locks += number;
            }
        }
        Ok(calls)
    }

    /// Sends a command and returns the reply.
    fn send(&self, command: &str) -> Result<String, String> {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &self.port.to_string()]);
        output(client.args(command.split(' ')))
    }
}
