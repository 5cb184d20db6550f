//! One connection through the proxy.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::Notify;

use super::frames::{self, Frames};
use super::rules::{AfterLoss, Flow, RequestAction, Rules, Way};

/// The replies that the server owes, in their order.
#[derive(Default)]
struct PendingReplies {
    actions: Mutex<VecDeque<RequestAction>>,
    reset: Notify,
}

/// One direction of a connection.
struct Direction<'a> {
    way: Way,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    rules: &'a Rules,
    pending_replies: &'a PendingReplies,
    frames: Frames,
    queue: VecDeque<Item>,
    /// Whether the sender has ended.
    ended: bool,
    /// Whether something was swallowed: so everything after it is discarded.
    discarding: bool,
}

/// A frame on its way. `None`: the end of the stream.
type Item = Option<(Vec<u8>, RequestAction)>;

/// What to do with the head of the queue.
#[derive(PartialEq)]
enum Next {
    Deliver,
    Swallow,
    /// Wait for a frame, or for a change of the rules.
    Wait,
}

/// Forwards both directions until both have ended, or the connection is reset.
pub(super) async fn run(
    mut client: TcpStream,
    mut server: TcpStream,
    number: usize,
    rules: &Rules,
) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let pending_replies = PendingReplies::default();
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let direction = |way, from, to| Direction {
        way,
        from,
        to,
        rules,
        pending_replies: &pending_replies,
        frames: Frames::new(rules.state().plain),
        queue: VecDeque::new(),
        ended: false,
        discarding: false,
    };
    let to_server_direction = direction(Way::ToServer, from_client, to_server);
    let to_client_direction = direction(Way::ToClient, from_server, to_client);
    let reset = tokio::select! {
        _ = async { tokio::join!(to_server_direction.run(), to_client_direction.run()) } => false,
        () = rules.wait_for(|state| state.reset_up_to >= number || state.closed) => true,
        () = pending_replies.reset.notified() => true,
    };
    if reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

impl Direction<'_> {
    /// Forwards until the end of the stream has arrived.
    async fn run(mut self) {
        let mut changes = self.rules.changes();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let next = self.next();
            if next != Next::Wait {
                self.discarding |= next == Next::Swallow;
                match self.queue.pop_front().flatten() {
                    Some(_) if self.discarding => {}
                    Some((frame, action)) => self.deliver(&frame, action).await,
                    // The receiver is not notified.
                    None if self.discarding => return,
                    // The receiver may have gone before.
                    None => return drop(self.to.shutdown().await),
                }
                continue;
            }
            tokio::select! {
                read = self.from.read(&mut bytes), if !self.ended => {
                    self.receive(&bytes[..read.unwrap_or(0)]);
                }
                _ = changes.changed() => {}
            }
        }
    }

    /// Queues received bytes. An empty slice is the end of the stream.
    fn receive(&mut self, bytes: &[u8]) {
        self.frames.add(bytes);
        while let Some(frame) = self.frames.next() {
            let action = match self.way {
                Way::ToServer | Way::Both => self.rules.decide(&frame),
                Way::ToClient => RequestAction::Pass,
            };
            self.queue.push_back(Some((frame, action)));
        }
        if bytes.is_empty() {
            self.ended = true;
            self.queue.push_back(None);
        }
    }

    fn next(&self) -> Next {
        let Some(frame) = self.queue.front() else {
            return Next::Wait;
        };
        let state = self.rules.state();
        let held = match frame {
            Some((_, RequestAction::Hold(deliveries))) => state.deliveries <= *deliveries,
            _ => false,
        };
        match state.direction(self.way).flow {
            _ if self.discarding => Next::Swallow,
            _ if held => Next::Wait,
            Flow::Held => Next::Wait,
            Flow::Swallowed => Next::Swallow,
            Flow::Open => Next::Deliver,
        }
    }

    async fn deliver(&mut self, frame: &[u8], action: RequestAction) {
        match self.way {
            Way::ToServer | Way::Both if self.frames.expects_reply(frame) => {
                self.pending_replies
                    .actions
                    .lock()
                    .unwrap()
                    .push_back(action);
            }
            Way::ToClient if !frames::is_push(frame) => {
                let action = self.pending_replies.actions.lock().unwrap().pop_front();
                if let Some(RequestAction::LoseReply(after_loss)) = action {
                    self.discarding = true;
                    self.rules.update(|state| state.stats.replies_lost += 1);
                    if after_loss == AfterLoss::Cut {
                        self.pending_replies.reset.notify_one();
                    }
                    return;
                }
            }
            _ => {}
        }
        let replaced = match self.way {
            Way::ToClient => self.rules.state().replaced(frame),
            Way::ToServer | Way::Both => None,
        };
        let frame = replaced.as_deref().unwrap_or(frame);
        let allowed = self.rules.take_bytes(self.way, frame.len());
        // A receiver that has gone receives nothing; the sender is not disturbed.
        let _ = self.to.write_all(&frame[..allowed]).await;
    }
}
