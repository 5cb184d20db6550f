//! Records in a file equal records in memory, and a damaged one is a fault of its own name only.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::job::{JobSchedule, Period};
use leasehold_core::record::{Acquire, Claim, NewNote, Rows, Slot, Unless};
use leasehold_core::{ArrivalId, CompletionKey, LatchCount, Token, TokenCount, Ttl};

use super::*;
use crate::store::api::fixture;

const HISTORIES: u64 = 100;
const OPERATIONS: usize = 200;
const NAMES: usize = 5;

/// The start of each history, in microseconds.
const START: u64 = 1_000_000_000;

/// Random operations of a few clients on a few names.
struct History {
    random: fastrand::Rng,
    now: StoreTime,
    alive: [bool; 4],
}

impl History {
    fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            now: StoreTime::from_micros(START),
            alive: [true; 4],
        }
    }

    fn pass(&mut self) {
        let micros = match self.random.u8(..12) {
            0..5 => 0,
            5..11 => self.random.u64(..5_000),
            _ if self.random.u8(..8) > 0 => self.random.u64(..40_000),
            _ => self.random.u64(..100_000_000),
        };
        self.now = self.now.after_span(Duration::from_micros(micros));
        if self.random.u8(..8) == 0 {
            self.alive = [(); 4].map(|()| self.random.u8(..3) > 0);
        }
    }

    fn is_alive(&self, client: ClientId) -> bool {
        self.alive[usize::from(client.to_bytes()[0])]
    }

    fn op(&mut self) -> Op {
        // With one digit, so that their texts are in the same order.
        let lease = lease(1 + self.random.u64(..9));
        let ttl = Ttl::from_millis(1 + self.random.u64(..20)).unwrap();
        match self.random.u8(..24) {
            0..10 => Op::Acquire(Acquire {
                count: number(1 + self.random.u32(..3)),
                ttl,
                wait: self.random.u8(..5) > 0,
                unless: self.unless(),
                ..request(lease, self.claim(lease))
            }),
            10..12 => Op::Renew {
                lease,
                ttl,
                count: self.random.bool().then(|| number(2)),
            },
            12..17 => Op::Release {
                lease,
                rest: (self.random.u8(..4) == 0).then_some(ttl),
                note: self.random.bool().then(|| self.note()),
            },
            17 | 18 => {
                let note = self.note();
                Op::WriteNote { lease, note }
            }
            19 => Op::SetToken {
                lease,
                first: Token::at(self.now).unwrap(),
                tokens: TokenCount::MIN,
            },
            20 => Op::Revoke(match self.random.bool() {
                true => Whom::All,
                false => Whom::One(lease),
            }),
            21 => Op::Remove(match self.random.bool() {
                true => Removal::Latch,
                false => Removal::Note(self.slot()),
            }),
            _ => arrival(self.random.u32(..4), 3, 10),
        }
    }

    fn claim(&mut self, lease: LeaseId) -> Claim {
        match self.random.bool() {
            true => Claim::Mutex,
            false => permits(1 + lease.number as u32 % 3, 3),
        }
    }

    fn unless(&mut self) -> Option<Unless> {
        let asked = Duration::from_nanos(self.random.u64(..2_000_000_000));
        match self.random.u8(..6) {
            0 => Some(Unless::Key { key: key(), asked }),
            1 => Some(Unless::Period {
                schedule: JobSchedule {
                    period: Period::checked(Period::MIN).unwrap(),
                    anchor: self.random.bool().then_some(self.now),
                },
                asked,
            }),
            _ => None,
        }
    }

    fn slot(&mut self) -> Slot {
        match self.random.u8(..3) {
            0 => Slot::Value,
            1 => Slot::Period,
            _ => Slot::Key(key()),
        }
    }

    fn note(&mut self) -> NewNote {
        NewNote {
            slot: self.slot(),
            token: Token::MAX,
            number: self.random.u64(..4),
            text: "100 % of\nit".into(),
            keep: Duration::from_micros(self.random.u64(..40_000)),
        }
    }
}

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: ClientId::from_random([(number % 4) as u8; 16]),
        number,
    }
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

fn key() -> CompletionKey {
    CompletionKey::parse("release 1").unwrap()
}

fn permits(weight: u32, limit: u32) -> Claim {
    Claim::Permits {
        weight: number(weight),
        limit: number(limit),
    }
}

fn request(lease: LeaseId, claim: Claim) -> Acquire {
    Acquire {
        lease,
        claim,
        count: NonZeroU32::MIN,
        ttl: Ttl::MAX,
        tokens: number(1 + lease.number as u32 % 3),
        proposal: None,
        wait: true,
        unless: None,
    }
}

