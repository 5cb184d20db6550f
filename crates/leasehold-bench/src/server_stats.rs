//! The work of a Redis server, by its own count.

use std::ops::Add;
use std::time::Duration;

/// The commands that run scripts.
const RUN_SCRIPTS: [&str; 3] = ["cmdstat_eval", "cmdstat_evalsha", "cmdstat_fcall"];

/// The command with which each observation asks for the role of the server.
const ASKS_FOR_ROLE: &str = "cmdstat_hello";

/// The work of a server, for all its clients, since it was started or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerStats {
    /// Its processor time, its own and the kernel's on its behalf.
    pub(crate) cpu: Duration,
    /// The number of scripts that it ran.
    pub(crate) script_calls: u64,
    /// The time in them, without reading and writing sockets.
    pub(crate) script_time: Duration,
    /// How often a name was read for its observers. New connections also count.
    pub(crate) readings: u64,
    /// The bytes that it has allocated, or by how many more these are than before.
    pub(crate) memory: u64,
}

impl ServerStats {
    /// Parses replies of `INFO`. Unknown lines are left out.
    pub(crate) fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut stats = Self::default();
        for (name, value) in lines.filter_map(|line| line.trim_end().split_once(':')) {
            let number = |wanted: &str| {
                let mut fields = value.split(',').filter_map(|field| field.split_once('='));
                let found = fields.find(|(name, _)| *name == wanted);
                found
                    .and_then(|(_, number)| number.parse().ok())
                    .unwrap_or(0)
            };
            match name {
                "used_cpu_sys" | "used_cpu_user" => {
                    let seconds = value.parse().unwrap_or(0.0);
                    stats.cpu += Duration::try_from_secs_f64(seconds).unwrap_or_default();
                }
                _ if RUN_SCRIPTS.contains(&name) => {
                    stats.script_calls += number("calls");
                    stats.script_time += Duration::from_micros(number("usec"));
                }
                "used_memory" => stats.memory = value.parse().unwrap_or(0),
                ASKS_FOR_ROLE => stats.readings += number("calls"),
                _ => {}
            }
        }
        stats
    }

    /// The work since an earlier moment. Nothing where the counters were reset meanwhile.
    #[must_use]
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            script_calls: self.script_calls.saturating_sub(earlier.script_calls),
            script_time: self.script_time.saturating_sub(earlier.script_time),
            readings: self.readings.saturating_sub(earlier.readings),
            memory: self.memory.saturating_sub(earlier.memory),
        }
    }
}

impl Add for ServerStats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            script_calls: self.script_calls + other.script_calls,
            script_time: self.script_time + other.script_time,
            readings: self.readings + other.readings,
            memory: self.memory + other.memory,
        }
    }
}
