//! The scenarios with one fault: how soon the next waiter must hold the lock.

use std::time::Duration;

use leasehold_core::record::queue;
use leasehold_core::{Acquire, Grant, LeaseId, Notice, Op, time};

use super::calls::Payload;
use super::client::{Message, SimulatedClient};
use super::network::Request;
use super::node::max_pause;
use super::{Event, Scenario, Simulation, Violation, nanos};

impl Simulation {
    /// Lets one client hold and the others wait in order, plays the scenario, and checks that the next waiter
    /// is served in time.
    pub(super) fn play(&mut self, scenario: Scenario) -> Result<(), Violation> {
        let ttl = self.ttl.as_duration();
        let waiters = match scenario {
            Scenario::LateRequest => 1,
            _ => self.machines.len() - 1,
        };
        for machine in 0..=waiters {
            self.join_queue(machine, machine)?;
        }
        // The fault may happen at any time between renewals.
        let some = self.part(ttl);
        self.pass(some)?;
        let delay = self.longest_delay();
        // The release and the grant are under way, and perhaps a request and its reply.
        let soon = delay * 4 + Duration::from_millis(2);
        let (next, within) = match scenario {
            Scenario::Random(_) | Scenario::Daily(_) | Scenario::Contention(_) => return Ok(()),
            Scenario::DeadHeads => {
                self.kill(1, None);
                self.kill(2, None);
                self.with(0, SimulatedClient::leave);
                (3, soon)
            }
            Scenario::SilentHead | Scenario::SilentHeadDeadSecond => {
                self.silence_head()?;
                let dead = usize::from(scenario == Scenario::SilentHeadDeadSecond);
                (0..dead).for_each(|_| self.kill(2, None));
                self.with(0, SimulatedClient::leave);
                let accepted = queue::acceptance(self.ttl).as_duration();
                (2 + dead, soon + with_drift(accepted))
            }
            Scenario::DeadHolder => {
                let left = self.time_left();
                self.kill(0, None);
                // The last renewal may have been sent just before.
                (1, soon + with_drift(with_drift(left.max(ttl))))
            }
            Scenario::LostGrant => {
                self.lose_grant()?;
                self.schedule(delay, Event::Reconnect { machine: 1 });
                (1, soon)
            }
            Scenario::LeavingHead | Scenario::RefusedHead => {
                if scenario == Scenario::RefusedHead {
                    self.refuse_to_wait(1)?;
                }
                self.with(1, SimulatedClient::leave);
                self.pass(delay)?;
                self.with(0, SimulatedClient::leave);
                // The release and the grant, and nothing else.
                (2, delay * 2 + Duration::from_millis(1))
            }
            Scenario::LateRequest => {
                self.rejoin_late()?;
                self.join_queue(2, 2)?;
                self.with(0, SimulatedClient::leave);
                (2, soon)
            }
            Scenario::SlowNetwork => {
                self.step_while(|it| it.is_requesting(1))?;
                self.with(0, SimulatedClient::leave);
                (1, soon)
            }
            _ => self.play_watched(scenario, soon)?,
        };
        self.until_holder(next, within)?;
        match scenario {
            Scenario::SlowNetwork => self.check_hold(next),
            Scenario::LongPause | Scenario::NodeRestartInPause => self.check_notified(soon),
            _ => Ok(()),
        }
    }

    /// The holder leaves, and the connection of the head breaks when the store has granted it the lock. Returns the notice.
    fn lose_grant(&mut self) -> Result<Notice, Violation> {
        self.with(0, SimulatedClient::leave);
        let waiting = self.waiting_lease(1);
        loop {
            self.step()?;
            let environment = self.environment();
            let holder = self.record.holders(&environment).next();
            let Some(holder) = holder.filter(|holder| Some(holder.lease) == waiting) else {
                continue;
            };
            let notice = Notice::Granted(Grant {
                lease: holder.lease,
                ttl: queue::acceptance(self.ttl),
                first: holder.first,
                number: None,
                floor: None,
                now: environment.now,
                run: None,
            });
            self.disconnect(1, Some(self.ttl.as_duration()));
            return Ok(notice);
        }
    }

    /// The reply to the completion of a holder is lost, and so is its lease. Then it reaches the store again.
    pub(super) fn lose_note(&mut self) -> Result<(), Violation> {
        self.join_queue(0, 0)?;
        self.step_while(|it| !it.is_holder(0))?;
        let some = self.part(self.ttl.as_duration());
        self.pass(some)?;
        self.with(0, SimulatedClient::complete);
        self.step_while(|it| it.completed.is_empty())?;
        self.disconnect(0, Some(self.ttl.as_duration() * 100));
        self.step_while(|it| it.is_holder(0))?;
        self.reconnect(0);
        while self.step()? {}
        Ok(())
    }

    /// The notice of a grant comes when that has ended, and the client holds by a later one.
    pub(super) fn delay_notice(&mut self) -> Result<(), Violation> {
        self.join_queue(0, 0)?;
        self.join_queue(1, 1)?;
        let notice = self.lose_grant()?;
        self.step_while(|it| it.holder().is_some())?;
        self.reconnect(1);
        self.step_while(|it| !it.is_holder(1))?;
        self.send_message(1, Message::Notice(notice));
        self.check_hold(1)
    }

    /// Checks that a holder still relies on its lease after a while.
    fn check_hold(&mut self, machine: usize) -> Result<(), Violation> {
        let hold = self.machines[machine].hold(self.time);
        self.pass(self.ttl.as_duration() / 10)?;
        let is_kept = self.machines[machine].hold(self.time) == hold;
        is_kept.then_some(()).ok_or(Violation::LostEarly)
    }