fn acquire(lease: LeaseId, claim: Claim) -> Op {
    Op::Acquire(request(lease, claim))
}

fn release(lease: LeaseId) -> Op {
    Op::Release {
        lease,
        rest: None,
        note: None,
    }
}

fn arrival(id: u32, count: u32, millis: u64) -> Op {
    Op::Arrive {
        id: ArrivalId::parse(&format!("worker {id}")).unwrap(),
        count: LatchCount::new(count).unwrap(),
        keep: Duration::from_millis(millis),
    }
}

fn database() -> Connection {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch(TABLES).unwrap();
    db
}

fn keys() -> Vec<Key> {
    (0..NAMES)
        .map(|name| fixture::key(&format!("name {name}")))
        .collect()
}

/// Applies an operation of a client that lives, at the start.
fn run(db: &Connection, key: &Key, op: &Op) -> Result<Applied, Fault> {
    apply(db, key, op, StoreTime::from_micros(START), |_| true)
}

/// The stored record of a name.
fn stored(db: &Connection, key: &Key) -> Rows {
    let mut record = StoredRecord::new(db, key, |_| true);
    let head = record.head().unwrap();
    let (namespace, tenant, name) = columns(key);
    let put = |row: &rusqlite::Row<'_>| {
        let part = match row.get("class").unwrap() {
            HOLDER => Part::Holder(super::lease(row)?),
            WAITER => Part::Waiter(super::lease(row)?),
            ARRIVAL => Part::Arrival(ArrivalId::parse(text(row, "id")?).unwrap()),
            _ => Part::Note(Slot::from_id(text(row, "id")?).unwrap()),
        };
        let member = member(&part, row)?;
        Ok(Change::Put(part, member))
    };
    let members = record.select(
        "SELECT class, id, value, place FROM members
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3",
        [namespace, tenant, name],
        put,
    );
    let mut rows = Rows::default();
    rows.store(Changes {
        head: Some(head),
        rows: members.unwrap(),
    });
    rows
}

/// Removes what may be removed at a time.
fn collect(db: &Connection, now: StoreTime) {
    for delete in [
        "DELETE FROM members WHERE until <= ?1",
        "DELETE FROM heads WHERE until <= ?1 AND NOT EXISTS (
             SELECT 1 FROM members AS m WHERE class = 1
             AND (m.namespace, m.tenant, m.name) = (heads.namespace, heads.tenant, heads.name))",
        "DELETE FROM members WHERE until IS NULL AND ?1 > 0
         AND (namespace, tenant, name) NOT IN (SELECT namespace, tenant, name FROM heads)",
    ] {
        db.execute(delete, [signed(now.as_micros())]).unwrap();
    }
}

/// The same names in a file and in memory.
struct Comparison {
    db: Connection,
    keys: Vec<Key>,
    memory: [Rows; NAMES],
    history: History,
}

impl Comparison {
    fn new(seed: u64) -> Self {
        Self {
            db: database(),
            keys: keys(),
            memory: Default::default(),
            history: History::new(seed),
        }
    }

    /// Applies a random operation to a random name of these, and compares the results. Returns the name.
    fn step(&mut self, names: std::ops::Range<usize>) -> usize {
        let history = &mut self.history;
        history.pass();
        let (name, op, now) = (history.random.usize(names), history.op(), history.now);
        let rows = &mut self.memory[name];
        let mut source = rows.source(|client| history.is_alive(client));
        let expected = record::apply(&mut source, &op, &Environment { now }).unwrap();
        let reaches = |client| history.is_alive(client);
        let applied = apply(&self.db, &self.keys[name], &op, now, reaches).unwrap();
        let seen = format!("{op:#?} at {now:?}");
        assert_eq!(applied.outcome, expected.outcome, "{seen}");
        assert_eq!(applied.notices, expected.notices, "{seen}");
        assert_eq!(applied.unfinished, expected.unfinished, "{seen}");
        rows.store(expected.changes);
        name
    }

    fn compare(&self, name: usize) {
        let stored = stored(&self.db, &self.keys[name]);
        assert_eq!(stored, self.memory[name]);
    }

