//! Lists the names and completions of a keyspace, and describes the clients behind leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{ClientId, LeaseId};
use redis::{Value, cmd, from_redis_value};

use super::{Unreadable, checked, commands, keyed, view};
use crate::Result;
use crate::store::api::{ClientInfo, Keyspace, Parts, View};
use crate::store::redis::RedisStore;
use crate::store::redis::errors;
use crate::store::redis::wire::keys::{
    annotation_key, client_key, completion_pattern, parse_completion, parse_record, record_pattern,
};
use crate::store::redis::wire::note;
use crate::store::redis::wire::reply::text;

/// The number of keys that one step of a listing scans, which takes about half a millisecond.
const SCAN_COUNT: u32 = 1_000;

/// The number of records read in one round trip, each with up to 120 kB of waiters. A server closes a connection with
/// subscriptions once 32 MB of replies wait for it, or 8 MB for a minute.
const READ_MAX: usize = 64;

impl RedisStore {
    /// The completions of a keyspace, by name and kind.
    pub(super) async fn completions(&self, space: &Keyspace) -> Result<Vec<View>> {
        let pattern = completion_pattern(space);
        let parse = |key: &[u8]| parse_completion(space, key);
        let names = self.scan(&pattern, parse).await?.into_iter();
        let named = names.map(|(name, slot)| {
            let key = space.key(name);
            (annotation_key(&key, &slot), key, slot)
        });
        let named: Vec<_> = named.collect();
        let mut found = Vec::new();
        for part in named.chunks(READ_MAX) {
            let commands = part
                .iter()
                .map(|(text, ..)| keyed("GET", text.clone(), &[]));
            let replies = self.fetch(commands.collect()).await?;
            for ((text, key, slot), reply) in part.iter().zip(&replies) {
                match checked("GET", text, reply) {
                    Err(Unreadable::Refused(error)) => return Err(error.for_lock(&key.name)),
                    // It has expired meanwhile.
                    Ok(Value::Nil) => continue,
                    Ok(_) | Err(Unreadable::Foreign(_)) => {}
                }
                let mut view = View::of(key.clone());
                match note::parse(reply) {
                    Some(annotation) => view.annotations.push((slot.clone(), annotation)),
                    None => view.unreadable = Some(slot.clone()),
                }
                found.push(view);
            }
        }
        Ok(found)
    }

    /// The locks of a keyspace that are held, by name, with their waiters.
    pub(super) async fn list(&self, space: &Keyspace) -> Result<Vec<View>> {
        let pattern = record_pattern(space);
        let parse = |key: &[u8]| parse_record(space, key);
        let names = self.scan(&pattern, parse).await?.into_iter();
        let keys: Vec<_> = names.map(|name| space.key(name)).collect();
        let mut listed = Vec::new();
        for part in keys.chunks(READ_MAX) {
            let commands: Vec<_> = part
                .iter()
                .flat_map(|key| commands(key, &Parts::Waiters))
                .collect();
            let each = commands.len() / part.len();
            let replies = self.fetch(commands).await?;
            let names: Vec<_> = part.iter().zip(replies.chunks(each)).collect();
            let mut shared = self.shared(&names).await?;
            for (key, replies) in names {
                match view(key, &Parts::Waiters, replies, shared.remove(&key.name)) {
                    Ok(view) if view.holder.is_some() => listed.push(view),
                    Ok(_) | Err(Unreadable::Foreign(_)) => {}
                    Err(Unreadable::Refused(error)) => {
                        return Err(error.for_lock(&key.name));
                    }
                }
            }
        }
        self.add_clients(&mut listed).await?;
        Ok(listed)
    }

    /// Adds the descriptions of the clients that hold the locks and of those that wait for them.
    pub(super) async fn add_clients(&self, views: &mut [View]) -> Result<()> {
        let mut clients = BTreeMap::<ClientId, String>::new();
        for view in views.iter() {
            let waiting = view.waiters.iter().map(|waiter| waiter.lease);
            let holding = view.holder.iter().chain(&view.others);
            let holding = holding.map(|holder| holder.lease);
            for LeaseId { client, .. } in waiting.chain(holding) {
                let key = || client_key(&view.key.space, client);
                clients.entry(client).or_insert_with(key);
            }
        }
        let clients: Vec<_> = clients.into_iter().collect();
        let mut found = BTreeMap::<ClientId, ClientInfo>::new();
        for part in clients.chunks(READ_MAX) {
            let commands = part.iter().map(|(_, key)| keyed("GET", key.clone(), &[]));
            let replies = self.fetch(commands.collect()).await?;
            let read = part.iter().zip(&replies);
            found.extend(
                read.filter_map(|((client, _), reply)| Some((*client, client_info(reply)?))),
            );
        }
        for view in views {
            for holder in view.holder.iter_mut().chain(&mut view.others) {
                holder.client = found.get(&holder.lease.client).cloned();
            }
            for waiter in &mut view.waiters {
                waiter.client = found.get(&waiter.lease.client).cloned();
            }
        }
        Ok(())
    }

    /// The description of a client.
    pub(super) async fn client(
        &self,
        space: &Keyspace,
        client: ClientId,
    ) -> Result<Option<ClientInfo>> {
        let key = client_key(space, client);
        let replies = self.fetch(vec![keyed("GET", key.clone(), &[])]).await?;
        match replies.first() {
            Some(Value::ServerError(error)) => Err(errors::command_error("GET", &key, error)),
            reply => Ok(reply.and_then(client_info)),
        }
    }

    /// What is parsed from the keys of all servers that match a pattern, in order.
    async fn scan<T: Ord>(
        &self,
        pattern: &str,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<BTreeSet<T>> {
        let mut found = BTreeSet::new();
        for server in self.topology.servers() {
            let mut cursor = "0".to_owned();
            loop {
                let mut scan = cmd("SCAN");
                scan.arg(&cursor).arg("MATCH").arg(pattern);
                scan.arg("COUNT").arg(SCAN_COUNT);
                let reply = server.manager.query(Duration::ZERO, scan).await?;
                let (next, keys) = scanned(reply, pattern)
                    .map_err(|error| error.at_store(server.manager.target()))?;
                found.extend(keys.iter().filter_map(|key| parse(key)));
                if next == "0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found)
    }
}

/// The next cursor and the keys in a reply to `SCAN`.
fn scanned(reply: Value, pattern: &str) -> Result<(String, Vec<Vec<u8>>)> {
    match reply {
        Value::ServerError(error) => Err(errors::command_error("SCAN", pattern, &error)),
        reply => from_redis_value(reply).map_err(|_| errors::invalid_reply()),
    }
}

fn client_info(reply: &Value) -> Option<ClientInfo> {
    ClientInfo::from_text(&text(reply)?)
}
