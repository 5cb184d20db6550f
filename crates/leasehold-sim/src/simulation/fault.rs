//! Random fault events.

use std::time::Duration;

use super::node::NodeEvent;
use super::{Event, Occurrence, Simulation};

impl Simulation {
    pub(super) fn schedule_faults(&mut self) {
        let ttl = self.ttl.as_duration();
        for machine in 0..self.machines.len() {
            self.schedule(ttl, Event::Fault { machine });
        }
        for node in 0..self.nodes.len() {
            self.schedule(ttl, Event::Node(NodeEvent::Fault(node)));
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
            0..=2 if it.client.is_some() => {
                it.stopped = true;
                self.count(Occurrence::Stopped);
                self.schedule(long, Event::Resume { machine });
            }
            3 => {
                self.kill(machine, undetected);
                self.count(Occurrence::Killed);
                self.schedule(long, Event::Restart { machine });
            }
            4..=6 if it.client.is_some() && it.connected => {
                self.disconnect(machine, undetected);
                let back = self.part(ttl / 3);
                self.schedule(back, Event::Reconnect { machine });
            }
            _ => {}
        }
        let rest = self.part(ttl * 2);
        let next = long + rest + Duration::from_millis(1);
        self.schedule(next, Event::Fault { machine });
    }
}
