//! Who a client is, written down for those who look.

use std::time::Duration;

use redis::{Cmd, RedisWrite, Value};

use super::{codec, errors};
use crate::Result;
use crate::store::About;

/// Writes down who a client is.
pub(super) const ANNOUNCE: &str = include_str!("scripts/client.lua");

/// The call of the script that writes down who a client is.
pub(super) fn client_info(
    verb: &str,
    script: &str,
    key: &str,
    about: &About,
    ttl: Duration,
) -> Cmd {
    let millis = u32::try_from(ttl.as_millis()).unwrap_or(u32::MAX).max(1);
    let mut cmd = Cmd::new();
    cmd.arg(verb).arg(script).arg(1).arg(key).arg(millis);
    cmd.arg("host").arg(&about.host);
    cmd.arg("program").arg(&about.program);
    cmd.arg("label").arg(&about.label);
    cmd.write_arg(b"pid");
    cmd.write_arg_fmt(about.pid);
    cmd.write_arg(b"since");
    cmd.write_arg_fmt(about.since_ms);
    cmd
}

pub(super) fn announced(key: &str, answer: Value) -> Result<()> {
    Err(match answer {
        Value::Int(_) => return Ok(()),
        Value::ServerError(error) => errors::call(&error).0,
        answer => codec::failed_command(key, &answer).unwrap_or_else(errors::strange_answer),
    })
}
