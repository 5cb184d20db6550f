//! The monitored system: a store, a node of the watchdog, services with the library, and Prometheus.

use std::env;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::programs::{listens, start};
use super::prometheus::Prometheus;
use crate::tools::{OwnedChild, free_port};

/// The number of services. The node has room for as many clients.
pub(super) const SERVICES: usize = 3;

/// The socket of the node.
const SOCKET: &str = "watchdog.sock";

/// All processes. They end when this is dropped.
#[derive(Debug)]
pub(super) struct System {
    pub(super) prometheus: Prometheus,
    services: Vec<Service>,
    pub(super) node: Option<OwnedChild>,
    redis: OwnedChild,
    programs: PathBuf,
    directory: PathBuf,
    store: String,
}

/// A process of the example, and the address of its metrics.
#[derive(Debug)]
struct Service {
    address: String,
    process: Option<OwnedChild>,
}

impl System {
    /// Starts everything but the last service, with files in a directory.
    pub(super) fn start(directory: &Path) -> Result<Self, String> {
        let this = env::current_exe().map_err(|error| format!("path of this program: {error}"))?;
        let programs = this.parent().unwrap_or(&this).to_owned();

        let port = free_port()?.to_string();
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", "127.0.0.1", "--save", "", "--port", &port]);
        let address = format!("127.0.0.1:{port}");
        let redis = start(&mut redis, directory, "redis", || listens(&address))?;
        let store = format!("redis://{address}");

        let metrics = format!("127.0.0.1:{}", free_port()?);
        let mut node = Command::new(programs.join("leasehold"));
        node.args(["watchdog", "--store", &store, "--metrics", &metrics]);
        node.args(["--max-clients", &SERVICES.to_string()]);
        node.args(["--listen", &socket_address(directory)]);
        let node = start(&mut node, directory, "node", || listens(&metrics))?;

        let service = |_| {
            Ok(Service {
                address: format!("127.0.0.1:{}", free_port()?),
                process: None,
            })
        };
        let services: Vec<_> = (0..SERVICES).map(service).collect::<Result<_, String>>()?;
        let addresses: Vec<_> = services.iter().map(|it| it.address.clone()).collect();
        let mut system = Self {
            prometheus: Prometheus::start(directory, &metrics, &addresses)?,
            services,
            node: Some(node),
            redis,
            programs,
            directory: directory.to_owned(),
            store,
        };
        for service in 0..SERVICES - 1 {
            system.start_service(service)?;
        }
        Ok(system)
    }

    pub(super) fn start_service(&mut self, index: usize) -> Result<(), String> {
        let service = &mut self.services[index];
        let node = socket_address(&self.directory);
        let mut process = Command::new(self.programs.join("examples/metrics"));
        process.args([&self.store, &service.address, &node]);
        let log = format!("service-{index}");
        let ready = || listens(&service.address);
        service.process = Some(start(&mut process, &self.directory, &log, ready)?);
        Ok(())
    }

    /// Kills a service.
    pub(super) fn kill_service(&mut self, index: usize) {
        self.services[index].process = None;
    }

    pub(super) fn signal_service(&self, index: usize, signal: Signal) -> Result<(), String> {
        let process = self.services[index].process.as_ref();
        process.map_or(Ok(()), |process| send(process, signal))
    }

    pub(super) fn signal_store(&self, signal: Signal) -> Result<(), String> {
        send(&self.redis, signal)
    }

    /// A service as Prometheus names it.
    pub(super) fn instance(&self, index: usize) -> &str {
        &self.services[index].address
    }

    /// A connection to the node.
    pub(super) fn connect_node(&self) -> Result<UnixStream, String> {
        UnixStream::connect(self.directory.join(SOCKET)).map_err(|error| error.to_string())
    }
}

fn socket_address(directory: &Path) -> String {
    format!("unix:{}", directory.join(SOCKET).display())
}

fn send(process: &OwnedChild, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(&process.0), signal).map_err(|error| error.to_string())
}
