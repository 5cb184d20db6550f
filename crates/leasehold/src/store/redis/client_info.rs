//! The description that a client stores of itself, for people who list locks.

use std::time::Duration;

use redis::{Cmd, RedisWrite, Value};

use super::{codec, errors};
use crate::Result;
use crate::store::api::ClientInfo;

/// The script that stores the description of a client.
pub(super) const REGISTER: &str = include_str!("scripts/client.lua");

/// The description of a client, to be stored under this key for this time.
pub(super) struct Registration<'a> {
    pub(super) key: &'a str,
    pub(super) info: &'a ClientInfo,
    pub(super) ttl: Duration,
}

/// A call of [`REGISTER`].
pub(super) fn encode(verb: &str, script: &str, registration: &Registration<'_>) -> Cmd {
    let Registration { key, info, ttl } = registration;
    let millis = u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX).max(1);
    let mut cmd = Cmd::new();
    cmd.arg(verb).arg(script).arg(1).arg(key).arg(millis);
    cmd.arg("host").arg(&info.host);
    cmd.arg("program").arg(&info.program);
    cmd.arg("label").arg(&info.label);
    cmd.write_arg(b"pid");
    cmd.write_arg_fmt(info.pid);
    cmd.write_arg(b"since");
    cmd.write_arg_fmt(info.since_millis());
    cmd
}

/// The result of a call of [`REGISTER`].
pub(super) fn registered(key: &str, reply: Value) -> Result<()> {
    Err(match reply {
        Value::Int(_) => return Ok(()),
        Value::ServerError(error) => errors::call(&error).0,
        reply => codec::failed_command(key, &reply).unwrap_or_else(errors::invalid_reply),
    })
}
