//! What a test wants done, and what was done so far.

use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::sync::watch;

use super::frames;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    There,
    /// From the server to the client.
    Back,
    /// Both.
    Both,
}

/// What becomes of a connection after a reply of it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The client hears nothing any more.
    Silent,
    /// It is reset.
    Cut,
}

/// What a proxy did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that came, those that were refused included.
    pub connections: usize,
    /// Connections that are open, on at least one side.
    pub open: usize,
    /// Requests that [`Proxy::hold_requests`](super::Proxy::hold_requests) held back.
    pub requests_held: usize,
    /// Replies that [`Proxy::lose_replies`](super::Proxy::lose_replies) lost.
    pub replies_lost: usize,
}

/// The rules of one proxy. Whoever waits for a change of them is woken by it.
#[derive(Debug, Default)]
pub(super) struct Rules(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    there: LaneRules,
    back: LaneRules,
    plans: Vec<Plan>,
    counts: Vec<Count>,
    refusing: bool,
    closed: bool,
    /// Nothing is understood of what passes.
    plain: bool,
    /// Connections up to this number are reset.
    cut: usize,
    /// How often what was held back was delivered.
    delivered: u64,
    tally: Tally,
}

/// The rules of one direction.
#[derive(Clone, Debug)]
pub(super) struct LaneRules {
    pub(super) flow: Flow,
    pub(super) delay: RangeInclusive<Duration>,
    /// How many more bytes may pass. `None`: any number.
    pub(super) left: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Flow {
    #[default]
    Open,
    Held,
    Swallowed,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    /// It runs, and its reply is lost.
    LoseReply(Then),
    /// It is held back until the deliveries are more than this.
    Hold(u64),
}

/// What is to become of the next requests that contain a word.
#[derive(Debug)]
struct Plan {
    word: String,
    count: usize,
    /// `None`: they are held back.
    lose: Option<Then>,
}

/// How many requests came that contain a word.
#[derive(Debug)]
struct Count {
    word: String,
    requests: usize,
}

impl Default for LaneRules {
    fn default() -> Self {
        Self {
            flow: Flow::Open,
            delay: Duration::ZERO..=Duration::ZERO,
            left: None,
        }
    }
}

impl Rules {
    /// Rules under which nothing is understood of what passes.
    pub(super) fn plain() -> Self {
        let plain = State {
            plain: true,
            ..State::default()
        };
        Self(watch::Sender::new(plain))
    }

    pub(super) fn is_plain(&self) -> bool {
        self.0.borrow().plain
    }

    pub(super) fn set(&self, way: Way, change: impl Fn(&mut LaneRules)) {
        self.0.send_modify(|state| {
            if way != Way::Back {
                change(&mut state.there);
            }
            if way != Way::There {
                change(&mut state.back);
            }
        });
    }

    pub(super) fn go_on(&self) {
        self.0.send_modify(|state| {
            state.there.flow = Flow::Open;
            state.back.flow = Flow::Open;
            state.refusing = false;
        });
    }

    pub(super) fn cut(&self) {
        self.0
            .send_modify(|state| state.cut = state.tally.connections);
    }

    pub(super) fn refuse(&self) {
        self.0.send_modify(|state| state.refusing = true);
    }

    pub(super) fn lose_replies(&self, word: &str, count: usize, then: Then) {
        self.plan(word, count, Some(then));
    }

    pub(super) fn hold_requests(&self, word: &str, count: usize) {
        self.plan(word, count, None);
    }

    fn plan(&self, word: &str, count: usize, lose: Option<Then>) {
        let word = word.to_owned();
        let plan = Plan { word, count, lose };
        self.0.send_modify(|state| state.plans.push(plan));
    }

    pub(super) fn count(&self, word: &str) {
        let word = word.to_owned();
        let count = Count { word, requests: 0 };
        self.0.send_modify(|state| state.counts.push(count));
    }

