//! The queue of a store, below the driver.

use std::time::Duration;

use leasehold::__private::store::{Event, Request};
use leasehold::ErrorKind;
use leasehold_core::{Notice, Op, Outcome, Removal, Ttl};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::{is_subscribed, nothing_is_left};
use crate::readings::Readings as _;
use crate::store_client::{
    StoreClient, TAKEN_OVER, acquire, applied_at, block, enter, granted, key, lasting, release,
    release_after, renew, revoke, space, wait,
};
use crate::waiters::SOON;

const ACCEPTANCE: Duration = Duration::from_secs(3);

/// Two clients of one store handle, and one of another.
async fn clients(fixture: &Fixture) -> [StoreClient; 3] {
    let (one, other) = (fixture.store().await, fixture.store().await);
    [&one, &one, &other].map(|store| StoreClient::unique(store).subscribed(&space()))
}

pub(super) async fn a_release_grants_to_the_head_and_notifies_the_next(fixture: Fixture) {
    let [holder, near, far] = clients(&fixture).await;
    for waiter in [near, far] {
        let name = fresh_name("grant");
        let first = holder.acquire(&name, 1).await;
        for _ in 0..2 {
            // A repetition keeps its position.
            assert_eq!(waiter.wait(&name, 1).await, 0);
        }
        assert_eq!(waiter.wait(&name, 2).await, 1);
        waiter.no_notices();
        let request = holder.own(release(&name, 1));
        let (released, now) = applied_at(&*holder.store, request).await;
        assert_eq!(released, Outcome::Released);
        let grant = waiter.granted(&name, 1).await;
        assert_eq!((grant.ttl.as_duration(), grant.now), (ACCEPTANCE, now));
        assert!(grant.first.get() > first);
        let (lease, ttl) = (waiter.lease(2), grant.ttl);
        let next = Event::Notice(key(&name), Notice::Next { lease, ttl });
        waiter.until_event(&next).await;
        let inspect = async || holder.store.inspect(&key(&name)).await.unwrap().unwrap();
        let entry = inspect().await;
        assert_eq!((entry.lease, entry.count), (waiter.lease(1), 1));
        assert_eq!(entry.token, Some(grant.first));
        assert!(entry.time_left <= ACCEPTANCE);

        // From here on it is a lease like any other.
        assert_eq!(waiter.acquire(&name, 1).await, grant.first.get());
        assert_eq!(waiter.apply(renew(&name, 1)).await, Outcome::Kept);
        assert!(inspect().await.time_left > ACCEPTANCE);
        waiter.release(&name, 1).await;
        assert!(waiter.granted(&name, 2).await.first > grant.first);
        waiter.release(&name, 2).await;
        nothing_is_left(&fixture, &key(&name), &[]).await;
        for client in [&holder, &waiter] {
            client.apply(renew(&name, 9)).await;
            client.no_notices();
        }
    }
}

