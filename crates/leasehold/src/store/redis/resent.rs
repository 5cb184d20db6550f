//! The order in which the requests of a batch are sent, and sent again.

use std::collections::{HashMap, HashSet};

use super::topology::call::Positioned;
use super::wire::script::{REQUESTS_MAX, Script};
use crate::store::api::Request;

/// What is known of the requests of a batch that are sent again.
#[derive(Debug, Default)]
pub(super) struct Resent {
    /// Those for which the waiters of a lock of another kind were served.
    pub(super) served: HashSet<usize>,
    /// Those whose records are of another script than was expected.
    pub(super) scripts: HashMap<usize, Script>,
    /// Whether the last call has redirected one. It is sent again without a delay.
    pub(super) is_redirected: bool,
}

impl Resent {
    /// A script has left a request to the other one.
    pub(super) fn redirect(&mut self, position: usize, by: Option<Script>) {
        let other = match by {
            Some(Script::Mutex) => Script::Shares,
            _ => Script::Mutex,
        };
        self.scripts.insert(position, other);
        self.is_redirected = true;
    }
}

/// Splits off what is sent later than the first part, which is of one script. Requests for a name stay in order.
pub(super) fn split_part(
    requests: &mut Positioned,
    script: impl Fn(&(usize, Request)) -> Option<Script>,
) -> (Option<Script>, Positioned) {
    let of_part = requests.first().and_then(&script);
    let mut later = HashSet::new();
    let mut count = 0;
    let rest = requests.extract_if(.., |request| {
        let is_same = count < REQUESTS_MAX && script(request) == of_part;
        let is_next = is_same && !later.contains(&request.1.key);
        match is_next {
            true => count += 1,
            false => drop(later.insert(request.1.key.clone())),
        }
        !is_next
    });
    (of_part, rest.collect())
}
