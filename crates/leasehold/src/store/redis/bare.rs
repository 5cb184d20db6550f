//! The same script on the same connection, without this library around it.

use std::future::Future;
use std::slice;
use std::time::{Duration, Instant};

use leasehold_core::Outcome;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline};

use super::codec::CallOptions;
use super::connection_manager::ExchangeError;
use super::keys::{CounterKey, RecordKey};
use super::{RedisStore, Value, codec, errors, renew_script};
use crate::Result;
use crate::store::{Key, Reply, Request};

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
        let connection = self.manager.exchange(|connection| async { Ok(connection) });
        match connection.await {
            Ok(connection) => Ok(Bare {
                connection,
                hash: self.rule.mutex.hash().to_owned(),
            }),
            Err(ExchangeError::NotSent(error) | ExchangeError::Unanswered(error)) => Err(error),
        }
    }

    /// Asks for renewals by bare calls of the script that this store uses for them, one for each and
    /// all sent before the first answer. Tells how many of the leases were held.
    ///
    /// # Errors
    ///
    /// If the server does not answer, or not that: it knows the script since the first renewal by
    /// the store itself.
    pub async fn renew_each(&self, bare: &Bare, requests: &[Request]) -> Result<usize> {
        let short = self.rule.renew.suits(requests);
        let mut pipeline = Pipeline::with_capacity(requests.len());
        for request in requests {
            let short = self.rule.renew.single(request).filter(|_| short);
            pipeline.add_command(short.unwrap_or_else(|| {
                codec::encode(
                    "EVALSHA",
                    &bare.hash,
                    slice::from_ref(request),
                    CallOptions::default(),
                )
            }));
        }
        let mut connection = bare.connection.clone();
        let answers = connection.send_packed_commands(&pipeline, 0, requests.len());
        let answers = answers.await.map_err(|error| errors::no_answer(&error))?;
        if answers.len() != requests.len() {
            return Err(errors::strange_answer());
        }
        let mut renewed = 0;
        for (request, answer) in requests.iter().zip(answers) {
            if let Value::ServerError(error) = &answer {
                return Err(errors::call(error).0);
            }
            renewed += usize::from(if short {
                renew_script::is_renewed(&answer).ok_or_else(errors::strange_answer)?
            } else {
                match codec::decode(slice::from_ref(request), answer).pop() {
                    Some(Reply::Applied { outcome, .. }) => outcome == Outcome::Renewed,
                    Some(Reply::Rejected(error) | Reply::Unknown(error)) => return Err(error),
                    None => return Err(errors::strange_answer()),
                }
            });
        }
        Ok(renewed)
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

    /// Removes the counters of names that nobody will ever use again, as far as the server lets us:
    /// they would stay for a day.
    ///
    /// # Errors
    ///
    /// If the server does not answer.
    pub async fn forget(&self, keys: &[Key]) -> Result<()> {
        let mut unlink = redis::cmd("UNLINK");
        for key in keys {
            unlink.arg(CounterKey(key).to_string());
        }
        self.send(&unlink).await.map(drop)
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
    use leasehold_core::{ClientId, LeaseId, Name, Op, ScopeName, Ttl};
    use leasehold_testkit::RedisServer;

    use super::*;
    use crate::store::{Keyspace, OpenOptions, Store};

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
    /// One call for each, and no renewal of what is not held.
    #[tokio::test(flavor = "multi_thread")]
    async fn each_renewal_is_a_call() {
        let server = RedisServer::start();
        let options = OpenOptions::default();
        let store = RedisStore::open(&server.url(), &options).await.unwrap();
        let bare = store.bare().await.unwrap();
        let space = Keyspace::new(
            ScopeName::parse("app").unwrap(),
            ScopeName::parse("t").unwrap(),
        );
        // Each renewal asks for more than the last: in the same millisecond it changed nothing else.
        let request = |number: u64, seconds: u64| {
            let lease = LeaseId {
                client: ClientId::from_random([1; 16]),
                number,
            };
            let key = space.key(Name::parse(&format!("bare/{number}")).unwrap());
            let ttl = Ttl::remainder(Duration::from_secs(seconds));
            Request {
                key,
                op: Op::Renew { lease, ttl },
                durability: crate::Durability::None,
            }
        };
        let requests = [1, 2, 3].map(|number| request(number, 90));
        for request in &requests {
            let Op::Renew { lease, .. } = request.op else {
                panic!("{request:?}");
            };
            let (key, lease) = (record_key(&request.key), lease.to_string());
            bare.half(&key, &lease, false).await.unwrap();
        }
        assert!(store.renew_each(&bare, &requests).await.is_err());
        let first = [1, 2, 3].map(|number| request(number, 60));
        let replies = store.apply(first.to_vec()).await;
        assert!(matches!(replies[2], Reply::Applied { .. }), "{replies:?}");
        server.cli(&["CONFIG", "RESETSTAT"]);
        assert_eq!(store.renew_each(&bare, &requests).await.unwrap(), 3);
        let stats = server.cli(&["INFO", "commandstats"]);
        assert!(stats.contains("cmdstat_evalsha:calls=3,"), "{stats}");
        // By the short script, as ours.
        assert!(!stats.contains("cmdstat_pttl"), "{stats}");
        for request in &requests {
            let left = server.cli(&["PTTL", &record_key(&request.key)]);
            assert!(left.parse::<u64>().unwrap() > 70_000, "{left}");
        }
        assert_eq!(store.renew_each(&bare, &[request(4, 90)]).await.unwrap(), 0);

        let keys = requests.map(|request| request.key);
        let counters = || server.cli(&["KEYS", "*:token"]).lines().count();
        assert_eq!(counters(), 3);
        bare.forget(&keys[..2]).await.unwrap();
        assert_eq!(counters(), 1);
    }
}
