//! What our user may do.
//!
//! It is found out by trying: a user with no more rights than needed may not ask for them. What is
//! tried is done to keys that nobody has, in one script, and changes nothing.

use leasehold_core::{ClientId, Name};
use redis::{Value, cmd};

use super::{send, words};
use crate::store::api::{Key, Keyspace};
use crate::store::diagnose::{Lack, Need, Rights};
use crate::store::redis::codec::text;
use crate::store::redis::connection_manager::ConnectionManager;
use crate::store::redis::deployment::Deployment;
use crate::store::redis::errors::{self, Refused};
use crate::store::redis::keys::{ClientKey, QueueKey, RecordKey, RecordPattern};
use crate::{Durability, Error, ErrorKind, Result};

/// What the commands are needed for. In the order in which the line for a user names them.
const RIGHTS: [(Need, &[&str]); 6] = [
    (
        Need::Lock,
        &[
            "eval", "evalsha", "time", "get", "set", "hget", "hset", "hdel", "pexpire", "pttl",
            "lindex",
        ],
    ),
    (Need::Renew, &["hexists"]),
    (
        Need::Wait,
        &[
            "lpos",
            "rpush",
            "lrem",
            "ltrim",
            "publish",
            "pubsub|numsub",
            "subscribe",
            "unsubscribe",
        ],
    ),
    (
        Need::Losses,
        &["client|tracking", "client|caching", "exists"],
    ),
    (Need::Look, &["scan", "hgetall"]),
    (Need::Force, &["del"]),
];

/// What is tried of those that can be called in a script. It is answered with pairs of command and
/// error.
const PROBE: &str = include_str!("probe.lua");

/// How many names are tried for one that is in a slot of a node. One of a hundred masters is missed
/// once in seven hundred times; then nothing is said of its rights.
const NAMES_MAX: u32 = 650;

/// The line that makes a user who may do all of it and nothing else.
pub(super) fn line(space: &Keyspace, deployment: &Deployment, extras: &[&str]) -> String {
    let any = match deployment {
        Deployment::Single(address) => Some(address),
        Deployment::Sentinel(set) => set.sentinels.first(),
        Deployment::Cluster(seeds) => seeds.first(),
        Deployment::Masters(masters) => masters.nodes.first(),
    };
    let db = any.map_or(0, |any| any.db);
    let namespace = space.namespace();
    let commands = RIGHTS.iter().flat_map(|(_, commands)| commands.iter());
    let mut line =
        format!("ACL SETUSER leasehold reset on >PASSWORD ~{namespace}:* &{namespace}:*");
    // Whoever wants another database than the first has to choose it.
    for command in commands.chain(extras).chain((db != 0).then_some(&"select")) {
        line.push_str(" +");
        line.push_str(command);
    }
    line
}

/// What a deployment needs to grant a lock beside that, of this durability.
pub(super) fn extras(deployment: &Deployment, durability: Durability) -> Vec<&'static str> {
    let mut extras = match deployment {
        Deployment::Single(_) | Deployment::Sentinel(_) => vec![],
        Deployment::Cluster(_) => vec!["cluster|slots", "cluster|myid", "asking"],
        Deployment::Masters(_) => vec!["hmget", "info"],
    };
    if durability.is_replicated() {
        extras.push("wait");
    }
    extras
}

/// Tries what our user may do, these commands among it.
pub(super) async fn ask(
    manager: &ConnectionManager,
    space: &Keyspace,
    protocol: u8,
    extras: &[&'static str],
) -> Result<Rights> {
    let mut rights = Rights {
        user: user(manager).await?,
        ..Rights::default()
    };
    let Probed {
        record,
        channel,
        answer,
    } = probe(manager, space).await?;
    match &answer {
        Some(Value::Array(pairs)) => {
            for pair in pairs.chunks_exact(2) {
                if let (Some(command), Some(words)) = (text(&pair[0]), text(&pair[1])) {
                    rights.note(
                        &command.to_lowercase(),
                        errors::refused_words(&words),
                        &words,
                    );
                }
            }
        }
        Some(answer) => rights.note_answer("eval", answer),
        None => {}
    }
    let (mut commands, mut asked) = (Vec::new(), Vec::new());
    let mut try_out = |name: &'static str, command: &[&str]| {
        commands.push(words(command));
        asked.push(name);
    };
    // A script that no server knows.
    try_out("evalsha", &["EVALSHA", &"0".repeat(40), "0"]);
    let pattern = RecordPattern(space).to_string();
    try_out("scan", &["SCAN", "0", "MATCH", &pattern, "COUNT", "1"]);
    for &extra in extras {
        let words: Vec<_> = match extra {
            "hmget" => vec!["HMGET", &record, "f"],
            // For nobody, so it does not wait.
            "wait" => vec!["WAIT", "0", "1"],
            other => other.split('|').collect(),
        };
        try_out(extra, &words);
    }
    // Before that there is no way to be told on this connection.
    if protocol == 3 {
        try_out(
            "client|tracking",
            &["CLIENT", "TRACKING", "ON", "OPTIN", "NOLOOP"],
        );
        try_out("client|caching", &["CLIENT", "CACHING", "YES"]);
        try_out("exists", &["EXISTS", &record]);
        try_out("subscribe", &["SUBSCRIBE", &channel]);
        try_out("unsubscribe", &["UNSUBSCRIBE", &channel]);
    }
    let answers = send(manager, commands).await?;
    for (command, answer) in asked.into_iter().zip(&answers) {
        rights.note_answer(command, answer);
    }
    rights.lacks.sort_by_key(|lack| lack.need);
    Ok(rights)
}

