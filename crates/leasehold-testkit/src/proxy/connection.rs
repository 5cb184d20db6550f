//! One connection through the proxy.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::frames::{self, Frames};
use super::rules::{Action, Flow, Rules, Then, Way};

/// The replies that the server owes, in their order.
#[derive(Default)]
struct Owed {
    replies: Mutex<VecDeque<Action>>,
    reset: Notify,
}

/// One direction of a connection.
struct Direction<'a> {
    way: Way,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    rules: &'a Rules,
    owed: &'a Owed,
    frames: Frames,
    queue: VecDeque<Item>,
    /// Whether the sender has ended.
    ended: bool,
    /// Whether something was swallowed, and so everything after it.
    mute: bool,
}

/// A frame on its way. `None`: the end of the stream.
struct Item {
    due: Instant,
    frame: Option<(Vec<u8>, Action)>,
}

/// What to do with the head of the queue.
#[derive(PartialEq)]
enum Next {
    Deliver,
    Swallow,
    /// Wait for a change of the rules, or until an instant.
    Wait(Option<Instant>),
}

/// Forwards both directions until both have ended, or the connection is reset.
pub(super) async fn run(
    mut client: TcpStream,
    mut server: TcpStream,
    number: usize,
    rules: &Rules,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    rules.update(|state| state.tally.open += 1);
    let owed = Owed::default();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let direction = |way, from, to| Direction {
        way,
        from,
        to,
        rules,
        owed: &owed,
        frames: Frames::new(rules.state().plain),
        queue: VecDeque::new(),
        ended: false,
        mute: false,
    };
    let there = direction(Way::There, from_client, to_server);
    let back = direction(Way::Back, from_server, to_client);
    let reset = tokio::select! {
        _ = async { tokio::join!(there.run(), back.run()) } => false,
        () = rules.wait_for(|state| state.reset_up_to >= number || state.closed) => true,
        () = owed.reset.notified() => true,
    };
    if reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
    rules.update(|state| state.tally.open -= 1);
}

impl Direction<'_> {
    /// Forwards until the end of the stream has arrived.
    async fn run(mut self) {
        let mut changes = self.rules.changes();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let due = match self.next() {
                Next::Wait(due) => due,
                next => {
                    self.mute |= next == Next::Swallow;
                    match self.queue.pop_front().and_then(|item| item.frame) {
                        Some(_) if self.mute => {}
                        Some((frame, action)) => self.deliver(&frame, action).await,
                        // The receiver is not notified.
                        None if self.mute => return,
                        // The receiver may have gone before.
                        None => return drop(self.to.shutdown().await),
                    }
                    continue;
                }
            };
            let delay = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                read = self.from.read(&mut bytes), if !self.ended => {
                    self.receive(&bytes[..read.unwrap_or(0)]);
                }
                _ = changes.changed() => {}
                () = delay => {}
            }
        }
    }

    /// Takes in bytes of the sender. None: it has ended.
    fn receive(&mut self, bytes: &[u8]) {
        self.frames.add(bytes);
        while let Some(frame) = self.frames.next() {
            let action = match self.way {
                Way::There | Way::Both => self.rules.decide(&frame),
                Way::Back => Action::Pass,
            };
            self.enqueue(Some((frame, action)));
        }
        if bytes.is_empty() {
            self.ended = true;
            self.enqueue(None);
        }
    }

    fn enqueue(&mut self, frame: Option<(Vec<u8>, Action)>) {
        let (least, most) = self.rules.state().direction(self.way).delay;
        let delay = least + most.saturating_sub(least).mul_f64(fastrand::f64());
        let due = Instant::now() + delay;
        let due = self.queue.back().map_or(due, |last| due.max(last.due));
        self.queue.push_back(Item { due, frame });
    }

    fn next(&self) -> Next {
        let Some(Item { due, frame }) = self.queue.front() else {
            return Next::Wait(None);
        };
        let state = self.rules.state();
        let held = match frame {
            Some((_, Action::Hold(deliveries))) => state.deliveries <= *deliveries,
            _ => false,
        };
        match state.direction(self.way).flow {
            _ if self.mute => Next::Swallow,
            _ if held => Next::Wait(None),
            Flow::Held => Next::Wait(None),
            _ if *due > Instant::now() => Next::Wait(Some(*due)),
            Flow::Swallowed => Next::Swallow,
            Flow::Open => Next::Deliver,
        }
    }

    async fn deliver(&mut self, frame: &[u8], action: Action) {
        match self.way {
            Way::There | Way::Both if self.frames.expects_reply(frame) => {
                self.owed.replies.lock().unwrap().push_back(action);
            }
            Way::Back if !frames::is_push(frame) => {
                let owed = self.owed.replies.lock().unwrap().pop_front();
                if let Some(Action::LoseReply(then)) = owed {
                    self.mute = true;
                    self.rules.update(|state| state.tally.replies_lost += 1);
                    if then == Then::Cut {
                        self.owed.reset.notify_one();
                    }
                    return;
                }
            }
            _ => {}
        }
        let allowed = self.rules.spend(self.way, frame.len());
        // A receiver that has gone receives nothing; the sender is not disturbed.
        let _ = self.to.write_all(&frame[..allowed]).await;
    }
}