    /// Waits until a client holds the lock.
    fn until_holder(&mut self, machine: usize, within: Duration) -> Result<(), Violation> {
        let until = self.time + nanos(within);
        while !self.is_holder(machine) {
            // A grant waits for the reply to a request that is in flight.
            let is_late = self.time > until && !self.is_requesting(machine);
            if is_late || !self.step()? {
                return Err(Violation::NotServed);
            }
        }
        Ok(())
    }

    /// Plays a scenario whose holder a node watches. Returns which machine must hold the lock, and how soon.
    fn play_watched(
        &mut self,
        scenario: Scenario,
        soon: Duration,
    ) -> Result<(usize, Duration), Violation> {
        let (ttl, delay) = (self.ttl.as_duration(), self.longest_delay());
        let longest = max_pause(self.ttl);
        // Only heartbeats show the node that the holder lives.
        self.pass(longest + delay * 6)?;
        let pause = ttl + self.part(ttl * 2);
        let is_planned = self.rng.bool();
        let ends_within = |left| soon + with_drift(with_drift(left));
        Ok(match scenario {
            Scenario::WatchedDeath => {
                if self.rng.bool() {
                    self.machines[0].stopped = true;
                    let some = self.part(ttl);
                    self.pass(some)?;
                }
                self.kill(0, None);
                (1, soon)
            }
            Scenario::PausedLoser => {
                self.disconnect(0, Some(ttl * 100));
                self.step_while(|it| it.is_holder(0))?;
                // The message that unregisters the lease, which is collected with others for 10 ms.
                self.pass(delay * 2 + Duration::from_millis(20))?;
                self.machines[0].stopped = true;
                (1, ends_within(ttl))
            }
            Scenario::LongPause => {
                self.machines[0].stopped = true;
                (1, ends_within(longest + ttl))
            }
            Scenario::NodeRestartInPause => {
                self.machines[0].stopped = true;
                let some = self.part(ttl);
                self.pass(some)?;
                self.restart_node(0, is_planned)?;
                (1, ends_within(ttl))
            }
            _ => {
                if scenario == Scenario::NodeRestart {
                    self.restart_node(0, is_planned)?;
                    // The client connects again, and registers its lease.
                    self.pass(delay * 6 + Duration::from_millis(100))?;
                }
                self.machines[0].stopped = true;
                self.pass(pause)?;
                self.resume(0);
                (0, soon)
            }
        })
    }

    /// The holder that was paused goes on, and is notified soon that its lease has ended.
    fn check_notified(&mut self, soon: Duration) -> Result<(), Violation> {
        self.resume(0);
        self.pass(soon)?;
        let is_notified = self.machines[0].unconfirmed(self.time).is_none();
        is_notified.then_some(()).ok_or(Violation::NotNotified)
    }

    /// Lets a client acquire the lock for as long as it can. It holds it, or waits behind so many.
    fn join_queue(&mut self, machine: usize, waiters: usize) -> Result<(), Violation> {
        let forever = self.ttl.as_duration() * 100;
        self.with(machine, |client, cx| client.acquire(forever, forever, cx));
        self.step_while(|it| it.waiters() < waiters || it.holder().is_none())
    }

    fn waiting_lease(&self, machine: usize) -> Option<LeaseId> {
        let client = self.machines[machine].client.as_ref();
        client.and_then(SimulatedClient::waiting_lease)
    }

    fn is_requesting(&self, machine: usize) -> bool {
        let client = self.machines[machine].client.as_ref();
        client.is_some_and(SimulatedClient::is_requesting)
    }

    pub(super) fn pass(&mut self, duration: Duration) -> Result<(), Violation> {
        let until = self.time + nanos(duration);
        self.step_while(|it| it.time < until)
    }

    /// Processes events for as long as this is true.
    fn step_while(&mut self, is_true: impl Fn(&Self) -> bool) -> Result<(), Violation> {
        while is_true(self) {
            self.step()?;
        }
        Ok(())
    }

    /// The next request of a waiter finds that the store cannot notify it.
    fn refuse_to_wait(&mut self, machine: usize) -> Result<(), Violation> {
        self.machines[machine].can_wait = false;
        for is_requesting in [true, false] {
            self.step_while(|it| it.is_requesting(machine) != is_requesting)?;
        }
        self.machines[machine].can_wait = true;
        Ok(())
    }

    /// From now on no notice reaches the head of the queue, which the store does not detect.
    fn silence_head(&mut self) -> Result<(), Violation> {
        // A request that is in flight would be granted for the full ttl.
        self.step_while(|it| it.is_requesting(1))?;
        if self.rng.bool() {
            self.machines[1].stopped = true;
        } else {
            self.disconnect(1, Some(self.ttl.as_duration() * 100));
        }
        Ok(())
    }

    /// The head gives up, and joins the queue again by an earlier request that comes late.
    fn rejoin_late(&mut self) -> Result<(), Violation> {
        let waiting = self.waiting_lease(1);
        self.with(1, SimulatedClient::leave);
        self.step_while(|it| it.waiters() > 0)?;
        if let Some(lease) = waiting {
            let request = Request {
                machine: 1,
                connection: 0,
                number: 0,
                payload: Payload::Apply(Op::Acquire(Acquire {
                    wait: true,
                    ..Acquire::mutex(lease, self.ttl)
                })),
                late: true,
            };
            self.schedule(Duration::ZERO, Event::Request(request));
        }
        self.step_while(|it| it.waiters() == 0)
    }
}

/// A duration by a clock that may be slow, with its own allowance for that.
pub(super) fn with_drift(duration: Duration) -> Duration {
    duration + time::drift(duration) * 2
}
