//! Masters that know nothing of each other, for a lock over many of them.

use crate::redis::RedisServer;
use crate::wait::addresses;

/// Running Redis masters. They end when this is dropped.
pub struct Masters {
    servers: Vec<RedisServer>,
}

impl Masters {
    /// Starts so many, which keep all that they have acknowledged.
    #[must_use]
    pub fn start(count: usize) -> Self {
        let servers = RedisServer::options().append_only().start_many(count);
        Self { servers }
    }

    /// The same, which were started two days ago by their clocks.
    #[must_use]
    pub fn aged(count: usize) -> Self {
        let options = RedisServer::options().append_only();
        let servers = options.started_ago(2 * 24 * 3_600 * 1_000);
        let servers = servers.start_many(count);
        Self { servers }
    }

    /// The store's URL.
    #[must_use]
    pub fn url(&self) -> String {
        let ports = self.servers.iter().map(RedisServer::port);
        format!("redlock://{}", addresses("127.0.0.1", ports))
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
