//! A master, two replicas, and three sentinels that watch them.

use std::time::Duration;

use crate::redis::{RedisOptions, RedisServer, Restart};
use crate::wait::{addresses, eventually, found_within};

/// How long any state may take to come about on a slow machine.
const SOON: Duration = Duration::from_secs(90);

/// How long a server must be silent to count as down: while no failover is expected, longer than a busy
/// machine keeps it from running.
const DOWN_AFTER: Duration = Duration::from_secs(60);
const DOWN_AFTER_IN_FAILOVER: Duration = Duration::from_secs(1);

/// The name under which the sentinels know the master.
const NAME: &str = "mymaster";

const REPLICAS: usize = 2;
const SENTINELS: usize = 3;

/// How to start a [`SentinelSet`].
#[derive(Clone, Debug)]
pub struct SentinelOptions {
    servers: RedisOptions,
    sentinels: RedisOptions,
    down_after: Duration,
}

/// A running set. It ends when it is dropped.
pub struct SentinelSet {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    down_after: Duration,
}

impl SentinelOptions {
    /// The options of the master and its replicas.
    #[must_use]
    pub fn servers(mut self, servers: RedisOptions) -> Self {
        self.servers = servers;
        self
    }

    /// The options of the sentinels.
    #[must_use]
    pub fn sentinels(mut self, sentinels: RedisOptions) -> Self {
        self.sentinels = sentinels;
        self
    }

    /// How long a server must be silent to count as down. One minute by default, and one second while a
    /// failover is expected.
    #[must_use]
    pub fn down_after(mut self, silence: Duration) -> Self {
        self.down_after = silence;
        self
    }

    /// Starts all and waits until they know each other.
    ///
    /// # Panics
    ///
    /// If redis-server is missing or they do not come up.
    #[must_use]
    pub fn start(self) -> SentinelSet {
        // They follow by a command, so a restart does not depend on the others.
        let server = self.servers.together().has_replicas();
        let master = server.clone().start();
        let replica = || {
            let replica = server.clone().start();
            replica.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
            replica
        };
        let replicas: Vec<_> = (0..REPLICAS).map(|_| replica()).collect();
        let sentinel = self
            .sentinels
            .alike(&master)
            .sentinel_of(NAME, &master)
            .config(&format!(
                "sentinel down-after-milliseconds {NAME} {}",
                self.down_after.as_millis()
            ))
            .config(&format!("sentinel failover-timeout {NAME} 10000"));
        let mut servers = vec![master];
        servers.extend(replicas);
        let set = SentinelSet {
            servers,
            down_after: self.down_after,
            sentinels: (0..SENTINELS).map(|_| sentinel.clone().start()).collect(),
        };
        set.meet();
        set
    }
}

impl SentinelSet {
    /// A plain set.
    #[must_use]
    pub fn start() -> Self {
        Self::options().start()
    }

    /// A set with options.
    #[must_use]
    pub fn options() -> SentinelOptions {
        SentinelOptions {
            servers: RedisServer::options(),
            sentinels: RedisServer::options(),
            down_after: DOWN_AFTER,
        }
    }

