//! Completed runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{
    Annotation, Completion as CompletionRecord, LeaseId, Name, Slot, Slots, StoreTime, Token,
};

/// A completed run of a [`Job`](crate::Job). Its times are those of the store's clock.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// # let _ = client.once("migrate", "v1")?.run(async |_run| Ok::<_, leasehold::Error>(())).await?;
/// for run in client.completions().await? {
///     println!("{} ran on {} and took {:?}", run.name, run.host, run.took());
///     if run.is_overdue(std::time::SystemTime::now()) {
///         println!("the next run is overdue");
///     }
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completion {
    /// The name of the job.
    pub name: String,
    /// The key for which it ran. `None`: a periodic job.
    pub key: Option<String>,
    /// The period. `None`, as for both slots: it ran for a key.
    pub period: Option<Duration>,
    /// The time of the run's slot.
    pub slot: Option<SystemTime>,
    /// The time of the slot after it, which is the next run's.
    pub next_slot: Option<SystemTime>,
    /// The time until which starts belong to this run, so they do not run the job; for a key, the time until which its
    /// record is kept. `None`: not known.
    pub valid_until: Option<SystemTime>,
    /// When the run started.
    pub started: SystemTime,
    /// When the run ended.
    pub finished: SystemTime,
    /// The exit code of the command of `leasehold run`. 0 for other work.
    pub exit_code: u8,
    /// The host of the client that ran it.
    pub host: String,
    /// The program of that client.
    pub program: String,
    /// The path of that program or script. `None`: it is not known. See [`Job::program_path`](crate::Job::program_path).
    #[doc(hidden)]
    pub program_path: Option<String>,
    /// The label of that client.
    pub label: String,
    /// The lease under which it ran.
    pub lease: LeaseId,
    /// The first fencing token of that lease.
    pub token: Token,
}

impl Completion {
    pub(crate) fn new(
        name: &Name,
        kind: &Slot,
        annotation: &Annotation,
        run: &CompletionRecord,
    ) -> Self {
        let time = |of: fn(&Slots, i64) -> Option<StoreTime>, later| {
            let slots = run.slots?;
            let slot = slots.slot_of(run).saturating_add(later);
            of(&slots, slot).map(system_time)
        };
        Self {
            name: name.as_str().to_owned(),
            key: Self::key_of(kind),
            period: run.slots.map(|slots| slots.period.as_duration()),
            slot: time(Slots::time, 0),
            next_slot: time(Slots::time, 1),
            valid_until: match run.keep {
                Some(keep) => Some(system_time(run.finished_at.after_span(keep))),
                None => time(Slots::start_of, 1),
            },
            started: system_time(run.started_at),
            finished: system_time(run.finished_at),
            exit_code: run.exit_code,
            host: run.host.clone(),
            program: run.program.clone(),
            program_path: run.path.clone(),
            label: run.label.clone(),
            lease: annotation.lease,
            token: annotation.token,
        }
    }

    pub(crate) fn key_of(kind: &Slot) -> Option<String> {
        match kind {
            Slot::Key(key) => Some(key.as_str().to_owned()),
            Slot::Value | Slot::Period => None,
        }
    }

    /// How long the run took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.finished
            .duration_since(self.started)
            .unwrap_or_default()
    }

    /// When the next run is overdue: half a period after the time of its slot. `None`: it ran for a key.
    #[must_use]
    pub fn overdue_at(&self) -> Option<SystemTime> {
        self.next_slot?.checked_add(self.period? / 2)
    }

    /// Whether the next run is overdue at this time. Never true for a key.
    #[must_use]
    pub fn is_overdue(&self, now: SystemTime) -> bool {
        self.overdue_at()
            .is_some_and(|overdue_at| now >= overdue_at)
    }
}

fn system_time(time: StoreTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time.as_micros())
}
