//! The time of jobs, while the time of their document stands still.

use leasehold_core::Token;
use leasehold_core::job::{Completion, Due, JobSchedule, Period, due};
use leasehold_core::record::{NewNote, Run, Unless};

use super::*;

const PERIOD: Duration = Duration::from_secs(3_600);

fn schedule() -> JobSchedule {
    JobSchedule {
        period: Period::checked(PERIOD).unwrap(),
        anchor: None,
    }
}

fn acquire_run(lease: LeaseId) -> Op {
    Op::Acquire(Acquire {
        wait: true,
        unless: Some(unless()),
        ..Acquire::mutex(lease, Ttl::checked(TTL).unwrap())
    })
}

fn unless() -> Unless {
    Unless::Period {
        schedule: schedule(),
        asked: Duration::ZERO,
    }
}

/// The record of a run that ends a period later.
fn completion(run: &Run) -> NewNote {
    let Due::Run(slots) = due(None, schedule(), run.requested_at, run.requested_at) else {
        panic!("it is the first one");
    };
    let completion = Completion {
        slots: Some(slots),
        requested_at: run.requested_at,
        started_at: run.requested_at,
        finished_at: run.requested_at.after_span(PERIOD),
        keep: None,
        exit_code: 0,
        host: String::new(),
        program: String::new(),
        path: None,
        label: String::new(),
    };
    NewNote {
        slot: unless().slot(),
        token: Token::new(1).unwrap(),
        number: 1,
        text: completion.to_text().into(),
        keep: PERIOD * 10,
    }
}

/// The run before takes longer than the period, and its holder and a waiter write in turn.
#[tokio::test(start_paused = true)]
async fn a_run_of_the_next_period_is_not_taken_for_the_one_that_goes_on() {
    let [holder, waiter, next] = clients(&InMemory::notifying());
    let Outcome::Granted { run: Some(run), .. } = holder.apply(acquire_run(holder.lease)).await
    else {
        panic!("it is free");
    };
    let everybody = [&holder, &waiter, &next];
    for _ in 0..PERIOD.as_secs() / (TTL / 2).as_secs() {
        pass(&everybody, TTL / 4);
        holder.renews().await;
        pass(&everybody, TTL / 4);
        waiter.apply(wait(waiter.lease)).await;
    }
    // It leaves.
    waiter.apply(Op::release(waiter.lease)).await;
    let refused = next.apply(acquire_run(next.lease)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    let release = Op::Release {
        lease: holder.lease,
        rest: None,
        note: Some(completion(&run)),
    };
    assert_eq!(holder.apply(release).await, Outcome::Released);
    // It was granted the lock, and not told that its run is complete.
    next.renews().await;
}

/// A run inside a lock that its owner holds is decided by what is read.
#[tokio::test(start_paused = true)]
async fn a_reading_has_the_time_of_the_calendar() {
    let [holder, waiter] = clients(&InMemory::notifying());
    assert!(holder.acquires().await);
    for _ in 0..4 {
        pass(&[&holder, &waiter], TTL / 4);
        holder.renews().await;
        pass(&[&holder, &waiter], TTL / 4);
        waiter.apply(wait(waiter.lease)).await;
    }
    let view = holder.view(Parts::State(unless().slot())).await;
    let lag = view.now.unwrap().until(view.calendar.unwrap());
    assert!(lag > TTL / 2, "{lag:?}");
}
