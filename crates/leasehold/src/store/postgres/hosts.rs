//! The hosts of an address, of which one can be written.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

/// Hosts that are tried one after the other, each for its share of the timeout, so that a silent one is passed over.
#[derive(Debug)]
pub(super) struct Hosts {
    /// One for each host.
    pub(super) configs: Vec<Config>,
    /// The position of the host that is tried first.
    first: AtomicUsize,
}

impl Hosts {
    pub(super) fn of(config: &Config) -> Self {
        let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
        let (ports, count) = (config.get_ports().len(), hosts.max(addresses));
        let is_complete = |length: usize| length == 0 || length == count;
        let are_complete = is_complete(hosts) && is_complete(addresses);
        let configs = match count > 1 && are_complete && (ports < 2 || ports == count) {
            true => (0..count).map(|at| of_host(config, at, count)).collect(),
            // If the lists differ in length, the driver reports what is wrong.
            false => vec![config.clone()],
        };
        let first = match config.get_load_balance_hosts() {
            LoadBalanceHosts::Random => fastrand::usize(..configs.len()),
            _ => 0,
        };
        let first = AtomicUsize::new(first);
        Self { configs, first }
    }

    /// The hosts in the order in which they are to be tried, with their positions.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (usize, &Config)> {
        let hosts = self.configs.iter().enumerate().cycle();
        let first = self.first.load(Ordering::Relaxed);
        hosts.skip(first).take(self.configs.len())
    }

    /// Begins an attempt to connect to the host at this position. Unless it succeeds, the next one becomes the first.
    pub(super) fn attempt(&self, position: usize) -> HostAttempt<'_> {
        HostAttempt {
            hosts: self,
            first: (position + 1) % self.configs.len(),
        }
    }
}

/// An attempt to connect to a host. When it is dropped, the host at `first` becomes the first one: a caller may give up
/// before a silent host has had its time.
pub(super) struct HostAttempt<'a> {
    hosts: &'a Hosts,
    pub(super) first: usize,
}

impl Drop for HostAttempt<'_> {
    fn drop(&mut self) {
        self.hosts.first.store(self.first, Ordering::Relaxed);
    }
}

/// The settings for one of several hosts. A config can lose no host, so this one has copies of all other settings.
fn of_host(config: &Config, at: usize, count: usize) -> Config {
    let mut one = Config::new();
    match config.get_hosts().get(at) {
        Some(Host::Tcp(host)) => {
            one.host(host);
        }
        Some(Host::Unix(directory)) => {
            one.host_path(directory);
        }
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(at) {
        one.hostaddr(*address);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(at).or(ports.first()) {
        one.port(*port);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout / u32::try_from(count).unwrap_or(u32::MAX));
    }
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(database) = config.get_dbname() {
        one.dbname(database);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_all_settings_and_its_share_of_the_timeout() {
        let all = "options=o&application_name=n&sslmode=require&sslnegotiation=direct&tcp_user_timeout=5&keepalives=0&\
                   keepalives_idle=6&keepalives_interval=7&keepalives_retries=8&target_session_attrs=read-write&\
                   channel_binding=require&load_balance_hosts=random";
        let config = |hosts: &str, timeout: u64| -> Config {
            let url = format!("postgres://u:p@{hosts}/d?{all}&connect_timeout={timeout}");
            url.parse().unwrap()
        };
        let hosts = Hosts::of(&config("a:1,b:2", 6));
        assert_eq!(hosts.configs, [config("a:1", 3), config("b:2", 3)]);
        let directories: Config = "postgres://u@/d?host=/a,/b&port=1".parse().unwrap();
        for config in Hosts::of(&directories).configs {
            assert_eq!(
                (config.get_hosts().len(), config.get_ports()),
                (1, &[1][..])
            );
        }
        let uneven: Config = "postgres://u@a,b/d?hostaddr=127.0.0.1".parse().unwrap();
        assert_eq!(Hosts::of(&uneven).configs, [uneven]);
    }
}
