//! Random histories: operations on the records of a few names, with clock steps between them.
//!
//! Some leases wait in the queues of the names. The store can notify some of their clients, and not the
//! others, through a whole history.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use fastrand::Rng;
use leasehold_core::record::Unless;
use leasehold_core::{
    Acquire, ArrivalId, ClientId, Completion, CompletionKey, JobSchedule, LatchCount, LeaseId,
    NewNote, Op, Period, Removal, Slot, Slots, StoreTime, Token, TokenCount, Ttl, Whom,
};

/// How many rounds a history has at most. Longer ones find the same, but later.
const ROUNDS_MAX: usize = 24;

/// How many operations one name gets in a round at most.
const OPS_MAX: usize = 3;

/// How many leases compete for one name: enough for a holder, a queue and a late waiter.
const LEASES: usize = 5;

/// How many clients have these leases: fewer, so that one client waits with two leases.
const CLIENTS: usize = 4;

/// A lease that never holds the lock.
const NO_HOLDER: LeaseId = LeaseId {
    client: ClientId::from_random([0; 16]),
    number: 0,
};

/// What the clock of a store requires of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The clock stands still between steps, so ttls and steps are arbitrary. Many leases end
    /// exactly at a request.
    Standing,
    /// The clock runs on while the history is played. Every ttl is an odd number of seconds, and so
    /// are the durations that the rule derives from it; every step is an even number. So each request comes a
    /// second before or after the end of a lease or queue, and the time that the replay takes
    /// changes no reply.
    Running,
    /// As [`Shape::Running`], and the clock is sometimes set back.
    RunningBack,
}

/// The histories of some names that share a clock.
///
/// Every name gets an operation in every round: a store may drop an expired lease immediately or
/// at the next request, and a clock that is set back in between would make a difference. A store need not
/// expire a queue while the lock is held, so a lease without a hold sends a request before that.
#[derive(Clone, Debug)]
pub struct Histories {
    /// The seed.
    pub seed: u64,
    /// The clients of the leases.
    pub clients: Vec<Client>,
    /// How many names there are. They are numbered from 0.
    pub names: usize,
    /// The operations, in this order.
    pub rounds: Vec<Round>,
}

/// A client of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// Whether the store can notify it.
    pub reachable: bool,
}

/// A step of the clock, and the operations after it.
#[derive(Clone, Debug)]
pub struct Round {
    /// How far the clock is moved, in milliseconds.
    pub step_ms: i64,
    /// Batches of operations, each with the number of its name.
    pub batches: Vec<Vec<(usize, Op)>>,
}

impl Histories {
    /// The histories of a seed. There are never more than `names_max` names.
    #[must_use]
    pub fn random(seed: u64, shape: Shape, names_max: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let names = rng.usize(1..=names_max.max(1));
        let clients = clients(&mut rng);
        let leases = (0..names).map(|name| leases(&mut rng, shape, &clients, name));
        let leases: Vec<_> = leases.collect();
        // Many names are not sent one by one: a store may wait for its disk after each batch.
        let batch_max = match names > 4 {
            true => *pick(&mut rng, &[16, 64, 64]),
            false => *pick(&mut rng, &[1, 3, 16]),
        };
        let mut rounds: Vec<Round> = Vec::new();
        for _ in 0..rng.usize(2..=ROUNDS_MAX) {
            let step_ms = shape.step_ms(&mut rng);
            if let Some(before) = rounds.last_mut().filter(|_| step_ms < 0) {
                before.batches.extend(expire_queues(names, batch_max));
            }
            rounds.push(Round {
                step_ms,
                batches: batches(&mut rng, shape, &leases, batch_max),
            });
        }
        Self {
            seed,
            clients,
            names,
            rounds,
        }
    }

    /// Whether the store can notify a client.
    #[must_use]
    pub fn reaches(&self, client: ClientId) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|other| other.id == client && other.reachable)
    }

    /// The history of one name.
    #[must_use]
    pub fn of(&self, name: usize) -> Self {
        let mut own = self.clone();
        for batch in own.rounds.iter_mut().flat_map(|round| &mut round.batches) {
            batch.retain(|(other, _)| *other == name);
        }
        own
    }
}

impl fmt::Display for Histories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} names", self.seed, self.names)?;
        for Client { id, reachable } in &self.clients {
            writeln!(f, "client {id}, reachable: {reachable}")?;
        }
        for round in &self.rounds {
            writeln!(f, "clock {:+} ms", round.step_ms)?;
            for (name, op) in round.batches.iter().flatten() {
                writeln!(f, "  {name}: {op:?}")?;
            }
        }
        Ok(())
    }
}

