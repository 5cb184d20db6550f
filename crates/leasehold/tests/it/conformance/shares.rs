//! Semaphores and read-write locks, by the operations of a store.

use std::time::Duration;

use leasehold::__private::store::{ArrivalId, Event, Feature, LatchCount, Notice, Outcome, Reply};
use leasehold::ErrorKind;
use leasehold_core::{Access, Claim, Op};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::nothing_is_left;
use crate::readings::{Arrival, Beside as _, Readings as _};
use crate::store_client::{
    StoreClient, TAKEN_OVER, TTL, access, acquire, convert, enter, granted, key, lasting, permits,
    rejected, release, release_after, renew, revoke, send, space, wait,
};
use crate::waiters::SOON;

/// Shorter than any other lease here.
const SHORT: Duration = Duration::from_secs(2);

pub(super) async fn permits_are_granted_or_refused_with_a_reason(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("permits"));
    let keeps = store.capabilities().kind.has(Feature::Semaphores);
    match send(&*store, permits(acquire(&name, 1), 1, 2)).await {
        Reply::Applied { outcome, .. } => {
            assert!(keeps && matches!(outcome, Outcome::Granted { .. }));
        }
        Reply::Rejected(error) => {
            assert!(
                !keeps && error.to_string().contains("no semaphores"),
                "{error}"
            );
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        Reply::Unknown(error) => panic!("{error}"),
    }
}

/// Three clients, one of them of another store handle.
async fn clients(fixture: &Fixture) -> [StoreClient; 3] {
    let (one, other) = (fixture.store().await, fixture.store().await);
    [&one, &one, &other].map(|store| StoreClient::unique(store).subscribed(&space()))
}

/// Acquires permits. Returns the token.
async fn take(client: &StoreClient, name: &str, number: u64, weight: u32, limit: u32) -> u64 {
    let request = permits(acquire(name, number), weight, limit);
    granted(&*client.store, client.own(request)).await
}

