//! The admission of one of many masters, as the campaign observes it.

use std::time::Duration;

use redis::{Connection, RedisResult};

/// The admission record of a master, which has no ttl.
pub(crate) const ADMISSION_KEY: &str = "leasehold:master";

/// How long the masters have run when their world begins, by their clocks: long enough to be admitted.
pub(crate) const AGE_MS: i64 = 3_600_000;

/// The time beyond the longest ttl until a master is admitted again: drift, and measurement errors.
pub(crate) const DRIFT: Duration = Duration::from_millis(300);

/// How long a master may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);

/// Connects to a server on this machine, which has so long for each reply.
pub(crate) fn connect(port: u16, timeout: Duration) -> RedisResult<Connection> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    let connection = client.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    Ok(connection)
}

/// Whether the master at a port replies, and was admitted since its last start.
pub(crate) fn is_admitted(port: u16) -> bool {
    admitted(port).unwrap_or(false)
}

fn admitted(port: u16) -> RedisResult<bool> {
    let mut connection = connect(port, REPLY_TIMEOUT)?;
    let mut admitted = redis::cmd("HGET");
    let admitted: Option<String> = admitted
        .arg(ADMISSION_KEY)
        .arg("run")
        .query(&mut connection)?;
    let info: redis::InfoDict = redis::cmd("INFO")
        .arg("replication")
        .query(&mut connection)?;
    let run: Option<String> = info.get("master_replid");
    Ok(admitted.is_some() && admitted == run)
}
