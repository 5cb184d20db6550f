//! The rule on random histories, and a few by example.

mod examples;
mod latch;
mod mutex;
mod parts;
mod properties;
mod shares;

use std::num::NonZeroU32;

use super::*;
use crate::annotation::CompletionKey;
use crate::id::{ClientId, LeaseId};
use crate::time::{StoreTime, Ttl};
use crate::token::TokenCount;

/// The start of each history, in microseconds.
const START: u64 = 1_000_000_000;

/// Random numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn small(&mut self, end: u32) -> u32 {
        self.below(u64::from(end)) as u32
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

fn client(number: u64) -> ClientId {
    ClientId::from_random([number as u8; 16])
}

/// A lease of one of four clients.
fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: client(number % 4),
        number,
    }
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn millis(millis: u64) -> Ttl {
    Ttl::from_millis(millis).unwrap()
}

fn key(key: &str) -> CompletionKey {
    CompletionKey::parse(key).unwrap()
}

/// The same for every request of a lease.
fn tokens_of(lease: LeaseId) -> TokenCount {
    number(1 + (lease.number % 3) as u32)
}

fn acquire(lease: LeaseId, claim: Claim, ttl: u64, wait: bool) -> Acquire {
    Acquire {
        lease,
        claim,
        count: NonZeroU32::MIN,
        ttl: millis(ttl),
        tokens: tokens_of(lease),
        proposal: None,
        wait,
        unless: None,
    }
}

fn permits(weight: u32, limit: u32) -> Claim {
    Claim::Permits {
        weight: number(weight),
        limit: number(limit),
        numbered: false,
    }
}

/// A change of what a lease holds, with the token that it has.
fn convert(holder: &Holder, claim: Claim, ttl: u64, wait: bool) -> Op {
    Op::Convert {
        lease: holder.lease,
        first: holder.first,
        claim,
        ttl: millis(ttl),
        tokens: tokens_of(holder.lease),
        wait,
    }
}

/// A record, the time, and which clients are alive.
struct World {
    rows: Rows,
    now: StoreTime,
    alive: [bool; 4],
}

impl World {
    fn new() -> Self {
        Self {
            rows: Rows::default(),
            now: StoreTime::from_micros(START),
            alive: [true; 4],
        }
    }

    fn environment(&self) -> Environment {
        Environment::at(self.now)
    }

    fn is_alive(&self, client: ClientId) -> bool {
        self.alive[usize::from(client.to_bytes()[0])]
    }

    /// Applies an operation to the whole record.
    fn apply(&mut self, op: &Op) -> Applied {
        let environment = self.environment();
        let mut source = self.rows.source(|client| self.is_alive(client));
        let Ok(applied) = super::apply(&mut source, op, &environment);
        self.rows.store(applied.changes.clone());
        applied
    }

    fn holders(&self) -> Vec<Holder> {
        self.rows.holders(&self.environment()).copied().collect()
    }

    fn waiters(&self) -> Vec<Waiter> {
        self.rows.waiters(&self.environment()).cloned().collect()
    }

    fn pass(&mut self, random: &mut Random) {
        let micros = match random.below(12) {
            0..4 => 0,
            4 => random.below(10),
            5..11 => random.below(5_000),
            _ if random.one_in(4) => random.below(3_000_000),
            _ => random.below(40_000),
        };
        self.now = StoreTime::from_micros(self.now.as_micros() + micros);
    }
}
