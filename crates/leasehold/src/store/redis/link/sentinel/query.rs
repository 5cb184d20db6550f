//! Queries one sentinel.

use redis::{Pipeline, Value, from_redis_value_ref};

use crate::store::redis::address::Address;
use crate::store::redis::errors;
use crate::store::redis::link::connect;
use crate::store::redis::wire::reply::{field, parsed};
use crate::{Error, ErrorKind};

/// The master, as a sentinel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// Increases with every failover.
    pub(crate) epoch: u64,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Why a sentinel does not name a master.
#[derive(Clone, Debug)]
pub(crate) enum QueryError {
    /// It does not monitor a master of this name.
    NoSuchMaster,
    /// The server is not a sentinel.
    NoSentinel,
    /// It refused.
    Refused(Error),
    Unreachable(Error),
}

impl View {
    /// Whether it names another server than this earlier view, after a failover. Without one, it is another name of the
    /// same server: a sentinel may know a host name where the others know an address.
    pub(crate) fn replaces(&self, earlier: &Self) -> bool {
        let same = (&self.host, self.port) == (&earlier.host, earlier.port);
        !same && self.epoch > earlier.epoch
    }
}

/// Asks a sentinel for the master of a name. Has no timeout of its own.
pub(crate) async fn query_master(sentinel: &Address, name: &str) -> Result<View, QueryError> {
    let connected = connect::plain(sentinel).await;
    let mut connection = connected.map_err(|error| match error.kind() {
        ErrorKind::Unreachable => QueryError::Unreachable(errors::of_sentinel(error)),
        _ => refusal(&error),
    })?;
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SENTINEL").arg("MASTER").arg(name);
    // During a failover this is already the promoted server, while the other reply is not.
    pipeline
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name);
    let replies = connection.send_packed_commands(&pipeline, 0, 2).await;
    let replies = replies.map_err(|error| QueryError::Unreachable(errors::no_reply(&error)))?;
    match replies.as_slice() {
        [about, address] => view(about, address),
        _ => Err(QueryError::Refused(errors::invalid_reply())),
    }
}

fn view(about: &Value, address: &Value) -> Result<View, QueryError> {
    for reply in [address, about] {
        if let Value::ServerError(error) = reply {
            let words = error.details().unwrap_or_default();
            return Err(if words.contains("unknown command") {
                QueryError::NoSentinel
            } else if words.contains("No such master") {
                QueryError::NoSuchMaster
            } else {
                refusal(&errors::command_error("SENTINEL", "", error))
            });
        }
    }
    let strange = || QueryError::Refused(errors::invalid_reply());
    let master: Option<(String, u16)> = from_redis_value_ref(address).map_err(|_| strange())?;
    let (host, port) = master.ok_or(QueryError::NoSuchMaster)?;
    let epoch = field(about, "config-epoch").and_then(parsed);
    let epoch = epoch.ok_or_else(strange)?;
    Ok(View { epoch, host, port })
}

fn refusal(error: &Error) -> QueryError {
    const ADVICE: &str = "sentinels have a password of their own, ClientBuilder::sentinel_password, and users of their \
                          own, ?sentinel-user=USER";
    let error = match error.kind() {
        ErrorKind::NoPassword | ErrorKind::WrongPassword => {
            Error::new(ErrorKind::SentinelPassword, format!("{error}; {ADVICE}"))
        }
        ErrorKind::Unauthorized => error.clone().reworded(format!("{error}; {ADVICE}")),
        _ => error.clone().reworded(error.to_string()),
    };
    QueryError::Refused(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(epoch: u64, port: u16) -> View {
        let host = "::1".to_owned();
        View { epoch, host, port }
    }

    #[test]
    fn an_invalid_reply_names_no_master() {
        let value = |reply: &str| redis::parse_redis_value(reply.as_bytes()).unwrap();
        let [about, address] = ["*2\r\n+config-epoch\r\n+7\r\n", "*2\r\n+::1\r\n+6379\r\n"];
        let found = view(&value(about), &value(address)).unwrap();
        assert_eq!(found, master(7, 6379));
        for (about, address) in [
            (about, "*2\r\n+::1\r\n+70000\r\n"),
            (about, "*1\r\n+::1\r\n"),
            (about, ":1\r\n"),
            ("*1\r\n+config-epoch\r\n", address),
            ("*2\r\n+config-epoch\r\n+-1\r\n", address),
            ("_\r\n", address),
        ] {
            let found = view(&value(about), &value(address));
            assert!(matches!(found, Err(QueryError::Refused(_))));
        }
        let found = view(&value(about), &Value::Nil);
        assert!(matches!(found, Err(QueryError::NoSuchMaster)));
    }

    #[test]
    fn a_view_without_a_later_failover_replaces_nothing() {
        assert!(master(2, 2).replaces(&master(1, 1)));
        assert!(!master(1, 2).replaces(&master(1, 1)));
        assert!(!master(1, 2).replaces(&master(2, 1)));
        assert!(!master(2, 1).replaces(&master(1, 1)));
    }
}
