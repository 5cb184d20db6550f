//! The permissions of our user.
//!
//! They are found by trying, as a user with no more permissions than needed may not query them. The commands
//! are tried on keys that do not exist, most of them in one script, and change nothing.

use std::time::Duration;

use leasehold_core::{ClientId, Name};
use redis::{Value, cmd};

use super::{send, words};
use crate::store::api::{Key, Keyspace};
use crate::store::diagnose::{MissingRight, Purpose, Rights};
use crate::store::redis::address::deployment::Deployment;
use crate::store::redis::errors::{self, Refused};
use crate::store::redis::link::connection_manager::ConnectionManager;
use crate::store::redis::wire::keys::{client_key, queue_key, record_key, record_pattern};
use crate::store::redis::wire::reply::{is_error, text};
use crate::{Durability, Error, ErrorKind, Result};

/// The commands by their purpose, in the order of the command that creates a user.
const RIGHTS: [(Purpose, &str); 6] = [
    (Purpose::Lock, "eval evalsha time get set del pexpire"),
    (Purpose::Renew, "mget pexpireat"),
    (
        Purpose::Wait,
        "pttl lindex lpos rpush lrem ltrim publish pubsub|numsub subscribe unsubscribe",
    ),
    (Purpose::Losses, "client|tracking client|caching exists"),
    (Purpose::Hash, "hget hexists hmget hset hdel hgetall lpush"),
    (Purpose::Inspect, "scan lrange llen"),
];

/// One of many masters has one hash, in which it notes the largest token. This is tried in the script, which removes what
/// it writes.
const HSET: &str = "hset";

/// Tries the commands that can be called in a script. Returns pairs of command and error.
const PROBE: &str = include_str!("probe.lua");

/// The number of names tried to find one in a slot of a node. Of a hundred masters, one is missed once in
/// seven hundred times; then its permissions are not known. Nor are those of a node without a bucket of the
/// namespace, which has none of its locks.
const NAMES_MAX: u32 = 650;

/// The error code of a node for a key in a slot of another node.
const MOVED: &str = "MOVED";

/// The commands with which servers describe themselves. `CONFIG GET` also shows passwords.
const DIAGNOSIS: [&str; 2] = ["info", "config|get"];

/// The further ones of a cluster.
const CLUSTER_DIAGNOSIS: [&str; 2] = ["cluster|info", "cluster|nodes"];

/// The command that creates a user with exactly these permissions, and the one that creates a user for `doctor`. That
/// is not the user of the locks, who must not read the settings. It has the permissions of that user as well, because
/// the diagnosis tries them.
pub(super) fn lines(space: &Keyspace, deployment: &Deployment, extras: &[&str]) -> [String; 2] {
    let cluster: &[&str] = match deployment {
        Deployment::Cluster(_) => &CLUSTER_DIAGNOSIS,
        _ => &[],
    };
    let more = DIAGNOSIS.iter().chain(cluster);
    let more = more.filter(|command| !extras.contains(command));
    let all: Vec<_> = extras.iter().chain(more).copied().collect();
    [("leasehold", extras), ("leasehold-doctor", &all)]
        .map(|(user, extras)| user_line(user, space, deployment, extras))
}

fn user_line(user: &str, space: &Keyspace, deployment: &Deployment, extras: &[&str]) -> String {
    let any = match deployment {
        Deployment::Single(address) => Some(address),
        Deployment::Sentinel(set) => set.sentinels.first(),
        Deployment::Cluster(seeds) => seeds.first(),
        Deployment::Masters(masters) => masters.nodes.first(),
    };
    let db = any.map_or(0, |any| any.db);
    let namespace = space.namespace();
    let rows = RIGHTS.iter();
    let rows = rows.filter(|(purpose, _)| *purpose != Purpose::Hash || !extras.contains(&HSET));
    let commands = rows.flat_map(|(_, commands)| commands.split(' '));
    let mut line = format!("ACL SETUSER {user} reset on >PASSWORD ~{namespace}:* &{namespace}:*");
    // Another database than the first has to be selected.
    let extras = extras.iter().copied();
    for command in commands.chain(extras).chain((db != 0).then_some("select")) {
        line.push_str(" +");
        line.push_str(command);
    }
    line
}

/// The further commands that a deployment and a durability need.
pub(super) fn extras(deployment: &Deployment, durability: Durability) -> Vec<&'static str> {
    let mut extras = match deployment {
        Deployment::Single(_) | Deployment::Sentinel(_) => vec![],
        Deployment::Cluster(_) => vec!["cluster|slots", "cluster|myid", "asking"],
        Deployment::Masters(_) => vec!["hmget", HSET, "info"],
    };
    if durability.is_replicated() {
        extras.push("wait");
    }
    extras
}

