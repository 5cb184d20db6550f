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
        let acquire = self.cmd(key, ["acquire", lease, "1", "30000", "1", "0"]);
        let release = self.cmd(key, ["release", lease, "0", "30000", "0", "0"]);
        let mut connection = self.connection.clone();
        async move {
            let start = Instant::now();
            for cmd in [acquire, release] {
                let answer = connection.send_packed_command(&cmd).await;
                match answer.map_err(|error| errors::no_answer(&error))? {
                    Value::Array(answer) if matches!(answer.get(1), Some(Value::Int(1 | 4))) => {}
                    Value::ServerError(error) => return Err(errors::call(&error).0),
                    _ => return Err(errors::strange_answer()),
                }
            }
            Ok(start.elapsed())
        }
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
}
