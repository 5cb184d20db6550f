//! A state: what the store keeps of the lock, its clients, and a message that is late.

use crate::model::explore::Property;

/// How many clients there are.
pub(super) const CLIENTS: usize = 3;

/// A lock, and the clients. Tokens are small numbers, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The sum of the weights, as the store keeps it.
    pub(super) used: u64,
    /// The ticks until the earliest end, as the store keeps it.
    pub(super) earliest: u8,
    /// The token of the readers.
    pub(super) phase: u8,
    /// The holders in the store, at the numbers of their clients.
    pub(super) shares: [Share; CLIENTS],
    /// The queue, the head first.
    pub(super) queue: [Option<Queued>; CLIENTS],
    pub(super) clients: [Client; CLIENTS],
    /// A message that may be processed, and its client.
    pub(super) copy: Option<(usize, Message)>,
    pub(super) faults: u8,
    /// The property that the last step of the store has violated.
    pub(super) flaw: Option<Property>,
}

/// What a lease holds in the store. One that has ended stays until the store drops it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Share {
    /// 0: nothing.
    pub(super) size: u8,
    pub(super) token: u8,
    pub(super) remaining: u8,
}

impl Share {
    pub(super) const fn holds(self) -> bool {
        self.size > 0 && self.remaining > 0
    }
}

/// A waiting client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Queued {
    pub(super) client: usize,
    pub(super) size: u8,
    pub(super) converts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The weight that it asked for last.
    pub(super) wanted: u8,
    /// The weight that it relies on.
    pub(super) relies: u8,
    pub(super) token: u8,
    /// The ticks until its deadline.
    pub(super) remaining: u8,
    /// The token with which its last late write as a writer may come. 0: none.
    pub(super) written: u8,
    /// The same of what it does as a reader, or with permits.
    pub(super) read: u8,
    /// Whether it has relied on the lock.
    pub(super) won: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It has no grant yet, and repeats its request.
    Waiting,
    Holding,
    /// It holds, and repeats its request to hold something else.
    Converting,
    /// It no longer sends anything.
    Over,
    /// The same, and the store does not reach it.
    Dead,
}

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    Acquire { size: u8 },
    Renew,
    Convert { size: u8, first: u8 },
    Release,
}

impl Client {
    /// Stops relying on its lease. Its request in flight may come late.
    pub(super) fn stop(&mut self, phase: Phase, is_writer: bool) {
        if self.relies > 0 {
            let late = match is_writer {
                true => &mut self.written,
                false => &mut self.read,
            };
            *late = self.token;
        }
        *self = Self {
            phase,
            written: self.written,
            read: self.read,
            won: self.won,
            ..Self::default()
        };
    }
}

impl State {
    pub(super) fn waiters(&self) -> impl Iterator<Item = Queued> + use<> {
        self.queue.into_iter().flatten()
    }

    /// These clients are in the queue, the head first.
    pub(super) fn wait(&mut self, waiters: impl Iterator<Item = Queued>) {
        self.queue = [None; CLIENTS];
        for (queued, waiter) in self.queue.iter_mut().zip(waiters) {
            *queued = Some(waiter);
        }
    }

    /// Whether a waiter is dropped, if it is the first: it is dead, or waits to convert what has ended.
    pub(super) fn is_gone(&self, queued: Queued) -> bool {
        let has_ended = queued.converts && !self.shares[queued.client].holds();
        has_ended || self.clients[queued.client].phase == Phase::Dead
    }

    /// The largest token that is still known.
    pub(super) fn last_token(mut self) -> u8 {
        let mut last = 0;
        self.for_tokens(|token| last = last.max(*token));
        last
    }

    /// Numbers the tokens from 1, in their order, since only that makes a difference.
    pub(super) fn reduce(&mut self) {
        let mut known = 0_u64;
        self.for_tokens(|token| known |= 1 << *token);
        known &= !1;
        self.for_tokens(|token| {
            let smaller = known & ((1 << *token) - 1);
            *token = match *token {
                0 => 0,
                _ => smaller.count_ones() as u8 + 1,
            };
        });
    }

    pub(super) fn for_tokens(&mut self, mut each: impl FnMut(&mut u8)) {
        each(&mut self.phase);
        self.shares
            .iter_mut()
            .for_each(|share| each(&mut share.token));
        for client in &mut self.clients {
            each(&mut client.token);
            each(&mut client.written);
            each(&mut client.read);
        }
        if let Some((_, Message::Convert { first, .. })) = &mut self.copy {
            each(first);
        }
    }
}