/// Until then no request of the lease that has ended changes it.
pub(super) async fn the_end_of_a_minimum_hold_is_notified_to_the_head_before(fixture: Fixture) {
    let [_, holder, waiter] = clients(&fixture).await;
    let (name, duration) = (fresh_name("min-hold"), Duration::from_secs(5));
    holder.acquire(&name, 1).await;
    assert_eq!(waiter.wait(&name, 2).await, 0);
    let request = lasting(release_after(&name, 1), duration);
    assert_eq!(holder.apply(request).await, Outcome::Released);
    let (lease, ttl) = (waiter.lease(2), Ttl::checked(duration).unwrap());
    let next = Event::Notice(key(&name), Notice::Next { lease, ttl });
    waiter.until_event(&next).await;
    for late in [renew, release_after].map(|request| request(&name, 1)) {
        assert_eq!(holder.apply(late).await, TAKEN_OVER);
    }
    holder.is_not_queued(acquire(&name, 1)).await;
    waiter.no_notices();
    let ended = async || holder.store.inspect(&key(&name)).await.unwrap().is_none();
    eventually_async(SOON, ended).await;
    assert_eq!(holder.apply(renew(&name, 1)).await, TAKEN_OVER);
    waiter.granted(&name, 2).await;
    waiter.release(&name, 2).await;
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

/// A hundred leases of three clients wait. Some leave by one of the operations that do that.
pub(super) async fn the_queue_is_served_in_its_order(fixture: Fixture) {
    let clients = clients(&fixture).await;
    // Irregular, so that the next client does not follow from the one before.
    let client = |number: u64| &clients[usize::try_from(number * number / 3 % 3).unwrap()];
    let name = fresh_name("order");
    clients[0].acquire(&name, 1_000).await;
    for number in 0..100 {
        let position = client(number).wait(&name, number).await;
        assert_eq!(u64::from(position), number);
    }
    let leaving = [release(&name, 20), renew(&name, 40), enter(&name, 60, 2)];
    for (number, request) in (20..).step_by(20).zip(leaving) {
        assert_eq!(client(number).apply(request).await, TAKEN_OVER);
    }
    clients[0].release(&name, 1_000).await;
    let mut last = 0;
    for number in (0..100).filter(|number| ![20, 40, 60].contains(number)) {
        let grant = client(number).granted(&name, number).await;
        assert!(grant.first.get() > last);
        last = grant.first.get();
        clients[1].is_not_queued(acquire(&name, 2_000)).await;
        client(number).release(&name, number).await;
    }
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

/// The holder's lease ends by itself. The next operation, of whatever kind, finds the lock free.
pub(super) async fn any_operation_on_a_free_lock_grants_it_to_the_head(fixture: Fixture) {
    let [holder, other, waiter] = clients(&fixture).await;
    let expired = async |waiter: &StoreClient| {
        let name = fresh_name("expired");
        let short = lasting(acquire(&name, 1), Duration::from_secs(2));
        holder.apply(short).await;
        assert_eq!(waiter.wait(&name, 2).await, 0);
        let key = key(&name);
        let ended = async || holder.store.inspect(&key).await.unwrap().is_none();
        eventually_async(SOON, ended).await;
        name
    };
    let operations: [fn(&str) -> Request; 5] = [
        |name: &str| acquire(name, 9),
        |name: &str| renew(name, 9),
        |name: &str| release(name, 9),
        |name: &str| enter(name, 9, 1),
        revoke,
    ];
    for operation in operations {
        let name = expired(&waiter).await;
        let outcome = other.apply(operation(&name)).await;
        let fits = match &outcome {
            Outcome::Refused { queue_position, .. } => queue_position.is_none(),
            Outcome::Revoked(leases) => leases.is_empty(),
            other => *other == TAKEN_OVER,
        };
        assert!(fits, "{outcome:?}");
        waiter.granted(&name, 2).await;
        waiter.release(&name, 2).await;
    }
    // One of another kind does so, too. Without a living waiter, it finds the name free.
    let dead = StoreClient::unique(&other.store);
    for (waiter, is_alive) in [(&waiter, true), (&dead, false)] {
        let name = expired(waiter).await;
        let reset = Request::new(key(&name), Op::Remove(Removal::Latch));
        if is_alive {
            let error = other.rejected(reset).await;
            assert_eq!(error.kind(), ErrorKind::Conflict);
            waiter.granted(&name, 2).await;
            waiter.release(&name, 2).await;
        } else {
            assert_eq!(other.apply(reset).await, Outcome::Removed(false));
        }
        nothing_is_left(&fixture, &key(&name), &[]).await;
    }
    // The reply to the head is its grant.
    let name = expired(&waiter).await;
    waiter.acquire(&name, 2).await;
    waiter.release(&name, 2).await;
    waiter.no_notices();
    nothing_is_left(&fixture, &key(&name), &[]).await;
}

pub(super) async fn a_grant_has_the_block_and_at_most_the_ttl_of_its_waiter(fixture: Fixture) {
    let [a, _, b] = clients(&fixture).await;
    let name = fresh_name("block");
    let first = granted_block(&a, &name).await;
    // A repetition reserves nothing.
    assert_eq!(granted_block(&a, &name).await, first);
    // Shorter than the time for an acceptance.
    let short = Duration::from_millis(2_500);
    b.join(lasting(block(wait(&name, 1), 256), short)).await;
    a.release(&name, 1).await;
    let grant = b.granted(&name, 1).await;
    assert_eq!(grant.ttl.as_duration(), short);
    assert!(grant.first.get() > first + 255);
    b.apply(release(&name, 1)).await;
    assert!(a.acquire(&name, 2).await > grant.first.get() + 255);
    a.release(&name, 2).await;
}

pub(super) async fn a_revocation_notifies_the_holder_and_the_head(fixture: Fixture) {
    let [one, near, far] = clients(&fixture).await;
    for [holder, waiter] in [[&one, &near], [&near, &one], [&one, &far], [&far, &one]] {
        let name = fresh_name("revoked");
        holder.acquire(&name, 1).await;
        assert_eq!(waiter.wait(&name, 1).await, 0);
        let lease = holder.lease(1);
        let revoked = Outcome::Revoked(vec![lease]);
        assert_eq!(waiter.apply(revoke(&name)).await, revoked);
        let notice = Event::Notice(key(&name), Notice::Revoked { lease });
        holder.until_event(&notice).await;
        waiter.granted(&name, 1).await;
        waiter.release(&name, 1).await;
    }
}

/// They never subscribed, or do so no longer.
pub(super) async fn waiters_that_cannot_be_notified_are_passed_over(fixture: Fixture) {
    let [holder, near, far] = clients(&fixture).await;
    let name = fresh_name("unsubscribed");
    for living in [true, false] {
        holder.acquire(&name, 1).await;
        let [a, b, c, d] = [&near, &far, &near, &far].map(|of| StoreClient::unique(&of.store));
        let dead = [a, b, c.subscribed(&space()), d.subscribed(&space())];
        for (position, client) in (0..).zip(&dead) {
            assert_eq!(client.wait(&name, 1).await, position);
        }
        if living {
            assert_eq!(near.wait(&name, 1).await, 4);
        }
        for client in &dead[2..] {
            client.unsubscribe();
            eventually_async(SOON, async || {
                holder.apply(renew(&name, 1)).await;
                !is_subscribed(&fixture, "app", client.id)
            })
            .await;
        }
        holder.release(&name, 1).await;
        if living {
            near.granted(&name, 1).await;
            near.release(&name, 1).await;
        }
        nothing_is_left(&fixture, &key(&name), &[]).await;
    }
}

async fn granted_block(client: &StoreClient, name: &str) -> u64 {
    let request = client.own(block(acquire(name, 1), 256));
    granted(&*client.store, request).await
}
