//! The observers of a client: the host of their readings.

use std::time::Duration;

use leasehold_core::reading::{ReadAction, ReadReply, Subscription, Update};
use leasehold_core::{Instant, LeaderFilter, Reading};

use super::calls::{Calls, Context};
use super::report::{Occurrence, Violation};
use super::setup::Mutation;
use super::values::{Observed, Value, value};

/// How many observers a client has.
const OBSERVERS: usize = 2;

#[derive(Debug)]
pub(super) struct Observing {
    reading: Reading<Observed>,
    observers: Vec<Observer>,
    /// The request whose state the store will push a change of.
    current: Option<u64>,
    pause_ends: Option<Instant>,
    /// When a new observer takes the place of another one.
    replaced_at: Instant,
    /// The longest time between two of them.
    interval: Duration,
}

#[derive(Clone, Debug)]
struct Observer {
    subscription: Subscription,
    /// The time of the simulation at which it subscribed.
    since: u64,
    filter: LeaderFilter,
    /// The value of its last report. `None`: there was no leader, or none with a value.
    reported: Option<Value>,
    /// The last value in any of its reports.
    latest: Option<Value>,
}

impl Observing {
    pub(super) fn new(interval: Duration, cx: &Context<'_>) -> Self {
        let mut reading = Reading::new(cx.now);
        let observers = (0..OBSERVERS).map(|_| Observer::new(&mut reading, cx));
        Self {
            observers: observers.collect(),
            reading,
            current: None,
            pause_ends: None,
            replaced_at: cx.now,
            interval,
        }
    }

    pub(super) fn next_timeout(&self) -> Instant {
        let next = self.reading.next_timeout();
        let next = next.into_iter().chain(self.pause_ends).min();
        next.map_or(self.replaced_at, |next| next.min(self.replaced_at))
    }

    /// Whether each observer reports this leader and its value.
    pub(super) fn reports(&self, value: Option<Value>) -> bool {
        let mut observers = self.observers.iter();
        observers.all(|observer| observer.reported == value)
    }

    pub(super) fn handle_timer(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        if self.pause_ends.take_if(|at| *at <= cx.now).is_some() {
            self.reading.end_pause();
        }
        if self.replaced_at <= cx.now {
            self.replaced_at = cx.now.after(cx.part(self.interval));
            self.observers.remove(0);
            let mut observer = Observer::new(&mut self.reading, cx);
            if let Some(other) = self.observers.first()
                && cx.setup.has(Mutation::SharesOldReadings)
            {
                observer.subscription = other.subscription.clone();
            }
            self.observers.push(observer);
        }
        self.poll(calls, cx);
    }

    /// The store has pushed a change of the state that this request has read.
    pub(super) fn handle_push(&mut self, number: u64, calls: &mut Calls, cx: &mut Context<'_>) {
        if self.current == Some(number) && !cx.setup.has(Mutation::IgnoresPushes) {
            self.reading.handle_push();
            self.poll(calls, cx);
        }
    }

    /// There is a new connection: the store cannot push a change any longer.
    pub(super) fn interrupted(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        if !cx.setup.has(Mutation::IgnoresPushes) {
            self.reading.handle_push();
        }
        self.poll(calls, cx);
    }

    pub(super) fn handle_reply(
        &mut self,
        number: u64,
        observed: Observed,
        calls: &mut Calls,
        cx: &mut Context<'_>,
    ) {
        let time_left = observed.holder.map(|(_, left)| left);
        let reply = ReadReply::State {
            result: observed,
            pushes: cx.setup.has_queue(),
            time_left: time_left.filter(|_| !cx.setup.has(Mutation::NoReadAtEnd)),
        };
        self.reading.handle_reply(reply, cx.now);
        self.current = Some(number);
        self.poll(calls, cx);
    }

    pub(super) fn handle_no_reply(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        if !cx.setup.has(Mutation::NoRepeatedRead) {
            self.reading.handle_reply(ReadReply::Failed(None), cx.now);
            self.poll(calls, cx);
        }
    }

    fn poll(&mut self, calls: &mut Calls, cx: &mut Context<'_>) {
        for observer in &mut self.observers {
            while let Some(update) = self.reading.next(&mut observer.subscription, cx.now) {
                match update {
                    Update::Read(observed) => observer.observe(&observed, cx),
                    Update::Silence(_) => cx.report.count(Occurrence::Silence),
                }
            }
        }
        self.pause_ends = match self.reading.poll(cx.now) {
            ReadAction::Read => {
                self.current = None;
                calls.read(cx);
                None
            }
            ReadAction::Pause(pause) => Some(cx.now.after(pause)),
            ReadAction::Wait => None,
        };
    }
}

impl Observer {
    fn new(reading: &mut Reading<Observed>, cx: &Context<'_>) -> Self {
        Self {
            subscription: reading.subscribe(),
            since: cx.time,
            filter: LeaderFilter::default(),
            reported: None,
            latest: None,
        }
    }

    fn observe(&mut self, observed: &Observed, cx: &mut Context<'_>) {
        let is_new = self.since <= observed.at;
        cx.values.require(is_new, Violation::OldReading);
        let (lease, value_read) = (observed.lease(), observed.value.as_ref());
        let Some(leader) = self.filter.handle(lease, value_read) else {
            return;
        };
        self.reported = leader.as_ref().and_then(value);
        if self.reported.is_some() {
            let is_later = self.latest <= self.reported;
            cx.values.require(is_later, Violation::ValueWentBack);
            self.latest = self.reported;
        }
    }
}