pub(super) async fn holders_share_the_permits(fixture: Fixture) {
    let [a, b, c] = clients(&fixture).await;
    let name = fresh_name("permits");
    let first = take(&a, &name, 1, 2, 3).await;
    let second = take(&b, &name, 1, 1, 3).await;
    assert!(second > first);
    c.is_not_queued(permits(acquire(&name, 1), 1, 3)).await;
    // A repetition is the same grant, whatever number of permits it asks for.
    assert_eq!(take(&a, &name, 1, 1, 3).await, first);
    assert_eq!(a.apply(enter(&name, 1, 2)).await, Outcome::Kept);
    c.is_not_queued(permits(acquire(&name, 1), 1, 3)).await;

    b.release(&name, 1).await;
    assert_eq!(b.apply(renew(&name, 1)).await, TAKEN_OVER);
    c.is_not_queued(permits(acquire(&name, 1), 2, 3)).await;
    assert!(take(&c, &name, 1, 1, 3).await > second);
    a.release(&name, 1).await;
    take(&b, &name, 2, 2, 3).await;
    for (client, number) in [(&b, 2), (&c, 1)] {
        client.release(&name, number).await;
    }
    // Without holders any number of permits may be chosen, or a mutex.
    take(&a, &name, 3, 4, 4).await;
    a.release(&name, 3).await;
    a.acquire(&name, 4).await;
    a.release(&name, 4).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn waiters_for_permits_are_served_in_their_order(fixture: Fixture) {
    let [holder, a, b] = clients(&fixture).await;
    let name = fresh_name("permits");
    let first = take(&holder, &name, 1, 2, 3).await;
    assert_eq!(a.join(permits(wait(&name, 1), 2, 3)).await, 0);
    // One permit is free, and neither a waiter nor another request overtakes.
    assert_eq!(b.join(permits(wait(&name, 1), 1, 3)).await, 1);
    assert_eq!(b.join(permits(wait(&name, 2), 3, 3)).await, 2);
    holder.is_not_queued(permits(acquire(&name, 2), 1, 3)).await;
    for waiter in [&a, &b] {
        waiter.no_notices();
    }
    holder.release(&name, 1).await;
    let tokens = [a.granted(&name, 1).await, b.granted(&name, 1).await];
    let [large, small] = tokens.map(|grant| grant.first.get());
    assert!(first < large && large < small);
    let lease = b.lease(2);
    let is_next = |event: &Event| matches!(event, Event::Notice(_, Notice::Next { lease: next, .. }) if *next == lease);
    eventually_async(SOON, async || b.events().iter().any(is_next)).await;

    // All permits at once.
    a.release(&name, 1).await;
    b.no_notices();
    b.release(&name, 1).await;
    b.granted(&name, 2).await;
    b.release(&name, 2).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

/// More than the rule grants in one step: the store goes on by itself.
pub(super) async fn a_release_of_all_permits_serves_all_waiters(fixture: Fixture) {
    const WAITERS: u32 = 200;
    let [holder, near, far] = clients(&fixture).await;
    for waiter in [near, far] {
        let name = fresh_name("permits");
        take(&holder, &name, 1, WAITERS, WAITERS).await;
        for number in 0..WAITERS {
            let request = permits(wait(&name, number.into()), 1, WAITERS);
            assert_eq!(waiter.join(request).await, number);
        }
        holder.release(&name, 1).await;
        let events = waiter.next_events(usize::try_from(WAITERS).unwrap()).await;
        for (number, event) in (0..).zip(events) {
            let lease = waiter.lease(number);
            let is_granted =
                matches!(&event, Event::Notice(_, Notice::Granted(grant)) if grant.lease == lease);
            assert!(is_granted, "{number}: {event:?}");
        }
    }
}

pub(super) async fn the_lease_of_one_holder_of_permits_ends(fixture: Fixture) {
    let [dying, living, waiter] = clients(&fixture).await;
    let name = fresh_name("permits");
    let short = lasting(permits(acquire(&name, 1), 2, 3), SHORT);
    granted(&*dying.store, dying.own(short)).await;
    take(&living, &name, 1, 1, 3).await;
    assert_eq!(waiter.join(permits(wait(&name, 1), 1, 3)).await, 0);
    // Whoever asks finds the permits free.
    let passes_on = async || {
        assert_eq!(living.apply(renew(&name, 1)).await, Outcome::Kept);
        let entry = waiter.store.inspect(&key(&name)).await.unwrap().unwrap();
        entry.waiters.is_empty()
    };
    eventually_async(SOON, passes_on).await;
    waiter.granted(&name, 1).await;
    assert_eq!(dying.apply(renew(&name, 1)).await, TAKEN_OVER);
    assert_eq!(dying.apply(release(&name, 1)).await, TAKEN_OVER);
    take(&dying, &name, 2, 1, 3).await;

    // The permits of a minimum hold are taken until it ends.
    let rest = lasting(release_after(&name, 1), TTL);
    assert_eq!(living.apply(rest).await, Outcome::Released);
    assert_eq!(living.apply(renew(&name, 1)).await, TAKEN_OVER);
    waiter.is_not_queued(permits(acquire(&name, 2), 1, 3)).await;
    for (client, number) in [(&waiter, 1), (&dying, 2)] {
        client.release(&name, number).await;
    }
    take(&waiter, &name, 3, 2, 3).await;
}

pub(super) async fn a_revocation_ends_the_leases_of_all_holders_of_permits(fixture: Fixture) {
    let [a, b, waiter] = clients(&fixture).await;
    let name = fresh_name("permits");
    for client in [&a, &b] {
        take(client, &name, 1, 1, 2).await;
    }
    assert_eq!(waiter.join(permits(wait(&name, 1), 2, 2)).await, 0);
    let Outcome::Revoked(mut leases) = waiter.apply(revoke(&name)).await else {
        panic!("nothing was revoked");
    };
    let mut expected = [&a, &b].map(|client| client.lease(1));
    leases.sort();
    expected.sort();
    assert_eq!(leases, expected);
    for client in [&a, &b] {
        let lease = client.lease(1);
        client
            .until_event(&Event::Notice(key(&name), Notice::Revoked { lease }))
            .await;
        assert_eq!(client.apply(renew(&name, 1)).await, TAKEN_OVER);
    }
    waiter.granted(&name, 1).await;
    waiter.release(&name, 1).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn a_request_that_does_not_match_a_semaphore_changes_nothing(fixture: Fixture) {
    let [holder, other, _] = clients(&fixture).await;
    let name = fresh_name("permits");
    take(&holder, &name, 1, 1, 3).await;
    for (request, words) in [
        (
            permits(acquire(&name, 1), 1, 2),
            "the semaphore has 3 permits, not 2",
        ),
        (
            permits(wait(&name, 1), 4, 3),
            "more permits than the semaphore has",
        ),
        (wait(&name, 1), "the name is used as a semaphore"),
    ] {
        let error = rejected(&*other.store, other.own(request)).await;
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let arrival = Arrival {
        id: ArrivalId::parse("a").unwrap(),
        count: LatchCount::new(2).unwrap(),
        ttl: TTL,
    };
    let error = other.store.arrive(&key(&name), &arrival).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    take(&other, &name, 1, 2, 3).await;
    for client in [&holder, &other] {
        client.release(&name, 1).await;
    }
    // Permits of a mutex.
    holder.acquire(&name, 2).await;
    let request = other.own(permits(wait(&name, 2), 1, 2));
    let error = rejected(&*other.store, request).await;
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    holder.release(&name, 2).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn a_semaphore_is_listed_with_its_first_holder_and_its_waiters(fixture: Fixture) {
    let [a, b, waiter] = clients(&fixture).await;
    let name = fresh_name("permits");
    for client in [&a, &b] {
        take(client, &name, 1, 1, 2).await;
    }
    assert_eq!(waiter.join(permits(wait(&name, 1), 1, 2)).await, 0);
    let listed = async || {
        let held = a.store.held(&space()).await.unwrap().into_iter();
        held.filter(|lock| lock.key == key(&name))
            .collect::<Vec<_>>()
    };
    let inspected = a.store.inspect(&key(&name)).await.unwrap().unwrap();
    for lock in listed().await.iter().chain([&inspected]) {
        assert_eq!(lock.lease, a.lease(1).min(b.lease(1)));
        assert!(lock.time_left > Duration::ZERO && lock.time_left <= TTL);
        let waiters: Vec<_> = lock.waiters.iter().map(|waiter| waiter.lease).collect();
        assert_eq!(waiters, [waiter.lease(1)]);
    }
    assert_eq!(listed().await.len(), 1);
    for client in [&a, &b, &waiter] {
        client.apply(release(&name, 1)).await;
    }
    assert_eq!(listed().await, []);
}

pub(super) async fn readers_are_granted_or_refused_with_a_reason(fixture: Fixture) {
    let (store, name) = (fixture.store().await, fresh_name("access"));
    let keeps = store.capabilities().kind.has(Feature::RwLocks);
    match send(&*store, access(acquire(&name, 1), Access::Read)).await {
        Reply::Applied { outcome, .. } => {
            assert!(keeps && matches!(outcome, Outcome::Granted { .. }));
        }
        Reply::Rejected(error) => {
            assert!(
                !keeps && error.to_string().contains("no read-write locks"),
                "{error}"
            );
            assert_eq!(error.kind(), ErrorKind::Unsupported);
        }
        Reply::Unknown(error) => panic!("{error}"),
    }
}

/// Acquires a free read-write lock, or shares it. Returns the token.
async fn enters(client: &StoreClient, name: &str, number: u64, wanted: Access) -> u64 {
    let request = access(acquire(name, number), wanted);
    granted(&*client.store, client.own(request)).await
}

pub(super) async fn readers_have_one_token_and_a_writer_its_own(fixture: Fixture) {
    let [a, b, c] = clients(&fixture).await;
    let name = fresh_name("access");
    let read = enters(&a, &name, 1, Access::Read).await;
    assert_eq!(enters(&b, &name, 1, Access::Upgradable).await, read);
    c.is_not_queued(access(acquire(&name, 1), Access::Upgradable))
        .await;
    assert_eq!(c.join(access(wait(&name, 1), Access::Write)).await, 0);
    // A reader does not overtake the writer.
    assert_eq!(a.join(access(wait(&name, 2), Access::Read)).await, 1);
    assert_eq!(a.apply(renew(&name, 1)).await, Outcome::Kept);
    a.release(&name, 1).await;
    c.no_notices();
    b.release(&name, 1).await;
    let write = c.granted(&name, 1).await.first.get();
    assert_eq!(b.join(access(wait(&name, 2), Access::Read)).await, 1);
    c.release(&name, 1).await;
    let next = [a.granted(&name, 2).await, b.granted(&name, 2).await];
    let [next, other] = next.map(|grant| grant.first.get());
    assert!(read < write && write < next && next == other);
    let error = rejected(&*c.store, c.own(permits(acquire(&name, 3), 1, 2))).await;
    assert!(
        error
            .to_string()
            .contains("the name is used as a read-write lock"),
        "{error}"
    );
    for client in [&a, &b] {
        client.release(&name, 2).await;
    }
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn an_upgrade_waits_for_the_readers_before_all_others(fixture: Fixture) {
    let [a, b, c] = clients(&fixture).await;
    let name = fresh_name("access");
    let write = Claim::Access(Access::Write);
    let read = enters(&a, &name, 1, Access::Upgradable).await;
    enters(&b, &name, 1, Access::Read).await;
    assert_eq!(c.join(access(wait(&name, 1), Access::Write)).await, 0);
    assert_eq!(a.join(convert(&name, 1, read, write)).await, 0);
    // Two would wait for each other.
    let error = rejected(&*b.store, b.own(convert(&name, 1, read, write))).await;
    assert!(
        error.to_string().contains("cannot wait for more"),
        "{error}"
    );
    b.release(&name, 1).await;
    let first = a.granted(&name, 1).await.first.get();
    assert!(first > read);
    let late = convert(&name, 1, read, Claim::Access(Access::Read));
    assert_eq!(a.apply(late).await, Outcome::Outdated);
    let down = convert(&name, 1, first, Claim::Access(Access::Read));
    let Outcome::Granted { first: down, .. } = a.apply(down).await else {
        panic!("a downgrade is refused");
    };
    assert!(down.get() > first);
    a.release(&name, 1).await;
    assert!(c.granted(&name, 1).await.first > down);
    c.release(&name, 1).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn numbers_are_reused_and_a_set_limit_governs(fixture: Fixture) {
    let [a, b, c] = clients(&fixture).await;
    let name = fresh_name("permits");
    let numbered = |number| {
        let mut request = permits(wait(&name, number), 1, 2);
        if let Op::Acquire(acquire) = &mut request.op
            && let Claim::Permits { numbered, .. } = &mut acquire.claim
        {
            *numbered = true;
        }
        request
    };
    let mut floors = Vec::new();
    for (client, expected) in [(&a, 0), (&b, 1)] {
        let Outcome::Granted { number, floor, .. } = client.apply(numbered(1)).await else {
            panic!("a free permit is refused");
        };
        assert_eq!(number, Some(expected));
        floors.push(floor.unwrap());
    }
    assert_eq!(floors[0], floors[1]);
    c.join(numbered(1)).await;
    a.release(&name, 1).await;
    let grant = c.granted(&name, 1).await;
    assert_eq!(grant.number, Some(0));
    assert!(grant.floor > Some(floors[0]));

    let set = async |permits: u32, version| {
        let op = Op::SetLimit {
            permits: permits.try_into().unwrap(),
            if_version: Some(version),
            keep: Duration::ZERO,
        };
        a.apply(leasehold::__private::store::Request::new(key(&name), op))
            .await
    };
    a.join(numbered(2)).await;
    assert_eq!(set(3, 0).await, Outcome::Stored);
    assert_eq!(set(5, 0).await, Outcome::Outdated);
    assert_eq!(a.granted(&name, 2).await.number, Some(2));
    assert_eq!(set(1, 1).await, Outcome::Stored);
    // It takes nothing, and is for those who come later.
    assert_eq!(b.apply(renew(&name, 1)).await, Outcome::Kept);
    for (client, number) in [(&b, 1), (&c, 1)] {
        client.release(&name, number).await;
    }
    b.is_not_queued(permits(acquire(&name, 3), 1, 2)).await;
    a.release(&name, 2).await;
    take(&b, &name, 4, 1, 2).await;
    b.release(&name, 4).await;
}