    /// Damages a random part of the first name, if there is one.
    fn damage(&mut self) {
        let damage = DAMAGES[self.history.random.usize(..DAMAGES.len())];
        let damaged = match self.history.random.u8(..4) {
            0 => self.db.execute(
                "UPDATE heads SET value = ?1 WHERE name = 'name 0'",
                [damage],
            ),
            _ => self.db.execute(
                "UPDATE members SET value = ?1 WHERE name = 'name 0' AND (class, id) IN (
                     SELECT class, id FROM members WHERE name = 'name 0' LIMIT 1 OFFSET ?2)",
                params![damage, self.history.random.u8(..6)],
            ),
        };
        damaged.unwrap();
    }

    /// Applies a random operation to the damaged name, which is applied as a whole or not at all.
    fn step_damaged(&mut self) {
        self.history.pass();
        let op = self.history.op();
        let before = self.db.total_changes();
        match self.apply_damaged(&op) {
            Ok(_) => {}
            Err(Fault::Damaged(..)) => assert_eq!(self.db.total_changes(), before),
            Err(fault) => panic!("{fault:?}"),
        }
    }

    /// Repairs the first name as an operator does.
    fn repair(&mut self) {
        let [value, period, key] = [Slot::Value, Slot::Period, Slot::Key(key())];
        // Each forced release may grant the permits to waiters.
        for _ in 0..10 {
            self.apply_damaged(&Op::Revoke(Whom::All)).unwrap();
        }
        self.apply_damaged(&Op::Remove(Removal::Latch)).unwrap();
        for slot in [value, period, key] {
            self.apply_damaged(&Op::Remove(Removal::Note(slot)))
                .unwrap();
        }
        self.memory[0] = stored(&self.db, &self.keys[0]);
        assert_eq!(self.memory[0].head().body, Body::Free);
    }

    fn apply_damaged(&self, op: &Op) -> Result<Applied, Fault> {
        let reaches = |client| self.history.is_alive(client);
        apply(&self.db, &self.keys[0], op, self.history.now, reaches)
    }
}

#[test]
fn a_file_equals_the_memory() {
    for seed in 0..HISTORIES {
        let mut comparison = Comparison::new(seed);
        for _ in 0..OPERATIONS {
            let name = comparison.step(0..NAMES);
            comparison.compare(name);
        }
    }
}

#[test]
fn what_may_be_removed_is_not_missed() {
    for seed in 0..HISTORIES {
        let mut comparison = Comparison::new(seed);
        for _ in 0..OPERATIONS {
            comparison.step(0..NAMES);
            if comparison.history.random.u8(..4) == 0 {
                collect(&comparison.db, comparison.history.now);
            }
        }
    }
}

#[test]
fn a_damaged_row_is_the_fault_of_its_own_name() {
    for seed in 0..HISTORIES {
        let mut comparison = Comparison::new(seed);
        for _ in 0..OPERATIONS / 50 {
            for _ in 0..20 {
                comparison.step(0..NAMES);
            }
            comparison.damage();
            for _ in 0..20 {
                comparison.step_damaged();
                let name = comparison.step(1..NAMES);
                comparison.compare(name);
            }
            comparison.repair();
        }
    }
}

#[test]
fn an_uncontended_mutex_is_one_row_that_is_written_once() {
    let (db, key) = (database(), fixture::key("a"));
    for op in [acquire(lease(1), Claim::Mutex), release(lease(1))] {
        let before = db.total_changes();
        run(&db, &key, &op).unwrap();
        assert_eq!(db.total_changes() - before, 1);
    }
}

#[test]
fn an_arrival_writes_two_rows_however_many_have_arrived() {
    let (db, key) = (database(), fixture::key("a"));
    for id in 0..LatchCount::MAX {
        let before = db.total_changes();
        let applied = run(&db, &key, &arrival(id, LatchCount::MAX, 10)).unwrap();
        assert!(matches!(applied.outcome, Outcome::Arrived(status) if status.arrived == id + 1));
        assert_eq!(db.total_changes() - before, 2);
    }
}

#[test]
fn a_failure_of_the_file_is_its_cause() {
    let (db, key) = (database(), fixture::key("a"));
    db.execute_batch("DROP TABLE heads").unwrap();
    let failed = run(&db, &key, &acquire(lease(1), Claim::Mutex));
    assert!(matches!(failed, Err(Fault::Sqlite(_))), "{failed:?}");
}

/// Values that no version has written.
const DAMAGES: [&str; 5] = ["", "1", "2 - free", "1 held", "1 - mutex 42 held 1 1 1 - 1"];