/// What came of the script.
struct Probed {
    record: String,
    channel: String,
    answer: Option<Value>,
}

/// Runs the script. A node of a cluster does it for names in its slots only.
async fn probe(manager: &ConnectionManager, space: &Keyspace) -> Result<Probed> {
    let mut left = NAMES_MAX;
    loop {
        let (key, client) = nobodys(space)?;
        let channel = ClientKey(space, client).to_string();
        let (record, queue) = (RecordKey(&key).to_string(), QueueKey(&key).to_string());
        let mut probe = cmd("EVAL");
        probe.arg(PROBE).arg(2).arg(&record).arg(queue);
        probe.arg(&channel);
        let answer = send(manager, [probe]).await?.into_iter().next();
        let moved = matches!(&answer, Some(Value::ServerError(error)) if error.code() == "MOVED");
        left -= 1;
        if !moved || left == 0 {
            return Ok(Probed {
                record,
                channel,
                answer,
            });
        }
    }
}

/// Who the server takes us for, if it tells.
async fn user(manager: &ConnectionManager) -> Result<Option<String>> {
    let answers = send(manager, [words(&["ACL", "WHOAMI"])]).await?;
    Ok(answers.first().and_then(text))
}

/// A lock that nobody holds, and a client that nobody is.
fn nobodys(space: &Keyspace) -> Result<(Key, ClientId)> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = "the system has no random numbers for a name";
        Error::new(ErrorKind::Unsupported, message).with_source(error)
    })?;
    let client = ClientId::from_random(bytes);
    let name = Name::parse(&format!("doctor/{client}"));
    let name = name.map_err(|error| Error::new(ErrorKind::InvalidName, error.to_string()))?;
    Ok((space.key(name), client))
}

impl Rights {
    fn note_answer(&mut self, command: &str, answer: &Value) {
        if let Value::ServerError(error) = answer {
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            let words = format!("{code} {details}");
            self.note(command, errors::refused_words(&words), &words);
        }
    }

    /// Notes what came of a command.
    fn note(&mut self, command: &str, refused: Option<Refused>, words: &str) {
        let need = RIGHTS
            .iter()
            .find(|(_, commands)| commands.contains(&command))
            .map_or(Need::Lock, |(need, _)| *need);
        let rule = match refused {
            Some(Refused::Command) => format!("+{command}"),
            Some(Refused::Keys) => "~".to_owned(),
            Some(Refused::Channels) => "&".to_owned(),
            Some(Refused::Moment) => {
                self.blocked.get_or_insert_with(|| errors::quote(words));
                return;
            }
            // It was tried in a way that changes nothing, and failed at that.
            None => return,
        };
        match self.lacks.iter_mut().find(|lack| lack.rule == rule) {
            Some(lack) => lack.need = lack.need.min(need),
            None => self.lacks.push(Lack { rule, need }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::ScopeName;

    use super::*;
    use crate::ReplicaCount;

    #[test]
    fn the_line_names_every_right_once() {
        let scope = |text| ScopeName::parse(text).unwrap();
        let space = Keyspace::new(scope("app"), scope("t"));
        let line_of = |url: &str, durability| {
            let deployment = Deployment::parse(url).unwrap();
            line(&space, &deployment, &extras(&deployment, durability))
        };
        let of = |url: &str| line_of(url, Durability::None);
        let line = of("redis://host");
        assert!(line.contains(" ~app:* &app:* +eval "), "{line}");
        let mut words: Vec<_> = line.split(' ').collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(of("redis://host/3").ends_with(" +select"));
        assert!(of("redis+sentinel://host/m/3").ends_with(" +select"));
        assert!(of("redis+cluster://host").ends_with(" +cluster|myid +asking"));
        assert!(of("redlock://a,b,c").ends_with(" +hmget +info"));
        let replicated = Durability::Replicas {
            count: ReplicaCount::All,
            timeout: Duration::from_secs(1),
        };
        assert!(line_of("redis://host", replicated).ends_with(" +wait"));
    }
}