impl Shape {
    fn step_ms(self, rng: &mut Rng) -> i64 {
        const STEPS: [i64; 14] = [
            0, 0, 1, 1, 2, 5, 100, 900, 1_000, 1_001, 2_000, 2_999, 3_000, 600_000,
        ];
        if self == Self::Standing {
            return *pick(rng, &STEPS);
        }
        match rng.u8(0..20) {
            0 => 600_000,
            1 | 2 if self == Self::RunningBack => -2_000 * rng.i64(1..=10),
            3..=9 => 0,
            _ => 2_000 * rng.i64(1..=3),
        }
    }

    fn ttl(self, rng: &mut Rng) -> Ttl {
        const TTLS: [u64; 12] = [
            1, 1, 2, 5, 100, 1_000, 1_000, 2_999, 3_000, 3_001, 10_000, 86_400_000,
        ];
        let millis = match self {
            // A notified grant lasts three seconds at most.
            Self::Standing => *pick(rng, &TTLS),
            Self::Running | Self::RunningBack => match rng.u8(0..20) {
                0 => 3_601_000,
                _ => 1_000 + 2_000 * rng.u64(0..=3),
            },
        };
        Ttl::from_millis(millis).unwrap_or(Ttl::MAX)
    }
}

fn batches(
    rng: &mut Rng,
    shape: Shape,
    leases: &[[Acquire; LEASES]],
    batch_max: usize,
) -> Vec<Vec<(usize, Op)>> {
    let mut ops = Vec::new();
    for (name, leases) in leases.iter().enumerate() {
        for _ in 0..rng.usize(1..=OPS_MAX) {
            ops.push((name, op(rng, shape, leases)));
        }
        if rng.u8(0..6) == 0 {
            ops.extend((0..rng.usize(1..=4)).map(|_| (name, latch_op(rng, shape))));
        }
    }
    rng.shuffle(&mut ops);
    let mut batches = Vec::new();
    while !ops.is_empty() {
        let rest = ops.split_off(rng.usize(1..=batch_max).min(ops.len()));
        batches.push(std::mem::replace(&mut ops, rest));
    }
    batches
}

/// A request for each name that makes a store expire its record and its queue.
fn expire_queues(names: usize, batch_max: usize) -> Vec<Vec<(usize, Op)>> {
    let op = |name| (name, Op::renew(NO_HOLDER, Ttl::USER_MIN));
    let ops: Vec<_> = (0..names).map(op).collect();
    ops.chunks(batch_max).map(<[_]>::to_vec).collect()
}

/// Mostly operations of leases on the lock. Some write notes, and some change a lease or a note for an operator.
fn op(rng: &mut Rng, shape: Shape, leases: &[Acquire]) -> Op {
    let waiting = pick(rng, leases);
    let (lease, ttl) = (waiting.lease, shape.ttl(rng));
    match rng.u8(0..22) {
        0..=2 => Op::Acquire(Acquire {
            count: at_least_one(*pick(rng, &[1, 1, 2, 3, u32::MAX])),
            tokens: waiting.tokens,
            // Many masters, to whom tokens are proposed, keep no completions.
            proposal: (waiting.unless.is_none() && rng.bool()).then(|| *pick(rng, &firsts())),
            unless: waiting.unless.clone(),
            ..Acquire::mutex(lease, ttl)
        }),
        3..=8 => Op::Acquire(waiting.clone()),
        9..=12 => Op::Renew {
            lease,
            ttl,
            count: NonZeroU32::new(*pick(rng, &[0, 0, 1, 1, 2, 2, 3, u32::MAX])),
        },
        13 => Op::SetToken {
            lease,
            // The times of the clocks are between them.
            first: *pick(rng, &firsts()),
            tokens: waiting.tokens,
        },
        14..=16 => Op::Release {
            lease,
            rest: rng.bool().then_some(ttl),
            note: (rng.u8(0..4) == 0 || waiting.unless.is_some())
                .then(|| note(rng, shape, waiting.unless.as_ref())),
        },
        17 => Op::Revoke(*pick(rng, &[Whom::All, Whom::One(lease)])),
        18 => Op::Remove(Removal::Note(slot(rng))),
        _ => Op::WriteNote {
            lease,
            note: note(rng, shape, waiting.unless.as_ref()),
        },
    }
}