    pub(super) fn counted(&self, word: &str) -> usize {
        let state = self.0.borrow();
        let mut counts = state.counts.iter();
        let count = counts.find(|count| count.word == word);
        count.map_or(0, |count| count.requests)
    }

    pub(super) fn deliver(&self) {
        self.0.send_modify(|state| state.delivered += 1);
    }

    pub(super) fn delivered(&self) -> u64 {
        self.0.borrow().delivered
    }

    pub(super) fn close(&self) {
        self.0.send_modify(|state| state.closed = true);
    }

    pub(super) fn tally(&self) -> Tally {
        self.0.borrow().tally
    }

    /// Wakes up at each change from now on.
    pub(super) fn changes(&self) -> Changes {
        Changes(self.0.subscribe())
    }

    /// The rules of one direction as they are.
    pub(super) fn lane(&self, way: Way) -> LaneRules {
        let state = self.0.borrow();
        match way {
            Way::There | Way::Both => state.there.clone(),
            Way::Back => state.back.clone(),
        }
    }

    /// A connection came. Answers its number, unless it is refused.
    pub(super) fn accepted(&self) -> Option<usize> {
        let mut number = None;
        self.0.send_modify(|state| {
            state.tally.connections += 1;
            number = (!state.refusing).then_some(state.tally.connections);
        });
        number
    }

    pub(super) fn opened(&self) {
        self.0.send_modify(|state| state.tally.open += 1);
    }

    pub(super) fn ended(&self) {
        self.0.send_modify(|state| state.tally.open -= 1);
    }

    pub(super) fn reply_lost(&self) {
        self.0.send_modify(|state| state.tally.replies_lost += 1);
    }

    /// Decides what becomes of a request that has just come.
    pub(super) fn decide(&self, request: &[u8]) -> Fate {
        let mut fate = Fate::Pass;
        self.0.send_if_modified(|state| {
            for count in &mut state.counts {
                count.requests += usize::from(frames::contains(request, &count.word));
            }
            let concerns =
                |plan: &&mut Plan| plan.count > 0 && frames::contains(request, &plan.word);
            let Some(plan) = state.plans.iter_mut().find(concerns) else {
                return false;
            };
            plan.count -= 1;
            fate = match plan.lose {
                Some(then) => Fate::LoseReply(then),
                None => {
                    state.tally.requests_held += 1;
                    Fate::Hold(state.delivered)
                }
            };
            true
        });
        fate
    }

    /// Takes what may still pass of so many bytes. If that is not all, every connection is reset.
    pub(super) fn spend(&self, way: Way, bytes: usize) -> usize {
        let mut allowed = bytes;
        self.0.send_if_modified(|state| {
            let lane = match way {
                Way::There | Way::Both => &mut state.there,
                Way::Back => &mut state.back,
            };
            let Some(left) = lane.left else {
                return false;
            };
            allowed = bytes.min(usize::try_from(left).unwrap_or(usize::MAX));
            lane.left = Some(left - allowed as u64);
            let over = allowed < bytes;
            if over {
                lane.left = None;
                state.cut = state.tally.connections;
            }
            over
        });
        allowed
    }

    /// Waits until the connection of this number is to be reset.
    pub(super) async fn cut_off(&self, number: usize) {
        self.until(|state| state.cut >= number || state.closed)
            .await;
    }

    pub(super) async fn closed(&self) {
        self.until(|state| state.closed).await;
    }

    async fn until(&self, wanted: impl FnMut(&State) -> bool) {
        // It fails only without a sender, and that is this.
        let _ = self.0.subscribe().wait_for(wanted).await;
    }
}

/// The changes of the rules.
pub(super) struct Changes(watch::Receiver<State>);

impl Changes {
    /// Waits for the next change. Dropping it loses none.
    pub(super) async fn next(&mut self) {
        // It fails only without a sender, and whoever waits here has one.
        let _ = self.0.changed().await;
    }
}
