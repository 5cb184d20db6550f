//! One direction of a connection.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{Instant, sleep_until};

use super::frames::{self, Frames};
use super::link::Owed;
use super::rules::{Fate, Flow, Rules, Way};

/// Carries what one side sends to the other.
pub(super) struct Lane<'a> {
    way: Way,
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    rules: &'a Rules,
    owed: &'a Owed,
    frames: Frames,
    waiting: VecDeque<Item>,
    /// Whether the sender has ended.
    ended: bool,
    /// Whether something was swallowed, and so all behind it.
    mute: bool,
}

/// Something on its way.
struct Item {
    due: Instant,
    what: What,
}

enum What {
    Frame(Vec<u8>, Fate),
    End,
}

/// Whether the front of what waits may go on.
enum Front {
    Nothing,
    Goes,
    Vanishes,
    Stands,
    StandsUntil(Instant),
}

impl<'a> Lane<'a> {
    pub(super) fn new(
        way: Way,
        (from, to): (ReadHalf<'a>, WriteHalf<'a>),
        rules: &'a Rules,
        owed: &'a Owed,
    ) -> Self {
        Self {
            way,
            from,
            to,
            rules,
            owed,
            frames: if rules.is_plain() {
                Frames::plain()
            } else {
                Frames::default()
            },
            waiting: VecDeque::new(),
            ended: false,
            mute: false,
        }
    }

    /// Carries until the end of what the sender sent has arrived.
    pub(super) async fn run(mut self) {
        let mut changes = self.rules.changes();
        let mut bytes = vec![0; 1 << 16];
        loop {
            let look_again = match self.front() {
                Front::Goes => match self.waiting.pop_front().map(|item| item.what) {
                    Some(What::Frame(frame, fate)) => {
                        self.arrives(&frame, fate).await;
                        continue;
                    }
                    // The receiver may have gone before.
                    _ => return drop(self.to.shutdown().await),
                },
                Front::Vanishes => {
                    self.mute = true;
                    match self.waiting.pop_front().map(|item| item.what) {
                        Some(What::Frame(..)) => continue,
                        // The receiver is not told.
                        _ => return,
                    }
                }
                Front::StandsUntil(due) => Some(due),
                Front::Stands | Front::Nothing => None,
            };
            tokio::select! {
                read = self.from.read(&mut bytes), if !self.ended => {
                    self.came(&bytes[..read.unwrap_or(0)]);
                }
                () = changes.next() => {}
                () = sleep_until(look_again.unwrap_or_else(far_away)), if look_again.is_some() => {}
            }
        }
    }

    /// Takes in what the sender sent. Nothing: it has ended.
    fn came(&mut self, bytes: &[u8]) {
        self.frames.add(bytes);
        while let Some(frame) = self.frames.next() {
            let fate = match self.way {
                Way::There | Way::Both => self.rules.decide(&frame),
                Way::Back => Fate::Pass,
            };
            self.wait(What::Frame(frame, fate));
        }
        if bytes.is_empty() {
            self.ended = true;
            self.wait(What::End);
        }
    }

    fn wait(&mut self, what: What) {
        let span = self.rules.lane(self.way).delay;
        let (least, most) = span.into_inner();
        let delay = least + most.saturating_sub(least).mul_f64(fastrand::f64());
        let due = Instant::now() + delay;
        let due = self.waiting.back().map_or(due, |last| due.max(last.due));
        self.waiting.push_back(Item { due, what });
    }

    fn front(&self) -> Front {
        let Some(Item { due, what }) = self.waiting.front() else {
            return Front::Nothing;
        };
        let held_back = match what {
            What::Frame(_, Fate::Hold(delivered)) => self.rules.delivered() <= *delivered,
            _ => false,
        };
        match self.rules.lane(self.way).flow {
            _ if self.mute => Front::Vanishes,
            _ if held_back => Front::Stands,
            Flow::Held => Front::Stands,
            _ if *due > Instant::now() => Front::StandsUntil(*due),
            Flow::Swallowed => Front::Vanishes,
            Flow::Open => Front::Goes,
        }
    }

    /// Whether a request will be answered.
    fn owes(&self, request: &[u8]) -> bool {
        !self.frames.are_plain() && frames::has_reply(request)
    }

    async fn arrives(&mut self, frame: &[u8], fate: Fate) {
        match self.way {
            Way::There | Way::Both if self.owes(frame) => self.owed.add(fate),
            Way::Back if !frames::is_push(frame) => {
                if let Fate::LoseReply(then) = self.owed.take() {
                    self.mute = true;
                    self.rules.reply_lost();
                    return self.owed.lost(then);
                }
            }
            _ => {}
        }
        let allowed = self.rules.spend(self.way, frame.len());
        // Whoever has gone gets nothing; that its peer goes on is what matters.
        let _ = self.to.write_all(&frame[..allowed]).await;
    }
}

/// What nobody waits for.
fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
