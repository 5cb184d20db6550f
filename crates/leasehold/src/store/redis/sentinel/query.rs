//! Queries one sentinel.

use redis::{Pipeline, Value};

use super::super::address::Address;
use super::super::codec::{field, text};
use super::super::{connect, errors};
use crate::{Error, ErrorKind};

/// The master, as a sentinel sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct View {
    /// Increases with every failover.
    pub(super) epoch: u64,
    pub(super) host: String,
    pub(super) port: u16,
}

/// Why a sentinel does not name a master.
#[derive(Clone, Debug)]
pub(super) enum QueryError {
    /// It does not monitor a master of this name.
    NoSuchMaster,
    /// The server is not a sentinel.
    NoSentinel,
    /// It refused.
    Refused(Error),
    Unreachable(Error),
}

impl View {
    /// Whether it names another server than this earlier view.
    pub(super) fn replaces(&self, earlier: &Self) -> bool {
        let same = (&self.host, self.port) == (&earlier.host, earlier.port);
        !same && self.epoch >= earlier.epoch
    }
}

/// Asks a sentinel for the master of a name. Has no timeout of its own.
pub(super) async fn query_master(sentinel: &Address, name: &str) -> Result<View, QueryError> {
    let connected = connect::plain(sentinel).await;
    let mut connection = connected.map_err(|error| match error.kind() {
        ErrorKind::Unreachable => QueryError::Unreachable(error),
        _ => refusal(&error),
    })?;
    let mut pipeline = Pipeline::new();
    pipeline.cmd("SENTINEL").arg("MASTER").arg(name);
    // During a failover this is already the promoted server, while the other answer is not.
    pipeline
        .cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name);
    let answers = connection.send_packed_commands(&pipeline, 0, 2).await;
    let answers = answers.map_err(|error| QueryError::Unreachable(errors::no_answer(&error)))?;
    match answers.as_slice() {
        [about, address] => view(about, address),
        _ => Err(QueryError::Refused(errors::strange_answer())),
    }
}

fn view(about: &Value, address: &Value) -> Result<View, QueryError> {
    for answer in [address, about] {
        if let Value::ServerError(error) = answer {
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
    let strange = || QueryError::Refused(errors::strange_answer());
    let (host, port) = match address {
        Value::Nil => return Err(QueryError::NoSuchMaster),
        Value::Array(pair) => match pair.as_slice() {
            [host, port] => text(host).zip(text(port)).ok_or_else(strange)?,
            _ => return Err(strange()),
        },
        _ => return Err(strange()),
    };
    let epoch = field(about, "config-epoch").and_then(text);
    let epoch = epoch.and_then(|epoch| epoch.parse().ok());
    Ok(View {
        epoch: epoch.ok_or_else(strange)?,
        host,
        port: port.parse().map_err(|_| strange())?,
    })
}

fn refusal(error: &Error) -> QueryError {
    let advice = match error.kind() {
        ErrorKind::Unauthorized => {
            "; they have a password of their own, and ?sentinel-user=USER if they have users"
        }
        _ => "",
    };
    let message = format!("{error}{advice}");
    QueryError::Refused(error.clone().reworded(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    #[test]
    fn an_invalid_answer_names_no_master() {
        let flat = |words: &[&str]| Value::Array(words.iter().map(|word| bulk(word)).collect());
        let about = flat(&["name", "m", "config-epoch", "7"]);
        let address = flat(&["::1", "6379"]);
        let found = view(&about, &address).unwrap();
        assert_eq!(
            (found.epoch, found.host.as_str(), found.port),
            (7, "::1", 6379)
        );
        for (about, address) in [
            (&about, &flat(&["::1", "70000"])),
            (&about, &flat(&["::1"])),
            (&about, &Value::Int(1)),
            (&flat(&["config-epoch"]), &address),
            (&flat(&["config-epoch", "-1"]), &address),
            (&Value::Nil, &address),
        ] {
            assert!(matches!(view(about, address), Err(QueryError::Refused(_))));
        }
        assert!(matches!(
            view(&about, &Value::Nil),
            Err(QueryError::NoSuchMaster)
        ));
    }

    #[test]
    fn an_older_view_replaces_nothing() {
        let view = |epoch, port| View {
            epoch,
            host: "a".to_owned(),
            port,
        };
        assert!(view(2, 2).replaces(&view(1, 1)));
        assert!(view(1, 2).replaces(&view(1, 1)));
        assert!(!view(1, 2).replaces(&view(2, 1)));
        assert!(!view(2, 1).replaces(&view(1, 1)));
    }
}
