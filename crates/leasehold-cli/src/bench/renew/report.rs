//! What was found about renewals. Field names and units stay as they are.

use std::time::Duration;

use leasehold::Guard;
use serde::Serialize;

use super::look::Spent;
use super::pairs::Pairs;
use super::turns::{Turns, Work};
use super::{Findings, Renew, Trouble};
use crate::bench::Scenario;
use crate::bench::figures::{Spread, fine, per, ratio, round};
use crate::exit::Failure;

/// What a run found.
#[derive(Debug, Serialize)]
pub(in crate::bench) struct Report {
    pub(super) scenario: Scenario,
    /// Its URL without a password.
    pub(super) store: String,
    pub(super) leases: u32,
    pub(super) ttl_ms: u64,
    /// How many took the locks at once.
    pub(super) tasks: u16,
    pub(super) threads: u16,
    /// For how long the renewals were watched.
    pub(super) seconds: f64,
    pub(super) taken: Paced,
    pub(super) held: Held,
    pub(super) trouble: Fate,
    /// `None`: the system does not tell.
    pub(super) memory: Option<Memory>,
    /// `None`: there is no server, or it does not tell, or no lease was due in the slices that are
    /// compared.
    pub(super) renewal: Option<Renewal>,
    pub(super) pairs: Beside,
    pub(super) released: Paced,
    /// How many locks of this run are still held in the end.
    pub(super) left: usize,
}

/// All leases taken or released.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Paced {
    pub(super) seconds: f64,
    pub(super) per_second: f64,
}

/// What was used and done while there was nothing to do but renewals.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Held {
    /// The processor time of this process: the part of one core.
    pub(super) process_cpu: f64,
    /// That of the server. `None`: there is none, or it does not tell.
    pub(super) server_cpu: Option<f64>,
    pub(super) renewals: u64,
    /// After what time a lease was renewed again, on average. `None`: none was.
    pub(super) renewed_every_s: Option<f64>,
    /// Script calls at Redis, transactions in SQLite.
    pub(super) calls: Option<u64>,
    pub(super) calls_per_10_s: Option<f64>,
    pub(super) renewals_per_batch: Option<f64>,
    /// How long after they were due batches were sent. `None`: none was.
    pub(super) lag: Option<Spread>,
}

/// What became of the leases while they were held.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Fate {
    pub(super) jeopardy: u64,
    pub(super) lost: u64,
    /// How many were not lost in the end.
    pub(super) held: usize,
}

/// The bytes of the process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) before: u64,
    /// With all locks taken.
    pub(super) taken: u64,
    /// After they were renewed.
    pub(super) renewed: u64,
    /// The guard itself, in the caller's hands.
    pub(super) guard: usize,
    /// What a lease takes beyond it: after they were renewed.
    pub(super) beyond_guard: f64,
    /// The same before the first renewals.
    pub(super) beyond_guard_taken: f64,
}

/// What a renewal costs the server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Renewal {
    pub(super) ours: Cost,
    /// One bare call for each.
    pub(super) bare: Cost,
    /// Ours divided by bare calls.
    pub(super) ratio: CostRatio,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) renewals: u64,
    /// All that the server did.
    pub(super) server_cpu_us: f64,
    /// In scripts only.
    pub(super) script_us: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CostRatio {
    pub(super) server_cpu: f64,
    pub(super) script: f64,
}

/// Another lock and its release.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Beside {
    /// While no leases are held.
    pub(super) alone: Pace,
    /// Beside the renewals.
    pub(super) beside: Pace,
    /// Beside them divided by alone.
    pub(super) ratio: PaceRatio,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Pace {
    pub(super) count: u64,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PaceRatio {
    pub(super) throughput: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Report {
    pub(super) fn new(renew: &Renew, store: String, found: &Findings) -> Self {
        Self {
            scenario: Scenario::Renew,
            store,
            leases: renew.leases,
            ttl_ms: u64::try_from(renew.ttl.as_millis()).unwrap_or(u64::MAX),
            tasks: renew.tasks,
            threads: renew.threads,
            seconds: round(found.watched.spent.span.as_secs_f64()),
            taken: Paced::of(renew.leases, found.taking),
            held: Held::of(renew.leases, found),
            trouble: Fate::of(found.trouble),
            memory: Memory::of(renew.leases, found.resident),
            renewal: Renewal::of(&found.turns),
            pairs: Beside::of(&found.alone, &found.turns.pairs),
            released: Paced::of(renew.leases, found.released.took),
            left: found.released.left,
        }
    }

    /// Whether all leases were held to the end and then gone.
    pub(in crate::bench) fn verdict(&self) -> Result<(), Failure> {
        let all = usize::try_from(self.leases).unwrap_or(usize::MAX);
        let gone = all.saturating_sub(self.trouble.held);
        if gone == 0 && self.trouble.lost == 0 && self.left == 0 {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "leases were not held to their end: {} lost, and {} still there after their release",
            u64::try_from(gone)
                .unwrap_or(u64::MAX)
                .max(self.trouble.lost),
            self.left
        )))
    }
}