/// Mostly the completion of the run of its lease, if it has one.
fn note(rng: &mut Rng, shape: Shape, run: Option<&Unless>) -> NewNote {
    let slot = match run {
        Some(run) if rng.u8(0..4) > 0 => run.slot(),
        _ => slot(rng),
    };
    let text = match slot {
        Slot::Period if rng.u8(0..4) > 0 => completion(rng),
        // Some are alike, so that a release is repeated with its note.
        _ if rng.bool() => "text".to_owned(),
        _ => format!("text {}", rng.u64(..)),
    };
    NewNote {
        slot,
        token: *pick(rng, &firsts()),
        number: rng.u64(0..4),
        text: text.into(),
        keep: match rng.bool() {
            true => shape.ttl(rng).as_duration(),
            false => Duration::from_secs(3_601),
        },
    }
}

/// The first word of a text whose times are counted from when it is written.
const FROM_NOW: &str = "from-now";

/// A completion whose times are so many microseconds after it is written, perhaps damaged: see [`timed`].
fn completion(rng: &mut Rng) -> String {
    let period = micros(period(rng));
    let mut near = || period / 2 * rng.i64(-6..=2) + rng.i64(-1..=1);
    let (requested, started, finished, anchor) = (near(), near(), near(), near());
    let (anchored, damage) = (rng.u8(0..3), rng.u8(0..32));
    format!("{FROM_NOW} {requested} {started} {finished} {period} {anchor} {anchored} {damage}")
}

/// The operation with the text of a completion as it is written at this time.
#[must_use]
pub fn timed(op: &Op, now: StoreTime) -> Op {
    let mut op = op.clone();
    if let Op::WriteNote { note, .. }
    | Op::Release {
        note: Some(note), ..
    } = &mut op
        && let Some(offsets) = note.text.strip_prefix(FROM_NOW)
    {
        note.text = completion_at(offsets, now).into();
    }
    op
}

fn completion_at(offsets: &str, now: StoreTime) -> String {
    let numbers = offsets.split_whitespace().map(str::parse);
    let numbers = numbers.collect::<Result<Vec<i64>, _>>().unwrap_or_default();
    let &[asked, begun, ended, period, anchor, anchored, damage] = &numbers[..] else {
        unreachable!("{offsets}");
    };
    let at = |offset| StoreTime::from_micros(now.as_micros().saturating_add_signed(offset));
    let period = Period::checked(Duration::from_micros(period.unsigned_abs()));
    let slots = period.filter(|_| anchored > 0).map(|period| Slots {
        anchor: at(anchor),
        chosen: anchored > 1,
        period,
    });
    let completion = Completion {
        slots,
        requested_at: at(asked),
        started_at: at(begun),
        finished_at: at(ended),
        keep: None,
        exit_code: 0,
        host: "started=1".to_owned(),
        program: String::new(),
        path: None,
        label: "50 %".to_owned(),
    };
    let text = completion.to_text();
    match damage {
        0 => text.replacen('1', "2", 1),
        1 => text.replacen(" started=", " begun=", 1),
        2 => text.replacen(".", "", 1),
        _ => text,
    }
}