    /// The URL of the set.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_with("")
    }

    /// The URL of the set for one of the users of its servers.
    #[must_use]
    pub fn url_of(&self, user: &str, password: &str) -> String {
        self.url_with(&format!("{user}:{password}@"))
    }

    /// The servers, in whatever roles.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// One of the servers, to restart it.
    pub fn server_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.servers[index]
    }

    /// One of the sentinels, to kill it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.sentinels[index]
    }

    /// The index of the server that all running sentinels name as master.
    /// `None`: they do not agree.
    #[must_use]
    pub fn agreed_master(&self) -> Option<usize> {
        let query = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let mut named = self.sentinels.iter().filter_map(|sentinel| {
            let reply = sentinel.try_cli(&query).ok()?;
            reply.lines().nth(1)?.parse::<u16>().ok()
        });
        let first = named.next()?;
        let found = |server: &RedisServer| server.port() == first;
        named
            .all(|port| port == first)
            .then(|| self.servers.iter().position(found))?
    }

    /// The index of the master among the servers.
    ///
    /// # Panics
    ///
    /// If the sentinels do not agree.
    #[must_use]
    pub fn master(&self) -> usize {
        let master = found_within(SOON, || self.agreed_master());
        master.expect("the sentinels agree")
    }

    /// Kills the master, as a crash would, and returns its index.
    pub fn kill_master(&mut self) -> usize {
        let master = self.failing_master();
        self.servers[master].kill9();
        master
    }

    /// Stops the master, which keeps its connections and replies to nothing, and returns its index.
    pub fn stop_master(&self) -> usize {
        let master = self.failing_master();
        self.servers[master].stop();
        master
    }

    fn failing_master(&self) -> usize {
        self.down_after(DOWN_AFTER_IN_FAILOVER);
        self.master()
    }

    /// Orders a failover and returns the index of the old master.
    ///
    /// # Panics
    ///
    /// If the sentinels refuse for too long: there may be no good replica yet.
    pub fn order_failover(&self) -> usize {
        let master = self.master();
        let order = ["SENTINEL", "FAILOVER", NAME];
        eventually(SOON, || self.sentinels[0].try_cli(&order).is_ok());
        master
    }

    /// Waits until another server is the master for all sentinels and for itself, and returns its index.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn master_after(&self, old: usize) -> usize {
        // The old one may be stopped, and would not reply.
        let is_master = |new: &usize| {
            let role = || self.servers[*new].try_cli(&["ROLE"]).unwrap_or_default();
            *new != old && role().starts_with("master")
        };
        let new = found_within(SOON, || self.agreed_master().filter(is_master));
        self.down_after(self.down_after);
        new.expect("another master")
    }

    fn down_after(&self, silence: Duration) {
        let millis = silence.as_millis().to_string();
        let set = ["SENTINEL", "SET", NAME, "down-after-milliseconds", &millis];
        for sentinel in &self.sentinels {
            // A stopped sentinel is skipped.
            let _ = sentinel.try_cli(&set);
        }
    }

    /// Restarts a server that was killed, without its data, as a replica of the master.
    pub fn revive(&mut self, index: usize) {
        self.servers[index].restart(Restart::Empty);
        let port = self.servers[self.master()].port().to_string();
        self.servers[index].cli(&["REPLICAOF", "127.0.0.1", &port]);
    }

    /// Waits until every other server follows the master and has all that it has, and the sentinels
    /// know.
    ///
    /// # Panics
    ///
    /// If they do not.
    pub fn until_in_sync(&self) {
        eventually(SOON, || {
            let Some(master) = self.agreed_master() else {
                return false;
            };
            let info = self.servers[master].try_cli(&["INFO", "replication"]);
            let info = info.unwrap_or_default();
            let offset = field(&info, "master_repl_offset").map(str::to_owned);
            offset.is_some()
                && info.contains("role:master")
                && info.matches("state=online").count() == self.servers.len() - 1
                && self.servers.iter().enumerate().all(|(index, server)| {
                    let info = server.try_cli(&["INFO", "replication"]).unwrap_or_default();
                    index == master
                        || info.contains("master_link_status:up")
                            && field(&info, "slave_repl_offset") == offset.as_deref()
                })
        });
        self.meet();
    }

    fn url_with(&self, credentials: &str) -> String {
        let (scheme, host) = match self.servers[0].query().is_empty() {
            false => ("rediss+sentinel", "localhost"),
            true => ("redis+sentinel", "127.0.0.1"),
        };
        let hosts = addresses(host, self.sentinels.iter().map(RedisServer::port));
        let query = self.servers[0].query();
        format!("{scheme}://{credentials}{hosts}/{NAME}/0{query}")
    }

    /// Waits until all know each other. The sentinels exchange messages more often for that time, if they can.
    fn meet(&self) {
        let set_periods = |publish: &str, info: &str| {
            let debug = ["SENTINEL", "DEBUG"];
            let periods = ["PUBLISH-PERIOD", publish, "INFO-PERIOD", info];
            for sentinel in &self.sentinels {
                let _ = sentinel.try_cli(&[&debug[..], &periods[..]].concat());
            }
        };
        set_periods("50", "50");
        self.until_known();
        set_periods("2000", "10000");
    }

    /// Waits until every sentinel knows the others and that all replicas follow.
    fn until_known(&self) {
        let running = (self.sentinels.len() - 1).to_string();
        let knows = |sentinel: &RedisServer| {
            let count = |what: &str, pair: (&str, &str)| {
                let fields = sentinel.try_cli(&["SENTINEL", what, NAME]);
                let fields = fields.unwrap_or_default();
                let pairs = fields.lines().zip(fields.lines().skip(1));
                pairs.filter(|field| *field == pair).count()
            };
            count("REPLICAS", ("flags", "slave")) == REPLICAS
                && count("REPLICAS", ("master-link-status", "ok")) == REPLICAS
                && count("MASTER", ("num-other-sentinels", &running)) == 1
        };
        eventually(SOON, || self.sentinels.iter().all(knows));
    }
}

/// The value of a line of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}
