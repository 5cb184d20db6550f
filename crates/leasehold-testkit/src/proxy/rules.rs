//! The rules of a test for its proxy, and what was done so far.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::frames;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
    /// Both.
    Both,
}

/// What happens to a connection after a reply of it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// The client receives nothing more.
    Silent,
    /// It is reset.
    Cut,
}

/// What a proxy did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyStats {
    /// Connections that arrived, those that were refused included.
    pub connections: usize,
    /// Requests that [`Proxy::hold_requests`](super::Proxy::hold_requests) held back.
    pub requests_held: usize,
    /// Replies that [`Proxy::lose_replies`](super::Proxy::lose_replies) lost.
    pub replies_lost: usize,
}

/// The rules of one proxy. Tasks that wait for a change of them are woken by it.
#[derive(Debug, Default)]
pub(super) struct Rules(watch::Sender<ProxyState>);

#[derive(Debug, Default)]
pub(super) struct ProxyState {
    to_server: DirectionRules,
    to_client: DirectionRules,
    pub(super) plans: Vec<Plan>,
    /// The number of requests that contained each of these words.
    pub(super) counts: BTreeMap<String, usize>,
    /// What the replies begin with that are replaced, and what replaces them.
    pub(super) replacement: Option<(String, String)>,
    pub(super) refusing: bool,
    pub(super) closed: bool,
    /// Whether the protocol is another one than that of Redis.
    pub(super) plain: bool,
    /// Connections up to this number are reset.
    pub(super) reset_up_to: usize,
    /// How often requests that were held back were delivered.
    pub(super) deliveries: u64,
    pub(super) stats: ProxyStats,
}

/// The rules of one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectionRules {
    pub(super) flow: Flow,
    /// How many more bytes may pass. `None`: any number.
    pub(super) bytes_left: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    #[default]
    Open,
    Held,
    Swallowed,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestAction {
    Pass,
    /// It runs, and its reply is lost.
    LoseReply(AfterLoss),
    /// It is held back until there were more deliveries than this.
    Hold(u64),
}

/// What happens to the next requests that contain a word.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) word: String,
    pub(super) count: usize,
    /// `None`: they are held back.
    pub(super) lose: Option<AfterLoss>,
}

impl ProxyState {
    pub(super) fn direction(&self, way: Way) -> DirectionRules {
        match way {
            Way::ToServer | Way::Both => self.to_server.clone(),
            Way::ToClient => self.to_client.clone(),
        }
    }

    /// What replaces a reply.
    pub(super) fn replaced(&self, reply: &[u8]) -> Option<Vec<u8>> {
        let (start, other) = self.replacement.as_ref()?;
        let is_replaced = reply.starts_with(start.as_bytes());
        is_replaced.then(|| other.clone().into_bytes())
    }
}

impl Rules {
    pub(super) fn state(&self) -> watch::Ref<'_, ProxyState> {
        self.0.borrow()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut ProxyState)) {
        self.0.send_modify(change);
    }

    pub(super) fn set(&self, way: Way, change: impl Fn(&mut DirectionRules)) {
        self.update(|state| {
            if way != Way::ToClient {
                change(&mut state.to_server);
            }
            if way != Way::ToServer {
                change(&mut state.to_client);
            }
        });
    }

    /// Wakes up at each change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<ProxyState> {
        self.0.subscribe()
    }

    pub(super) async fn wait_for(&self, wanted: impl FnMut(&ProxyState) -> bool) {
        // It fails only after the sender was dropped, and `self` owns the sender.
        let _ = self.0.subscribe().wait_for(wanted).await;
    }

    /// A connection has arrived. Returns its number, unless it is refused.
    pub(super) fn accepted(&self) -> Option<usize> {
        self.update(|state| state.stats.connections += 1);
        let state = self.state();
        (!state.refusing).then_some(state.stats.connections)
    }

    /// Decides what happens to a request that has just arrived.
    pub(super) fn decide(&self, request: &[u8]) -> RequestAction {
        let mut action = RequestAction::Pass;
        self.0.send_if_modified(|state| {
            for (word, requests) in &mut state.counts {
                *requests += usize::from(frames::contains(request, word));
            }
            let mut plans = state.plans.iter_mut();
            let plan = plans.find(|plan| plan.count > 0 && frames::contains(request, &plan.word));
            let Some(plan) = plan else {
                return false;
            };
            plan.count -= 1;
            action = match plan.lose {
                Some(after_loss) => RequestAction::LoseReply(after_loss),
                None => {
                    state.stats.requests_held += 1;
                    RequestAction::Hold(state.deliveries)
                }
            };
            true
        });
        action
    }

    /// Takes what may still pass of so many bytes. If that is not all, every connection is reset.
    pub(super) fn take_bytes(&self, way: Way, bytes: usize) -> usize {
        let mut allowed = bytes;
        self.0.send_if_modified(|state| {
            let direction = match way {
                Way::ToServer | Way::Both => &mut state.to_server,
                Way::ToClient => &mut state.to_client,
            };
            let Some(left) = direction.bytes_left else {
                return false;
            };
            allowed = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
            direction.bytes_left = Some(left - allowed as u64);
            let exceeded = allowed < bytes;
            if exceeded {
                direction.bytes_left = None;
                state.reset_up_to = state.stats.connections;
            }
            exceeded
        });
        allowed
    }
}
