//! The rule on a source that has only the parts that were asked for.

use std::collections::BTreeSet;
use std::convert::Infallible;

use super::*;

/// A part that is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Head,
    Row(Part),
    Holders,
    WaiterFrom(u64),
    WaitersBetween(u64, u64),
    Reaches(ClientId),
}

/// A source that starts empty.
struct Loaded<'a, S> {
    whole: &'a mut S,
    needs: BTreeSet<Need>,
}

impl<S> Loaded<'_, S> {
    fn check(&self, need: Need) -> Result<(), Need> {
        match self.needs.contains(&need) {
            true => Ok(()),
            false => Err(need),
        }
    }
}

impl<S: Source<Error = Infallible>> Source for Loaded<'_, S> {
    type Error = Need;

    fn head(&mut self) -> Result<Head, Need> {
        self.check(Need::Head)?;
        Ok(self.whole.head().unwrap())
    }

    fn row(&mut self, part: &Part) -> Result<Option<Row>, Need> {
        self.check(Need::Row(part.clone()))?;
        Ok(self.whole.row(part).unwrap())
    }

    fn holders(&mut self) -> Result<Vec<Holder>, Need> {
        self.check(Need::Holders)?;
        Ok(self.whole.holders().unwrap())
    }

    fn waiter_from(&mut self, place: u64) -> Result<Option<Waiter>, Need> {
        self.check(Need::WaiterFrom(place))?;
        Ok(self.whole.waiter_from(place).unwrap())
    }

    fn waiters_between(&mut self, from: u64, to: u64) -> Result<u32, Need> {
        self.check(Need::WaitersBetween(from, to))?;
        Ok(self.whole.waiters_between(from, to).unwrap())
    }

    fn reaches(&mut self, client: ClientId) -> Result<bool, Need> {
        self.check(Need::Reaches(client))?;
        Ok(self.whole.reaches(client).unwrap())
    }
}

/// Applies an operation to a source that starts empty, as often as a part is missing. Also returns what was loaded.
pub(super) fn apply_in_parts(world: &World, op: &Op) -> (Applied, BTreeSet<Need>) {
    let mut whole = world.rows.source(|client| world.is_alive(client));
    let mut loaded = Loaded {
        whole: &mut whole,
        needs: BTreeSet::new(),
    };
    loop {
        match super::apply(&mut loaded, op, &world.environment()) {
            Ok(applied) => return (applied, loaded.needs),
            Err(need) => assert!(loaded.needs.insert(need)),
        }
    }
}

#[test]
fn an_uncontended_mutex_needs_and_changes_the_head_only() {
    let mut world = World::new();
    let acquire = Op::Acquire(acquire(lease(1), Claim::Mutex, 100, true));
    let release = Op::Release {
        lease: lease(1),
        rest: None,
        note: None,
    };
    for op in [acquire, release] {
        let (applied, needs) = apply_in_parts(&world, &op);
        assert_eq!(needs, BTreeSet::from([Need::Head]));
        assert!(applied.changes.head.is_some() && applied.changes.rows.is_empty());
        world.apply(&op);
    }
    assert_eq!(world.rows.head().body, Body::Free);
}

#[test]
fn an_arrival_needs_and_changes_two_parts_however_many_have_arrived() {
    let mut world = World::new();
    for number in 0..1_000 {
        let op = examples::arrival(number, 1_000);
        let (applied, needs) = apply_in_parts(&world, &op);
        assert!(needs.len() <= 2, "{needs:?}");
        assert_eq!(applied.changes.rows.len(), 1);
        world.apply(&op);
    }
    let applied = world.apply(&examples::arrival(1_000, 1_000));
    assert!(matches!(applied.outcome, Outcome::Arrived(status) if status.is_open()));
    assert_eq!(applied.changes, Changes::default());
}
