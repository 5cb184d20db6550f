//! The names that are known not to be mutexes, so that their operations go to the right script immediately.

use std::collections::HashSet;
use std::sync::Mutex;

use super::topology::call::Call;
use super::wire::decode::{Decoded, Remark};
use super::wire::script::Script;
use crate::store::api::{Key, Request};
use crate::store::lock::lock;

/// The most names. Beyond that all are forgotten: the first operation on each is then sent twice.
const NAMES_MAX: usize = 65_536;

/// Semaphores and read-write locks that this process has used. Only a script knows: what is wrong here costs a round trip.
#[derive(Debug, Default)]
pub(super) struct SharedNames(Mutex<HashSet<Key>>);

impl SharedNames {
    /// The script for a request, unless an earlier reply has said that it is `redirected`.
    pub(super) fn script(&self, request: &Request, redirected: Option<&Script>) -> Option<Script> {
        Some(match (Script::of(&request.op)?, redirected) {
            (Script::Mutex, Some(script)) => *script,
            // A request for a mutex is for a free name.
            (Script::Mutex, None)
                if !request.acquires() && lock(&self.0).contains(&request.key) =>
            {
                Script::Shares
            }
            (script, _) => script,
        })
    }

    /// Notes what the reply to a call says of its names.
    pub(super) fn note(&self, call: &Call, decoded: &[Decoded]) {
        for (request, decoded) in call.requests.iter().zip(decoded) {
            let is_elsewhere = decoded.remark == Some(Remark::Elsewhere);
            let is_shared = match call.script() {
                Some(Script::Shares) => !is_elsewhere,
                Some(Script::Mutex) if is_elsewhere => true,
                _ => continue,
            };
            let mut names = lock(&self.0);
            if is_shared && !names.contains(&request.key) {
                if names.len() >= NAMES_MAX {
                    names.clear();
                }
                names.insert(request.key.clone());
            } else if !is_shared {
                names.remove(&request.key);
            }
        }
    }
}
