//! The faults of many masters.
//!
//! They are drawn in episodes, so that rare faults coincide: fewer than a majority forget, while a holder cannot reach
//! some others and so has the smallest majority, and while the others do not reply. Each part of an episode is
//! optional, and its time and kind are drawn.

use std::collections::BTreeMap;
use std::ops::Range;

use fastrand::Rng;

use super::{CLOCK_STEP_MAX_MS, Sequence, Timed};
use crate::history::Fault;

/// The duration of an episode, and the longest time until the next.
const EPISODE_MS: u64 = 7500;
const GAP_MS: u64 = 1000;

/// The masters of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Masters {
    pub(super) servers: usize,
    pub(super) holders: usize,
    pub(super) durable: bool,
    pub(super) clock: bool,
}

/// An episode while it is drawn.
struct Episode<'a> {
    masters: Masters,
    rng: &'a mut Rng,
    sequences: &'a mut Sequences,
    begin_ms: u64,
    forget_ms: u64,
}

/// The faults of each server, and of the connections of each holder to it.
type Sequences = BTreeMap<(usize, Option<usize>), Vec<Timed>>;

/// A fault and how long it lasts.
type Drawn = (Fault, u64);

impl Masters {
    /// Draws the faults between two times.
    pub(super) fn draw(self, rng: &mut Rng, begin_ms: u64, end_ms: u64) -> Vec<Sequence> {
        let mut sequences = Sequences::new();
        let mut begin_ms = begin_ms + rng.u64(..GAP_MS);
        while begin_ms + EPISODE_MS <= end_ms {
            let episode = Episode {
                masters: self,
                forget_ms: begin_ms + rng.u64(800..3000),
                begin_ms,
                rng,
                sequences: &mut sequences,
            };
            episode.draw();
            begin_ms += EPISODE_MS + rng.u64(..GAP_MS);
        }
        let sequence = |((server, holder), mut faults): (_, Vec<Timed>)| {
            faults.sort_by_key(|timed| timed.at_ms);
            Sequence {
                server,
                holder,
                faults,
            }
        };
        sequences.into_iter().map(sequence).collect()
    }

    fn minority(self) -> usize {
        (self.servers - 1) / 2
    }
}

impl Episode<'_> {
    fn draw(mut self) {
        let mut servers: Vec<_> = (0..self.masters.servers).collect();
        self.rng.shuffle(&mut servers);
        let mut count = self.masters.minority();
        if self.rng.u8(..4) == 0 {
            count = 1;
        }
        let others = servers.split_off(count);
        for server in servers {
            self.forget(server);
        }
        if self.rng.u8(..6) > 0 {
            self.cut_off(&others[..count]);
        }
        self.silence(&others);
        for _ in 0..self.rng.u8(..3) {
            let server = self.rng.usize(..self.masters.servers);
            let fault = self.single_fault();
            self.add_anywhere(server, fault);
        }
        // The clocks of the same fewer than a majority are wrong all the time.
        if self.masters.clock {
            let server = self.rng.usize(..self.masters.minority());
            let step = (Fault::ClockBack, self.rng.u64(50..CLOCK_STEP_MAX_MS));
            self.add_anywhere(server, step);
        }
    }

    /// A master forgets.
    fn forget(&mut self, server: usize) {
        let down_ms = self.rng.u64(..200);
        if self.masters.durable || self.rng.bool() {
            let fault = match self.rng.u8(..4) {
                0 => (Fault::RestartEmpty, down_ms),
                1 => (Fault::ReplaceServer, 0),
                _ => (Fault::FlushAll, 0),
            };
            return self.add(server, None, self.forget_ms, fault);
        }
        let save_ms = self.begin_ms + self.rng.u64(300..600);
        if self.rng.bool() {
            self.add(server, None, save_ms - 300, (Fault::AofOff, 0));
        }
        self.add(server, None, save_ms, (Fault::SaveSnapshot, 0));
        self.add(
            server,
            None,
            self.forget_ms,
            (Fault::RestartSnapshot, down_ms),
        );
        if self.rng.u8(..4) > 0 {
            let at_ms = self.forget_ms + down_ms + self.rng.u64(..800);
            self.add(server, None, at_ms, (Fault::AofOn, 0));
        }
    }

    /// Holders cannot reach some masters, so they have the smallest majority; at least one reaches all.
    fn cut_off(&mut self, servers: &[usize]) {
        let mut holders: Vec<_> = (0..self.masters.holders).collect();
        self.rng.shuffle(&mut holders);
        let first = self.rng.usize(1..holders.len());
        for &holder in &holders[first..] {
            for &server in servers {
                let at_ms = self.begin_ms + self.rng.u64(..300);
                let fault = self.disconnect(3000..6000);
                self.add(server, Some(holder), at_ms, fault);
            }
        }
    }

    /// Masters do not reply, mostly for as long as the inspection of one that has forgotten takes.
    fn silence(&mut self, servers: &[usize]) {
        let (at_ms, length) = match self.rng.u8(..3) {
            0 => (self.forget_ms + self.rng.u64(..2500), 50..2000),
            _ => (self.forget_ms - self.rng.u64(..300), 1000..1700),
        };
        match self.rng.u8(..6) {
            0..3 => {
                let stop = (Fault::StopServer, self.rng.u64(length));
                for &server in servers {
                    self.add(server, None, at_ms, stop);
                }
            }
            // Each for a reason of its own.
            3 => {
                for &server in servers {
                    let fault = match self.rng.u8(..4) {
                        0 => (Fault::PauseClients, self.rng.u64(length.clone())),
                        1 => (Fault::KillClients, 0),
                        2 if self.masters.durable => (Fault::RestartKept, self.rng.u64(..400)),
                        _ => (Fault::StopServer, self.rng.u64(length.clone())),
                    };
                    let late_ms = self.rng.u64(..200);
                    self.add(server, None, at_ms + late_ms, fault);
                }
            }
            // For one holder only.
            4 => {
                let holder = self.rng.usize(..self.masters.holders);
                for &server in servers {
                    let fault = self.disconnect(length.clone());
                    self.add(server, Some(holder), at_ms, fault);
                }
            }
            _ => {}
        }
    }

    fn disconnect(&mut self, length: Range<u64>) -> Drawn {
        let fault = match self.rng.bool() {
            true => Fault::CutLink,
            false => Fault::DelayLink,
        };
        (fault, self.rng.u64(length))
    }

    fn single_fault(&mut self) -> Drawn {
        match self.rng.u8(..6) {
            0 => (Fault::KillClients, 0),
            1 => (Fault::PauseClients, self.rng.u64(20..800)),
            2 => (Fault::FlushScripts, 0),
            3 | 4 if self.masters.durable => (Fault::RestartKept, self.rng.u64(..400)),
            _ => (Fault::StopServer, self.rng.u64(20..1500)),
        }
    }

    fn add_anywhere(&mut self, server: usize, fault: Drawn) {
        let at_ms = self.begin_ms + self.rng.u64(..EPISODE_MS - CLOCK_STEP_MAX_MS);
        self.add(server, None, at_ms, fault);
    }

    fn add(&mut self, server: usize, holder: Option<usize>, at_ms: u64, drawn: Drawn) {
        let (fault, length_ms) = drawn;
        let timed = Timed {
            at_ms,
            fault,
            length_ms,
            name: 0,
        };
        let sequence = self.sequences.entry((server, holder));
        sequence.or_default().push(timed);
    }
}