fn period(rng: &mut Rng) -> Duration {
    let seconds = [1, 1, 3, 60, 24 * 60 * 60, 365 * 24 * 60 * 60];
    Duration::from_secs(*pick(rng, &seconds)) + Duration::from_micros(rng.u64(0..2))
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// The completion that makes the requests of a lease needless. The leases of a name mostly have the same slot.
fn unless(rng: &mut Rng, slot: u8) -> Option<Unless> {
    let period = Period::checked(period(rng)).or_else(|| Period::checked(Period::MAX))?;
    let asked = micros(period.as_duration()) / 2 * rng.i64(0..5) + rng.i64(0..=1);
    // Also before the epoch of any store.
    let asked = *pick(rng, &[asked, asked, asked, 1 << 53]);
    let asked = Duration::from_micros(asked.unsigned_abs());
    let anchor = *pick(rng, &[0, 1_600_000_000_123_456, 1 << 52]);
    let anchor = rng.bool().then(|| StoreTime::from_micros(anchor));
    match slot.wrapping_add(u8::from(rng.u8(0..6) == 0)) {
        0 => Some(Unless::Key {
            key: CompletionKey::parse("v1").ok()?,
            asked,
        }),
        1 => Some(Unless::Period {
            schedule: JobSchedule { period, anchor },
            asked,
        }),
        _ => None,
    }
}

fn slot(rng: &mut Rng) -> Slot {
    let key = |key| CompletionKey::parse(key).map_or(Slot::Value, Slot::Key);
    pick(rng, &[Slot::Value, Slot::Period, key("v1"), key("v2")]).clone()
}

/// An operation on the latch with the name of a lock.
fn latch_op(rng: &mut Rng, shape: Shape) -> Op {
    let (id, count) = (*pick(rng, &["a", "b", "c"]), *pick(rng, &[1, 2, 2, 2, 3]));
    let keep = shape.ttl(rng).as_duration();
    let (id, count) = (ArrivalId::parse(id).ok(), LatchCount::new(count));
    match id.zip(count).filter(|_| rng.u8(0..4) > 0) {
        Some((id, count)) => Op::Arrive { id, count, keep },
        None => Op::Remove(Removal::Latch),
    }
}

fn firsts() -> [Token; 4] {
    [1, 1 << 40, 1 << 51, 1 << 52].map(|first| Token::new(first).unwrap_or(Token::MAX))
}

/// Some blocks are so large that the counter runs ahead of the clock for seconds.
fn tokens(rng: &mut Rng) -> TokenCount {
    at_least_one(*pick(rng, &[1, 1, 1, 2, 256, 256, 3_000_000, u32::MAX]))
}

/// Mostly reachable ones, so that a waiter is notified when others are passed over.
fn clients(rng: &mut Rng) -> Vec<Client> {
    let clients = (0..CLIENTS).map(|_| Client {
        id: ClientId::from_random(rng.u128(..).to_be_bytes()),
        reachable: rng.u8(0..3) > 0,
    });
    clients.collect()
}

/// The requests by which leases wait: one lease of each client, and a second one of the first.
fn leases(rng: &mut Rng, shape: Shape, clients: &[Client], name: usize) -> [Acquire; LEASES] {
    let numbers = *pick(rng, &[1, 1 << 40, u64::MAX - (1 << 20)]);
    let slot = *pick(rng, &[0, 1, 2, 2, u8::MAX]);
    // The names have no lease in common.
    let first = (name * LEASES) as u64;
    std::array::from_fn(|nth| {
        let lease = LeaseId {
            client: clients[nth % clients.len()].id,
            number: numbers + first + nth as u64,
        };
        Acquire {
            tokens: tokens(rng),
            wait: true,
            unless: unless(rng, slot),
            ..Acquire::mutex(lease, shape.ttl(rng))
        }
    })
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use leasehold_core::record::queue;

    use super::*;

    #[test]
    fn every_name_has_a_request_in_every_round_and_a_waiter_repeats_its_request() {
        for seed in 0..200 {
            let histories = Histories::random(seed, Shape::Standing, 16);
            let again = Histories::random(seed, Shape::Standing, 16);
            assert_eq!(histories.to_string(), again.to_string());
            let mut requests = HashMap::new();
            for round in &histories.rounds {
                let mut requested = vec![false; histories.names];
                for (name, op) in round.batches.iter().flatten() {
                    requested[*name] = true;
                    if let Op::Acquire(request) = op
                        && request.wait
                    {
                        let own = (name, request);
                        assert_eq!(*requests.entry(request.lease).or_insert(own), own);
                    }
                }
                assert!(!requested.contains(&false), "{histories}");
            }
        }
    }

    /// A second is between any request and the end of any lease, queue, note or latch, so that a store whose clock
    /// runs has the replies of the rule.
    #[test]
    fn running_clocks_change_no_reply() {
        for seed in 0..1_000 {
            let histories = Histories::random(seed, Shape::RunningBack, 4);
            let mut now = 0;
            let mut ends = Vec::new();
            for round in &histories.rounds {
                now += round.step_ms;
                for (_, op) in round.batches.iter().flatten() {
                    // Any request may grant the lock to an earlier waiter.
                    let mut spans = vec![Duration::from_millis(queue::ACCEPTANCE_MS)];
                    if let Some(ttl) = op.ttl().filter(|_| op.lease() != Some(NO_HOLDER)) {
                        spans.push(ttl.as_duration());
                        spans.push(queue::acceptance(ttl).as_duration());
                        spans.push(queue::retention(ttl));
                    }
                    spans.extend(match op {
                        Op::WriteNote { note, .. }
                        | Op::Release {
                            note: Some(note), ..
                        } => Some(note.keep),
                        Op::Arrive { keep, .. } => Some(*keep),
                        _ => None,
                    });
                    let spans = spans.iter().map(|span| i64::try_from(span.as_millis()));
                    ends.extend(spans.map(|span| now + span.unwrap()));
                }
                let mut ends = ends.iter().map(|end| end - now);
                assert!(ends.all(|end| end.abs() >= 1_000), "{histories}");
            }
        }
    }
}