impl Paced {
    fn of(leases: u32, took: Duration) -> Self {
        Self {
            seconds: round(took.as_secs_f64()),
            per_second: round(f64::from(leases) / took.as_secs_f64().max(1e-9)),
        }
    }
}

impl Held {
    fn of(leases: u32, found: &Findings) -> Self {
        let (spent, lag) = (&found.watched.spent, Spread::of(&found.watched.lag));
        let seconds = spent.span.as_secs_f64().max(1e-9);
        let core = |cpu: Duration| fine(cpu.as_secs_f64() / seconds);
        let each = per(spent.renewals, leases.into());
        Self {
            process_cpu: core(spent.cpu),
            server_cpu: spent.server.map(|load| core(load.cpu)),
            renewals: spent.renewals,
            renewed_every_s: (each > 0.0).then(|| round(seconds / each)),
            calls: spent.calls,
            calls_per_10_s: spent
                .calls
                .map(|calls| round(per(calls, 1) / seconds * 10.0)),
            renewals_per_batch: batches(spent).map(|batches| round(per(spent.renewals, batches))),
            lag: Some(lag).filter(|lag| lag.count > 0),
        }
    }
}

/// By the library's own count, else every call is one. `None`: there were none.
fn batches(spent: &Spent) -> Option<u64> {
    let counted = Some(spent.batches).filter(|batches| *batches > 0);
    counted.or(spent.calls).filter(|batches| *batches > 0)
}

impl Fate {
    fn of(trouble: Trouble) -> Self {
        Self {
            jeopardy: trouble.jeopardy,
            lost: trouble.lost,
            held: trouble.held,
        }
    }
}

impl Memory {
    fn of(leases: u32, resident: [Option<u64>; 3]) -> Option<Self> {
        let [Some(before), Some(taken), Some(renewed)] = resident else {
            return None;
        };
        let guard = size_of::<Guard>();
        #[allow(clippy::cast_precision_loss)]
        let beyond = |after: u64| {
            let each = per(after.saturating_sub(before), leases.into());
            round((each - guard as f64).max(0.0))
        };
        Some(Self {
            before,
            taken,
            renewed,
            guard,
            beyond_guard: beyond(renewed),
            beyond_guard_taken: beyond(taken),
        })
    }
}

impl Renewal {
    /// While bare renewals are done, ours go on. What they cost is known from the slices in which
    /// there are no others.
    fn of(turns: &Turns) -> Option<Self> {
        let ours = Cost::of(turns.ours.renewals, &turns.ours, [0.0; 2])?;
        let due = per(turns.bare.renewals, 1);
        let others = [ours.server_cpu_us, ours.script_us].map(|us| us * due);
        let bare = Cost::of(turns.bare.bare, &turns.bare, others)?;
        Some(Self {
            ours,
            bare,
            ratio: CostRatio {
                server_cpu: ratio(ours.server_cpu_us, bare.server_cpu_us),
                script: ratio(ours.script_us, bare.script_us),
            },
        })
    }
}

impl Cost {
    /// Of each renewal, in microseconds, without what others cost.
    fn of(renewals: u64, work: &Work, others: [f64; 2]) -> Option<Self> {
        let load = work.server.filter(|_| renewals > 0)?;
        let each = |all: Duration, others: f64| {
            let own = (all.as_secs_f64() * 1e6 - others).max(0.0);
            round(own / per(renewals, 1))
        };
        Some(Self {
            renewals,
            server_cpu_us: each(load.cpu, others[0]),
            script_us: each(load.script_time, others[1]),
        })
    }
}

impl Beside {
    fn of(alone: &Pairs, beside: &Pairs) -> Self {
        let (alone, beside) = (Pace::of(alone), Pace::of(beside));
        Self {
            alone,
            beside,
            ratio: PaceRatio {
                throughput: ratio(beside.per_second, alone.per_second),
                p50: ratio(beside.p50_us, alone.p50_us),
                p99: ratio(beside.p99_us, alone.p99_us),
            },
        }
    }
}

impl Pace {
    fn of(pairs: &Pairs) -> Self {
        let count = pairs.times.count();
        Self {
            count,
            per_second: round(per(count, 1) / pairs.busy.as_secs_f64().max(1e-9)),
            p50_us: pairs.times.quantile_us(0.5),
            p99_us: pairs.times.quantile_us(0.99),
        }
    }
}
