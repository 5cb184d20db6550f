//! Random fault events.

use std::time::Duration;

use super::{Event, Occurrence, Simulation};

impl Simulation {
    /// Lets clients acquire the lock again and again, and faults happen.
    pub(super) fn schedule_random(&mut self) {
        let ttl = self.ttl.as_duration();
        for machine in 0..self.machines.len() {
            let soon = self.part(ttl);
            self.schedule(soon, Event::Acquire { machine });
            self.schedule(ttl, Event::Fault { machine });
        }
        if self.setup.has_queue() {
            let stop = self.part(ttl * 10);
            self.schedule(stop, Event::StopStore);
        }
    }

    /// Stops, kills or disconnects a machine, or does nothing.
    pub(super) fn fault(&mut self, machine: usize) {
        let ttl = self.ttl.as_duration();
        let long = self.part(ttl * 2);
        let undetected = self.rng.bool().then(|| self.part(ttl));
        let it = &mut self.machines[machine];
        match self.rng.u8(0..8) {
            0 | 1 if it.client.is_some() => {
                it.stopped = true;
                self.count(Occurrence::Stopped);
                self.schedule(long, Event::Resume { machine });
            }
            2 => {
                self.kill(machine, undetected);
                self.count(Occurrence::Killed);
                self.schedule(long, Event::Restart { machine });
            }
            3..=5 if it.client.is_some() && it.connected => {
                self.disconnect(machine, undetected);
                let back = self.part(ttl / 3);
                self.schedule(back, Event::Reconnect { machine });
            }
            _ => {}
        }
        let rest = self.part(ttl * 2);
        self.schedule(
            long + rest + Duration::from_millis(1),
            Event::Fault { machine },
        );
    }
}