#[test]
fn a_damaged_head_is_repaired_by_force_and_tokens_grow() {
    for value in DAMAGES {
        let (db, [a, b]) = (database(), ["a", "b"].map(fixture::key));
        for key in [&a, &b] {
            run(&db, key, &acquire(lease(1), Claim::Mutex)).unwrap();
            run(&db, key, &acquire(lease(2), Claim::Mutex)).unwrap();
        }
        db.execute("UPDATE heads SET value = ?1 WHERE name = 'a'", [value])
            .unwrap();
        for op in [
            acquire(lease(3), Claim::Mutex),
            release(lease(1)),
            arrival(1, 2, 10),
        ] {
            let before = db.total_changes();
            let failed = run(&db, &a, &op);
            assert!(matches!(failed, Err(Fault::Damaged(..))), "{failed:?}");
            assert_eq!(db.total_changes(), before);
        }
        let revoked = run(&db, &a, &Op::Revoke(Whom::All)).unwrap();
        assert_eq!(revoked.outcome, Outcome::Revoked(Vec::new()));
        assert!(revoked.is_visible);
        let now = StoreTime::from_micros(START + 1_000);
        let op = acquire(lease(3), Claim::Mutex);
        let granted = apply(&db, &a, &op, now, |_| true).unwrap().outcome;
        let first = Token::at(now).unwrap();
        assert_eq!(granted, Outcome::Granted { first, run: None });
        let released = run(&db, &b, &release(lease(1))).unwrap();
        assert_eq!(released.outcome, Outcome::Released);
        assert_eq!(released.notices.len(), 1);
    }
}

#[test]
fn a_damaged_member_is_repaired_by_force() {
    for (claim, column) in [
        (Claim::Mutex, "value"),
        (permits(2, 2), "value"),
        (Claim::Mutex, "place"),
    ] {
        let (db, key) = (database(), fixture::key("a"));
        for number in [1, 2] {
            run(&db, &key, &acquire(lease(number), claim)).unwrap();
        }
        let value = if column == "place" { "7" } else { "'1 lost'" };
        db.execute_batch(&format!(
            "UPDATE members SET {column} = {value} WHERE class = 2"
        ))
        .unwrap();
        if claim != Claim::Mutex {
            db.execute_batch("UPDATE members SET value = '1' WHERE class = 1")
                .unwrap();
        }
        let failed = run(&db, &key, &release(lease(1)));
        assert!(matches!(failed, Err(Fault::Damaged(..))), "{failed:?}");
        let revoked = run(&db, &key, &Op::Revoke(Whom::All)).unwrap();
        let known = if claim == Claim::Mutex {
            vec![lease(1)]
        } else {
            Vec::new()
        };
        assert_eq!(revoked.outcome, Outcome::Revoked(known));
        let granted = run(&db, &key, &acquire(lease(3), claim)).unwrap();
        assert!(matches!(granted.outcome, Outcome::Granted { .. }));
    }
}

#[test]
fn a_damaged_note_is_the_fault_of_its_readers_until_it_is_removed() {
    let (db, key) = (database(), fixture::key("a"));
    let mut history = History::new(1);
    let note = NewNote {
        slot: Slot::Value,
        ..history.note()
    };
    let write = Op::WriteNote {
        lease: lease(1),
        note,
    };
    run(&db, &key, &acquire(lease(1), Claim::Mutex)).unwrap();
    run(&db, &key, &write).unwrap();
    db.execute_batch("UPDATE members SET value = '1'").unwrap();
    let failed = run(&db, &key, &write);
    assert!(matches!(failed, Err(Fault::Damaged(..))), "{failed:?}");
    let remove = Op::Remove(Removal::Note(Slot::Value));
    for is_removed in [true, false] {
        let removed = run(&db, &key, &remove).unwrap();
        assert_eq!(removed.outcome, Outcome::Removed(is_removed));
    }
    assert_eq!(run(&db, &key, &write).unwrap().outcome, Outcome::Stored);
    assert_eq!(
        run(&db, &key, &release(lease(1))).unwrap().outcome,
        Outcome::Released
    );
}

/// A head that was removed by hand leaves members behind.
#[test]
fn a_new_record_has_no_members_of_a_lost_one() {
    let (db, key) = (database(), fixture::key("a"));
    let claim = permits(2, 2);
    for number in 1..=4 {
        run(&db, &key, &acquire(lease(number), claim)).unwrap();
    }
    db.execute_batch("DELETE FROM heads").unwrap();
    for number in 5..=6 {
        run(&db, &key, &acquire(lease(number), claim)).unwrap();
    }
    let released = run(&db, &key, &release(lease(5))).unwrap();
    let leases: Vec<_> = released.notices.iter().map(record::Notice::lease).collect();
    assert_eq!(leases, [lease(6)]);
    let count = |class: u8| {
        let sql = "SELECT count(*) FROM members WHERE class = ?1";
        db.query_row(sql, [class], |row| row.get::<_, u32>(0))
            .unwrap()
    };
    assert_eq!((count(HOLDER), count(WAITER)), (1, 0));
}
