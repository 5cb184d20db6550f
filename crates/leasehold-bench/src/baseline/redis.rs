//! The library's scripts, called by hand over a connection of the Redis client.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use leasehold::__private::store::{Key, RedisScript};
use leasehold::Secret;
use leasehold_core::LeaseId;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, IntoConnectionInfo as _, Pipeline,
    TlsCertificates, Value, cmd,
};
use url::Url;

use super::TTL;
use crate::server_stats::ServerStats;
use crate::{Failure, Result, failed};

/// The settings of a slow log with all calls that take 100 µs.
const SLOW_LOG: [&str; 4] = ["slowlog-max-len", "10000", "slowlog-log-slower-than", "100"];

/// A connection to a server that knows the scripts from the library's own calls, which come first.
#[derive(Clone, Debug)]
pub(crate) struct RedisBaseline {
    connection: MultiplexedConnection,
}

/// The record of a lock: `<namespace>:{<tenant>:<name>}`.
pub(super) fn record(key: &Key) -> String {
    let (space, name) = (&key.space, &key.name);
    format!("{}:{{{}:{name}}}", space.namespace(), space.tenant())
}

impl RedisBaseline {
    pub(super) async fn connect(url: &str, password: Option<&Secret>) -> Result<Self> {
        // Timeouts would be work that the baseline does not need.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let client = client(url, password)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self {
            connection: connection.await.map_err(failed("no baseline connection"))?,
        })
    }

    /// Acquires or releases in one call.
    pub(super) async fn half(&self, record: &str, lease: &str, held: bool) -> Result<()> {
        let mut call = cmd("EVALSHA");
        call.arg(RedisScript::Mutex.hash()).arg(3).arg(record);
        call.arg(format!("{record}:token"));
        call.arg(format!("{record}:queue"));
        match held {
            false => call
                .arg("acquire")
                .arg(lease)
                .arg(TTL.as_millis().to_string()),
            true => call.arg("release").arg(lease),
        };
        let mut connection = self.connection.clone();
        // The replies to a plain acquisition and to a plain release.
        match connection.send_packed_command(&call).await? {
            Value::BulkString(_) if !held => Ok(()),
            Value::Nil if held => Ok(()),
            reply => Err(unexpected(&reply)),
        }
    }

    pub(super) async fn server_stats(&self) -> Result<Option<ServerStats>> {
        let mut connection = self.connection.clone();
        let mut text = String::new();
        // One section each: older servers reply to the first only.
        for section in ["cpu", "commandstats", "memory"] {
            let mut info = cmd("INFO");
            let info = info.arg(section).query_async::<String>(&mut connection);
            match info.await {
                Ok(section) => text += &section,
                Err(error) if error.code() == Some("NOPERM") => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(ServerStats::parse(text.lines())))
    }

    /// Clears the slow log, and sets it to [`SLOW_LOG`]. Returns the former settings. `None`: the server refuses.
    pub(crate) async fn log_slow_calls(&self) -> Result<Option<HashMap<String, String>>> {
        let mut log = Pipeline::new();
        log.cmd("CONFIG").arg(&["GET", "slowlog-*"]);
        log.cmd("CONFIG").arg("SET").arg(&SLOW_LOG).ignore();
        log.cmd("SLOWLOG").arg("RESET").ignore();
        match log.query_async(&mut self.connection.clone()).await {
            Ok((settings,)) => Ok(Some(settings)),
            Err(error) if error.code().is_some() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The time of the longest script call in the slow log. `None`: each took less than 100 µs. Restores the settings.
    pub(crate) async fn longest_script_us(
        &self,
        settings: HashMap<String, String>,
    ) -> Result<Option<i64>> {
        let mut log = Pipeline::new();
        log.cmd("SLOWLOG").arg(&["GET", "-1"]);
        log.cmd("CONFIG").arg("SET").arg(settings).ignore();
        let (entries,): (Vec<Vec<Value>>,) = log.query_async(&mut self.connection.clone()).await?;
        let is_script = |call: &[Value]| match call.first() {
            Some(Value::BulkString(name)) => name.starts_with(b"EVAL"),
            _ => false,
        };
        let scripts = entries.iter().filter_map(|entry| match &entry[..] {
            // Its number, its time, how long it took, and the call.
            [_, _, Value::Int(micros), Value::Array(call), ..] if is_script(call) => Some(*micros),
            _ => None,
        });
        Ok(scripts.max())
    }

    /// The number of leases that wait for a lock.
    pub(crate) async fn queue_length(&self, key: &Key) -> Result<u32> {
        let mut length = cmd("LLEN");
        length.arg(format!("{}:queue", record(key)));
        let elements: u32 = length.query_async(&mut self.connection.clone()).await?;
        // Each lease has two.
        Ok(elements / 2)
    }

    /// Renews each lease by a call of the short script. Servers before 7.0 refuse it: then none counts.
    pub(super) async fn renew_each(&self, leases: &[(Key, LeaseId)], ttl: Duration) -> Result<u64> {
        let mut pipeline = Pipeline::with_capacity(leases.len());
        for (key, lease) in leases {
            let mut call = cmd("EVALSHA");
            call.arg(RedisScript::Renew.hash()).arg(1).arg(record(key));
            call.arg(ttl.as_millis().to_string()).arg(lease.to_string());
            pipeline.add_command(call);
        }
        let mut connection = self.connection.clone();
        let replies = connection.send_packed_commands(&pipeline, 0, leases.len());
        let mut renewals = 0;
        for reply in replies.await? {
            match &reply {
                // The server's time, then what was not renewed: work for the server all the same.
                Value::Array(items) => {
                    renewals += u64::from(matches!(items.first(), Some(Value::Int(_))));
                }
                _ => return Err(unexpected(&reply)),
            }
        }
        Ok(renewals)
    }

    /// Removes the counters of free locks, which a server would keep for a day.
    pub(crate) async fn remove_counters(&self, keys: &[Key]) -> Result<()> {
        let mut unlink = cmd("UNLINK");
        for key in keys {
            unlink.arg(format!("{}:token", record(key)));
        }
        let mut connection = self.connection.clone();
        // As far as the server allows it.
        connection.send_packed_command(&unlink).await?;
        Ok(())
    }
}

fn client(url: &str, password: Option<&Secret>) -> Result<Client> {
    let mut url = Url::parse(url).map_err(failed("the store URL"))?;
    let mut certificates = TlsCertificates {
        client_tls: None,
        root_cert: None,
    };
    if url.scheme() == "rediss" {
        let files: Vec<_> = url.query_pairs().into_owned().collect();
        let file = |wanted: &str| {
            let file = files.iter().find(|(name, _)| name == wanted);
            let file = file.map(|(_, path)| fs::read(path));
            file.transpose()
                .map_err(failed("a file named in the store URL"))
        };
        certificates.root_cert = file("ca")?;
        let identity = file("cert")?.zip(file("key")?);
        certificates.client_tls = identity.map(|(client_cert, client_key)| ClientTlsConfig {
            client_cert,
            client_key,
        });
        url.set_query(None);
    }
    let secure = url.scheme() == "rediss";
    let info = url
        .into_connection_info()
        .map_err(failed("the store URL"))?;
    let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
    if let Some(password) = password {
        settings = settings.set_password(password.expose());
    }
    let info = info
        .set_redis_settings(settings)
        .set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let client = match secure {
        true => Client::build_with_tls(info, certificates),
        false => Client::open(info),
    };
    client.map_err(failed("the store URL"))
}

fn unexpected(reply: &Value) -> Failure {
    match reply {
        Value::ServerError(error) => format!("a baseline call failed: {error}").into(),
        _ => "the server's reply to a baseline call is invalid".into(),
    }
}