/// Finds the permissions of our user, including these commands. `user` is its name, if the URL has one.
pub(super) async fn collect(
    manager: &ConnectionManager,
    space: &Keyspace,
    user: Option<String>,
    protocol: u8,
    extras: &[&'static str],
) -> Result<Rights> {
    let user = match user {
        Some(user) => Some(user),
        // If the server reports it.
        None => {
            let whoami = words(&["ACL", "WHOAMI"]);
            text(&manager.query(Duration::ZERO, whoami).await?)
        }
    };
    let mut rights = Rights {
        user,
        ..Rights::default()
    };
    let (record, channel, reply) = probe(manager, space).await?;
    rights.tried = !is_error(&reply, MOVED);
    match &reply {
        Value::Array(pairs) => {
            for pair in pairs.chunks_exact(2) {
                if let (Some(command), Some(words)) = (text(&pair[0]), text(&pair[1])) {
                    rights.note(&command.to_lowercase(), &words, extras);
                }
            }
        }
        reply => rights.note_reply("eval", reply, extras),
    }
    let (mut commands, mut names) = (Vec::new(), Vec::new());
    let mut try_out = |name: &'static str, args: &[&str]| {
        let command: Vec<_> = name.split('|').chain(args.iter().copied()).collect();
        commands.push(words(&command));
        names.push(name);
    };
    // The hash of no script.
    try_out("evalsha", &[&"0".repeat(40), "0"]);
    try_out(
        "scan",
        &["0", "MATCH", &record_pattern(space), "COUNT", "1"],
    );
    for &extra in extras {
        match extra {
            HSET => {}
            "hmget" => try_out(extra, &[&record, "f"]),
            // For no replica, so it does not block.
            "wait" => try_out(extra, &["0", "1"]),
            _ => try_out(extra, &[]),
        }
    }
    // With RESP2, notifications need another connection.
    if protocol == 3 {
        try_out("client|tracking", &["ON", "OPTIN", "NOLOOP"]);
        try_out("client|caching", &["YES"]);
        try_out("exists", &[&record]);
        try_out("subscribe", &[&channel]);
        try_out("unsubscribe", &[&channel]);
    }
    let replies = send(manager, commands).await?;
    for (command, reply) in names.into_iter().zip(&replies) {
        rights.note_reply(command, reply, extras);
    }
    rights.missing.sort_by_key(|lack| lack.purpose);
    Ok(rights)
}

/// Runs the script. A node of a cluster accepts only names in its slots. Returns the record and the channel that it
/// was run with, and its reply.
async fn probe(manager: &ConnectionManager, space: &Keyspace) -> Result<(String, String, Value)> {
    let mut left = NAMES_MAX;
    loop {
        let (key, client) = unused_names(space)?;
        let channel = client_key(space, client);
        let (record, queue) = (record_key(&key), queue_key(&key));
        let mut probe = cmd("EVAL");
        probe.arg(PROBE).arg(2).arg(&record).arg(queue);
        probe.arg(&channel);
        let reply = manager.query(Duration::ZERO, probe).await?;
        left -= 1;
        if !is_error(&reply, MOVED) || left == 0 {
            return Ok((record, channel, reply));
        }
    }
}

/// The key of a lock that does not exist, and the id of a client that does not exist.
fn unused_names(space: &Keyspace) -> Result<(Key, ClientId)> {
    let client = ClientId::from_random(crate::random::bytes("a name")?);
    let name = Name::parse(&format!("doctor/{client}"));
    let name = name.map_err(|error| Error::new(ErrorKind::InvalidName, error.to_string()))?;
    Ok((space.key(name), client))
}

impl Rights {
    fn note_reply(&mut self, command: &str, reply: &Value, extras: &[&str]) {
        if let Value::ServerError(error) = reply {
            let (code, details) = (error.code(), error.details().unwrap_or_default());
            self.note(command, &format!("{code} {details}"), extras);
        }
    }

    /// Adds the result of a command.
    fn note(&mut self, command: &str, words: &str, extras: &[&str]) {
        let mut rows = RIGHTS.iter();
        let row = rows.find(|(_, commands)| commands.split(' ').any(|known| known == command));
        let purpose = match row {
            Some((purpose, _)) if !extras.contains(&command) => *purpose,
            _ => Purpose::Lock,
        };
        if purpose == Purpose::Hash && extras.contains(&HSET) {
            return;
        }
        let rule = match errors::refused_words(words) {
            Some(Refused::Command) => format!("+{command}"),
            Some(Refused::Keys) => "~".to_owned(),
            Some(Refused::Channels) => "&".to_owned(),
            Some(Refused::Moment) => {
                self.blocked.get_or_insert_with(|| errors::quote(words));
                return;
            }
            // It failed in another way, so it is permitted.
            None => return,
        };
        match self.missing.iter_mut().find(|lack| lack.rule == rule) {
            Some(lack) => lack.purpose = lack.purpose.min(purpose),
            None => self.missing.push(MissingRight { rule, purpose }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::store::api::fixture;

    #[test]
    fn a_line_names_every_right_once_and_that_for_doctor_adds_what_it_reads() {
        let cluster = "+info +config|get +cluster|info +cluster|nodes";
        for (url, end, more) in [
            ("redis://host/3", "+llen +select", "+info +config|get"),
            ("redis+sentinel://host/m/3", "+select", "+info +config|get"),
            ("redis+cluster://host", "+cluster|myid +asking", cluster),
            // Its locks need `INFO` as well.
            ("redlock://a,b,c", "+hmget +hset +info", "+config|get"),
        ] {
            let deployment = Deployment::parse(url).unwrap();
            let extras = extras(&deployment, Durability::None);
            let space = fixture::space("app", "t");
            let [locks, doctor] = lines(&space, &deployment, &extras);
            assert!(locks.contains(" ~app:* &app:* +eval ") && locks.ends_with(end));
            let words = |line: &str| line.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
            for line in [&locks, &doctor] {
                assert_eq!(words(line).len(), line.split(' ').count(), "{line}");
            }
            let added: BTreeSet<_> = &words(&doctor) - &words(&locks);
            let expected = words(&format!("leasehold-doctor {more}"));
            assert_eq!(added, expected, "{doctor}");
        }
    }
}
