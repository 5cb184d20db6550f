//! Masters that know nothing of each other, for a lock over many of them.

use std::time::Duration;

use crate::RedisServer;

/// Running Redis masters. They end when this is dropped.
pub struct Masters {
    servers: Vec<RedisServer>,
}

impl Masters {
    /// Starts so many, which keep all that they have acknowledged.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let start = |_| {
            let options = RedisServer::options().append_only().clock_shim();
            std::thread::spawn(|| options.start())
        };
        let starting: Vec<_> = (0..count).map(start).collect();
        let started = starting.into_iter().map(std::thread::JoinHandle::join);
        Self {
            servers: started.map(|server| server.expect("a server")).collect(),
        }
    }

    /// The same, which believe that they have run for an hour.
    #[must_use]
    pub fn aged(count: usize) -> Self {
        let masters = Self::start(count);
        for server in &masters.servers {
            server.step_clock(
                Duration::from_secs(3_600)
                    .as_millis()
                    .try_into()
                    .expect("an hour"),
            );
        }
        masters
    }

    /// The store's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let host = |server: &RedisServer| format!("127.0.0.1:{}", server.port());
        let hosts: Vec<_> = self.servers.iter().map(host).collect();
        format!("redlock://{}", hosts.join(","))
    }

    /// One of them.
    #[must_use]
    pub fn server(&self, nth: usize) -> &RedisServer {
        &self.servers[nth]
    }

    /// One of them, to kill it or start it again.
    pub fn server_mut(&mut self, nth: usize) -> &mut RedisServer {
        &mut self.servers[nth]
    }

    /// All of them.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }
}
