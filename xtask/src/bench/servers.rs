//! The Redis servers of a measurement.

use std::env::temp_dir;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::machine;
use super::proxy::Proxy;
use super::work::Deployment;
use crate::tools::{OwnedChild, free_port, output};

/// The number of masters of a lock over many, and of those of a cluster.
const MASTERS: usize = 5;
const CLUSTER: usize = 3;

/// Servers of our own on free ports. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Servers {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    deployment: Deployment,
}

#[derive(Debug)]
struct Server {
    _process: OwnedChild,
    port: u16,
    directory: PathBuf,
}

/// What servers have done since their start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Calls of scripts.
    pub(super) scripts: f64,
    /// Processor time.
    pub(super) cpu_us: f64,
}

impl Servers {
    pub(super) fn start(deployment: Deployment) -> Result<Self, String> {
        let (count, options) = match deployment {
            Deployment::Single | Deployment::Pinned => (1, ""),
            Deployment::Masters | Deployment::DistantMasters | Deployment::DeadMaster => {
                (MASTERS, "")
            }
            Deployment::Cluster => (CLUSTER, "--cluster-enabled yes"),
        };
        let core = (deployment == Deployment::Pinned).then_some(machine::SERVER_CORE);
        let start = |_| Server::start(options, core);
        let mut servers = Self {
            servers: (0..count).map(start).collect::<Result<_, _>>()?,
            proxies: Vec::new(),
            deployment,
        };
        if let Some(delay) = deployment.delay() {
            let ports = servers.servers.iter().map(|server| server.port);
            let proxies = ports.map(|port| Proxy::start(port, delay));
            let proxies: std::io::Result<_> = proxies.collect();
            servers.proxies = proxies.map_err(|error| format!("proxy: {error}"))?;
        }
        if deployment == Deployment::Cluster {
            servers.join()?;
        }
        Ok(servers)
    }

    /// Makes a cluster of the servers.
    fn join(&self) -> Result<(), String> {
        let mut client = Command::new("redis-cli");
        client.args(["--cluster", "create"]);
        client.args(
            self.servers
                .iter()
                .map(|server| format!("127.0.0.1:{}", server.port)),
        );
        output(client.arg("--cluster-yes"))?;
        self.servers.iter().try_for_each(|server| {
            server.wait_for("CLUSTER INFO", "cluster_state:ok")?;
            server.wait_for("CLUSTER INFO", "cluster_known_nodes:3")
        })
    }

    /// The argument of a runner.
    pub(super) fn url(&self) -> String {
        let url = |port: u16| format!("redis://127.0.0.1:{port}/");
        let servers = self.servers.iter().map(|server| url(server.port));
        let urls: Vec<_> = match self.deployment {
            Deployment::Cluster => {
                let first = servers.take(1);
                first
                    .map(|url| url.replace("redis:", "redis+cluster:"))
                    .collect()
            }
            Deployment::DistantMasters | Deployment::DeadMaster => {
                self.proxies.iter().map(|proxy| url(proxy.port)).collect()
            }
            _ => servers.collect(),
        };
        urls.join(",")
    }

    /// Ends the server that shall be dead in the window.
    pub(super) fn end_one(&mut self) {
        if self.deployment == Deployment::DeadMaster {
            self.servers.pop();
        }
    }

    /// The sum over the servers.
    pub(super) fn usage(&self) -> Result<Usage, String> {
        let mut sum = Usage::default();
        for server in &self.servers {
            let usage = Usage::parse(&server.send("INFO all")?);
            sum.scripts += usage.scripts;
            sum.cpu_us += usage.cpu_us;
        }
        Ok(sum)
    }
}

impl Usage {
    /// Reads the reply to `INFO all`.
    pub(super) fn parse(info: &str) -> Self {
        let mut usage = Self::default();
        for (name, value) in info.lines().filter_map(|line| line.split_once(':')) {
            let calls = || value.strip_prefix("calls=")?.split(',').next();
            let number = |text: &str| text.trim().parse().unwrap_or(0.0);
            match name {
                "used_cpu_sys" | "used_cpu_user" => usage.cpu_us += number(value) * 1e6,
                "cmdstat_eval" | "cmdstat_evalsha" | "cmdstat_fcall" => {
                    usage.scripts += calls().map_or(0.0, number);
                }
                _ => {}
            }
        }
        usage
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            scripts: self.scripts - before.scripts,
            cpu_us: self.cpu_us - before.cpu_us,
        }
    }
}

impl Server {
    fn start(options: &str, core: Option<u32>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("redis-server: {error}");
        let port = free_port()?;
        // A node of a cluster writes a file.
        let directory = temp_dir().join(format!("leasehold-compare-{port}"));
        fs::create_dir_all(&directory).map_err(failed)?;
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(options.split_whitespace())
            .current_dir(&directory);
        if let Some(core) = core {
            command = machine::pinned(&command, core);
        }
        let process = command.stdout(Stdio::null()).spawn().map_err(failed)?;
        let server = Self {
            _process: OwnedChild(process),
            port,
            directory,
        };
        server.wait_for("PING", "PONG")?;
        Ok(server)
    }

    fn wait_for(&self, command: &str, expected: &str) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let reply = self.send(command);
            if matches!(&reply, Ok(reply) if reply.contains(expected)) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("{command}: {}", reply?));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a command and returns the reply.
    fn send(&self, command: &str) -> Result<String, String> {
        let mut client = Command::new("redis-cli");
        client.args(["-p", &self.port.to_string()]);
        output(client.args(command.split(' ')))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
