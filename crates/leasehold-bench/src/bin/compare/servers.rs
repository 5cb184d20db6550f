//! The servers of a measurement.

use leasehold_testkit::{Cluster, EtcdCluster, RedisServer, ZookeeperServer};

use super::machine;
use super::proxy::Proxy;
use super::server_stats::ServerStats;
use super::work::Deployment;

/// The number of masters of a lock over many.
const MASTERS: usize = 5;

/// Sessions may be as long as the leases of the runners.
const ZOOKEEPER_LINES: &str = "maxSessionTimeout=30000";

/// The archives of ZooKeeper, whose paths contain its version.
const ZOOKEEPER: &str = include_str!("../../../../../xtask/src/zookeeper.txt");

/// Servers of our own on free ports. They end when this is dropped.
pub(super) struct Servers {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
    cluster: Option<Cluster>,
    etcd: Option<EtcdCluster>,
    zookeeper: Option<ZookeeperServer>,
    deployment: Deployment,
}

impl Servers {
    pub(super) fn start(deployment: Deployment) -> Result<Self, String> {
        let count = match deployment {
            Deployment::Single | Deployment::Pinned => 1,
            Deployment::Masters | Deployment::DistantMasters | Deployment::DeadMaster => MASTERS,
            Deployment::Cluster | Deployment::Etcd | Deployment::Zookeeper => 0,
        };
        let servers: Vec<_> = (0..count).map(|_| RedisServer::start()).collect();
        if deployment == Deployment::Pinned {
            machine::pin(servers[0].pid(), machine::SERVER_CORE)?;
        }
        let proxies = deployment.delay().map_or(Ok(Vec::new()), |delay| {
            let proxies = servers
                .iter()
                .map(|server| Proxy::start(server.port(), delay));
            proxies.collect::<std::io::Result<_>>()
        });
        Ok(Self {
            servers,
            proxies: proxies.map_err(|error| format!("proxy: {error}"))?,
            cluster: (deployment == Deployment::Cluster).then(Cluster::without_replicas),
            etcd: (deployment == Deployment::Etcd).then(EtcdCluster::start),
            zookeeper: (deployment == Deployment::Zookeeper)
                .then(|| ZookeeperServer::with(1, ZOOKEEPER_LINES)),
            deployment,
        })
    }

    /// The argument of a runner.
    pub(super) fn url(&self) -> String {
        if let Some(etcd) = &self.etcd {
            return etcd.url();
        }
        if let Some(zookeeper) = &self.zookeeper {
            return zookeeper.url();
        }
        if let Some(cluster) = &self.cluster {
            // Several addresses would be those of many masters.
            return format!("redis+cluster://127.0.0.1:{}/", cluster.nodes()[0].port());
        }
        let proxies = self.proxies.iter().map(|proxy| proxy.port);
        let ports: Vec<_> = match self.deployment {
            Deployment::DistantMasters | Deployment::DeadMaster => proxies.collect(),
            _ => self.servers.iter().map(RedisServer::port).collect(),
        };
        let urls = ports
            .iter()
            .map(|port| format!("redis://127.0.0.1:{port}/"));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Ends the server that shall be dead in the window.
    pub(super) fn end_one(&mut self) {
        if self.deployment == Deployment::DeadMaster {
            self.servers.pop();
        }
    }

    /// What the servers have done since their start. `None`: etcd and ZooKeeper do not count that.
    pub(super) fn stats(&self) -> Option<ServerStats> {
        let nodes = self.cluster.iter().flat_map(Cluster::nodes);
        let stats = self.servers.iter().chain(nodes).map(|server| {
            let info = server.cli(&["INFO", "all"]);
            ServerStats::parse(info.lines())
        });
        stats.reduce(std::ops::Add::add)
    }
}

/// The version of ZooKeeper, whose archives have no program that prints it.
pub(super) fn zookeeper_version() -> &'static str {
    ZOOKEEPER.split('/').nth(4).unwrap_or_default()
}
