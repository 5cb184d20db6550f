//! A server that is one of many masters: who it is, and how it is armed.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Scope, StoreTime, Token};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value, cmd};

use super::address::Address;
use super::batch::{failed_command, text};
use super::connection::{Link, Trouble};
use super::errors;
use super::listeners::Listeners;
use super::renewals::Renewals;
use super::replicas::Replicas;
use super::script::Script;
use super::{ANNOUNCE, MUTEX, OpenOptions, RedisStore};
use crate::{Error, Result};

const MASTER: &str = include_str!("scripts/master.lua");

/// The mark of one of many masters: `<namespace>:master`.
pub(super) struct MarkKey<'a>(pub(super) &'a Scope);

impl fmt::Display for MarkKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:master", self.0)
    }
}

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(in crate::store) struct Facts {
    /// The run of its process.
    pub(in crate::store) run: String,
    pub(in crate::store) version: String,
    /// Of which server it is a replica, if it is one.
    pub(in crate::store) master: Option<String>,
    /// Whether it is a node of a cluster.
    pub(in crate::store) cluster: bool,
}

/// A master and its mark, as somebody saw them.
#[derive(Clone, Debug)]
pub(in crate::store) struct Sight {
    /// The run of its process.
    pub(in crate::store) run: String,
    /// How long it has run.
    pub(in crate::store) up: Duration,
    /// Its time.
    pub(in crate::store) now: StoreTime,
    /// For which run it is armed. `None`: it never was, or has forgotten it.
    pub(in crate::store) armed: Option<String>,
    /// The largest token that it knows.
    pub(in crate::store) high: Option<Token>,
    /// When this run was seen first, as long as it is not armed.
    pub(in crate::store) since: Option<StoreTime>,
}

impl Sight {
    pub(in crate::store) fn is_armed(&self) -> bool {
        self.armed.as_ref() == Some(&self.run)
    }
}

impl RedisStore {
    /// One of many masters. Nothing is connected before it is used.
    pub(in crate::store) fn one_of_many(address: Address, options: &OpenOptions) -> Self {
        let listeners = Listeners::without_queue();
        let (connect, response) = (options.connect_timeout, options.response_timeout);
        let link = Link::told_to(listeners, address, connect, response);
        Self {
            replicas: Replicas::beside(&link),
            link,
            mutex: Script::new(MUTEX),
            renewals: Renewals::new(),
            announce: Script::new(ANNOUNCE),
            master: Some(Script::new(MASTER)),
        }
    }

    /// Whether it is there, lets us in and knows what it must; and who it is.
    pub(in crate::store) async fn meet(&self) -> Result<Facts> {
        self.greet().await?;
        let mut info = String::new();
        // One section each: older servers answer only the first.
        for section in ["server", "replication", "cluster"] {
            let mut question = cmd("INFO");
            question.arg(section);
            info.push_str(&self.question("INFO", question).await?);
            info.push('\n');
        }
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(field, _)| *field == name);
            found.map(|(_, value)| value.trim().to_owned())
        };
        let of_master = || {
            let (host, port) = (field("master_host")?, field("master_port")?);
            Some(format!("{host}:{port}"))
        };
        Ok(Facts {
            run: field("run_id").ok_or_else(|| errors::strange_answer().at_store(self))?,
            version: field("redis_version").unwrap_or_default(),
            master: field("role")
                .filter(|role| role == "slave")
                .and_then(|_| of_master()),
            cluster: field("cluster_enabled").is_some_and(|enabled| enabled == "1"),
        })
    }

    /// Looks at the mark of a namespace. Who is not armed is seen from now on.
    pub(in crate::store) async fn look(&self, namespace: &Scope) -> Result<Sight> {
        self.master_script(namespace, None).await
    }

    /// Arms it for a run, if it still is that run.
    pub(in crate::store) async fn arm(
        &self,
        namespace: &Scope,
        run: &str,
        floor: Option<Token>,
    ) -> Result<Sight> {
        self.master_script(namespace, Some((run, floor))).await
    }

    /// Whether it keeps all that it has acknowledged when it is killed: it syncs each write before it
    /// answers. `false` also if it does not tell.
    pub(in crate::store) async fn keeps_all(&self) -> bool {
        let mut kept = true;
        for (setting, wanted) in [("appendonly", "yes"), ("appendfsync", "always")] {
            let mut question = cmd("CONFIG");
            question.arg("GET").arg(setting);
            let asked = |mut connection: MultiplexedConnection| async move {
                connection.send_packed_command(&question).await
            };
            kept &= match self.link.exchange(asked).await {
                Ok(Value::Map(pairs)) => pairs
                    .iter()
                    .any(|(_, value)| text(value).as_deref() == Some(wanted)),
                Ok(Value::Array(pair)) => pair.iter().filter_map(text).any(|word| word == wanted),
                _ => false,
            };
        }
        kept
    }

    async fn master_script(
        &self,
        namespace: &Scope,
        arm: Option<(&str, Option<Token>)>,
    ) -> Result<Sight> {
        let key = MarkKey(namespace).to_string();
        let Some(script) = &self.master else {
            return Err(errors::strange_answer().at_store(self));
        };
        let call = |verb: &str, script: &str| {
            let mut cmd = Cmd::new();
            cmd.arg(verb).arg(script).arg(1).arg(&key);
            if let Some((run, floor)) = arm {
                cmd.arg(run).arg(floor.map_or(0, Token::get));
            }
            cmd
        };
        let answer = self
            .link
            .exchange(|mut connection| async move { script.call(&mut connection, call).await })
            .await;
        let answered = match answer {
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => Err(error),
            Ok(Value::ServerError(error)) => Err(errors::call(&error).0),
            Ok(answer) => sight(&answer).ok_or_else(|| {
                failed_command(&key, &answer).unwrap_or_else(errors::strange_answer)
            }),
        };
        answered.map_err(|error| error.at_store(self))
    }

    async fn question(&self, command: &str, question: Cmd) -> Result<String> {
        let asked = |mut connection: MultiplexedConnection| async move {
            connection.send_packed_command(&question).await
        };
        let answered = match self.link.exchange(asked).await {
            Err(Trouble::NotSent(error) | Trouble::Unanswered(error)) => Err(error),
            Ok(Value::ServerError(error)) => Err(errors::command_error(command, "", &error)),
            Ok(Value::VerbatimString { text, .. }) => Ok(text),
            Ok(answer) => text(&answer).ok_or_else(errors::strange_answer),
        };
        answered.map_err(|error: Error| error.at_store(self))
    }
}

fn sight(answer: &Value) -> Option<Sight> {
    let Value::Array(items) = answer else {
        return None;
    };
    let [run, up, now, armed, high, since] = <[Value; 6]>::try_from(items.clone()).ok()?;
    let number = |value: &Value| text(value)?.parse::<u64>().ok();
    Some(Sight {
        run: text(&run).filter(|run| !run.is_empty())?,
        up: Duration::from_secs(number(&up)?),
        now: StoreTime::from_micros(number(&now)?),
        armed: text(&armed).filter(|run| !run.is_empty()),
        high: number(&high).and_then(Token::new),
        since: number(&since).map(StoreTime::from_micros),
    })
}
