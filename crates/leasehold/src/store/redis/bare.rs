//! The same script on the same connection, without this library around it.

use std::future::Future;
use std::time::{Duration, Instant};

use redis::Cmd;
use redis::aio::MultiplexedConnection;

use super::connection::Trouble;
use super::errors;
use super::keys::RecordKey;
use super::{RedisStore, Value};
use crate::Result;
use crate::store::Key;

/// What a program would write that calls the mutex script by hand: the yardstick of
/// `leasehold bench`.
#[derive(Clone, Debug)]
pub struct Bare {
    connection: MultiplexedConnection,
    hash: String,
}

/// The key of a record as the server knows it.
pub(in crate::store) fn record_key(key: &Key) -> String {
    RecordKey(key).to_string()
}

impl RedisStore {
    /// Bare calls on the store's own connection.
    ///
    /// # Errors
    ///
    /// As for any call, if there is no connection.
    pub async fn bare(&self) -> Result<Bare> {
        let connection = self.link.exchange(|connection| async { Ok(connection) });
        match connection.await {
            Ok(connection) => Ok(Bare {
                connection,
                hash: self.mutex.hash().to_owned(),
            }),
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => Err(error),
        }
    }
}

impl Bare {
    /// Acquires and releases once, in two round trips, and tells how long both took.
    ///
    /// `key` is a whole key as the server knows it, `lease` what shall stand in it.
    ///
    /// # Errors
    ///
    /// If the server does not grant and release it.
    pub fn pair(&self, key: &str, lease: &str) -> impl Future<Output = Result<Duration>> + Send {
        let cmds = vec![self.acquire(key, lease), self.release(key, lease)];
        self.run(cmds)
    }

    /// The first half of a pair, or the second, in one round trip, and how long it took.
    ///
    /// # Errors
    ///
    /// As [`Bare::pair`].
    pub fn half(
        &self,
        key: &str,
        lease: &str,
        taken: bool,
    ) -> impl Future<Output = Result<Duration>> + Send {
        self.run(vec![if taken {
            self.release(key, lease)
        } else {
            self.acquire(key, lease)
        }])
    }

    /// How long the server takes to answer when it has nothing to do.
    ///
    /// # Errors
    ///
    /// If it does not answer.
    pub async fn ping(&self) -> Result<Duration> {
        let ping = redis::cmd("PING");
        let start = Instant::now();
        match self.send(&ping).await? {
            Value::ServerError(error) => Err(errors::call(&error).0),
            _ => Ok(start.elapsed()),
        }
    }

    /// Sends a command and waits for the answer.
    pub(super) async fn send(&self, cmd: &Cmd) -> Result<Value> {
        let mut connection = self.connection.clone();
        let answer = connection.send_packed_command(cmd).await;
        answer.map_err(|error| errors::no_answer(&error))
    }

    fn run(&self, cmds: Vec<Cmd>) -> impl Future<Output = Result<Duration>> + Send {
        let bare = self.clone();
        async move {
            let start = Instant::now();
            for cmd in cmds {
                match bare.send(&cmd).await? {
                    Value::Array(answer) if matches!(answer.get(1), Some(Value::Int(1 | 4))) => {}
                    Value::ServerError(error) => return Err(errors::call(&error).0),
                    _ => return Err(errors::strange_answer()),
                }
            }
            Ok(start.elapsed())
        }
    }

    fn acquire(&self, key: &str, lease: &str) -> Cmd {
        self.cmd(key, ["acquire", lease, "1", "30000", "1", "0"])
    }

    fn release(&self, key: &str, lease: &str) -> Cmd {
        self.cmd(key, ["release", lease, "0", "30000", "0", "0"])
    }

    fn cmd(&self, key: &str, args: [&str; 6]) -> Cmd {
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(&self.hash).arg(3).arg(key);
        cmd.arg(format!("{key}:token")).arg(format!("{key}:queue"));
        cmd.arg(&args);
        cmd
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::RedisServer;

    use super::*;
    use crate::store::OpenOptions;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_bare_pair_takes_two_calls_and_time() {
        let server = RedisServer::start();
        let options = OpenOptions::default();
        let store = RedisStore::open(&server.url(), &options).await.unwrap();
        let bare = store.bare().await.unwrap();
        server.cli(&["CONFIG", "RESETSTAT"]);
        let spent = bare.pair("app:{t:bare}", "me:1").await.unwrap();
        assert!(!spent.is_zero());
        let stats = server.cli(&["INFO", "commandstats"]);
        assert!(stats.contains("cmdstat_evalsha:calls=2,"), "{stats}");
        server.cli(&["HSET", "app:{t:bare}", "other", "1"]);
        assert!(bare.pair("app:{t:bare}", "me:1").await.is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn two_halves_are_a_pair() {
        let server = RedisServer::start();
        let options = OpenOptions::default();
        let store = RedisStore::open(&server.url(), &options).await.unwrap();
        let bare = store.bare().await.unwrap();
        let key = "app:{t:bare}";
        for _ in 0..2 {
            bare.half(key, "me:1", false).await.unwrap();
            assert_eq!(server.cli(&["EXISTS", key]), "1");
            bare.half(key, "me:1", true).await.unwrap();
            assert_eq!(server.cli(&["EXISTS", key]), "0");
        }
        assert!(bare.half(key, "me:1", true).await.is_err());
        assert!(!bare.ping().await.unwrap().is_zero());
    }
}
