//! What a command acquires: a lock, a job that may be complete already, or a leadership.

use std::io::{IsTerminal as _, stderr, stdin, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Completion, Guard};
use tokio::sync::watch;

use super::holder::QUERY_TIMEOUT;
use super::program::Program;
use crate::args::{
    Anchor, JobArgs, LockArgs, OnceCommand, RunArgs, RunCommand, ShareArgs, StoreArgs,
};
use crate::{connect, duration, jobs, output, signals};

/// The reply of a candidate to probes: an error if its command runs although its leadership is lost.
pub(crate) type Health = watch::Sender<Result<&'static str, &'static str>>;

/// The reply while its command does not run.
pub(crate) const FOLLOWING: Result<&str, &str> = Ok("following");

/// Whether a command is run each time, as a job, or as the leader.
pub(crate) enum Plan<'a> {
    /// Each time, perhaps under several locks, or while others also hold the lock.
    Always(&'a ShareArgs),
    /// Once in each period.
    Every(Duration, &'a RunCommand),
    Once(&'a OnceCommand),
    /// As the leader with this value.
    Election(&'a str, &'a Health),
}

impl<'a> Plan<'a> {
    pub(crate) fn of(command: &'a RunCommand) -> Self {
        match command.every {
            None => Self::Always(&command.share),
            Some(period) => Self::Every(period, command),
        }
    }

    /// The names of the further locks that are held.
    pub(super) fn and(&self) -> &'a [String] {
        match self {
            Self::Always(share) => &share.and,
            _ => &[],
        }
    }

    /// The options of a lock that it holds together with others.
    pub(super) fn sharing(&self) -> Option<&ShareArgs> {
        match self {
            Self::Always(share) if share.shared || share.permits.is_some() => Some(share),
            _ => None,
        }
    }

    /// The options of a job. Others rely on it that a run of it which exits with 0 was complete.
    pub(crate) fn job(&self) -> Option<&'a JobArgs> {
        match self {
            Self::Every(_, command) => Some(&command.job),
            Self::Once(command) => Some(&command.job),
            Self::Always(_) | Self::Election(..) => None,
        }
    }

    /// What a refusal costs.
    pub(super) fn cost_of_refusal(&self) -> &'static str {
        match self.job() {
            Some(job) if !job.no_record => "; if the run there fails, this one does not take over",
            _ => "",
        }
    }

    /// Shows to probes, while the command runs under a guard, whether it leads.
    pub(crate) async fn report_health<T>(&self, guard: &Guard) -> T {
        if let Self::Election(_, health) = self {
            health.send_modify(|reply| *reply = Ok("leading"));
            guard.lost().await;
            let lost = "the leadership is lost, and the command still runs";
            health.send_modify(|reply| *reply = Err(lost));
        }
        std::future::pending().await
    }

    /// The command has ended.
    pub(crate) fn ended(&self) {
        if let Self::Election(_, health) = self {
            health.send_modify(|reply| *reply = FOLLOWING);
        }
    }

    /// Prints that the run was complete already. Returns the exit code.
    pub(crate) fn print_completed(
        &self,
        args: &LockArgs,
        program: &Program,
        store: &StoreArgs,
        run: &Completion,
    ) -> u8 {
        let at_terminal = is_at_terminal();
        if at_terminal || !args.quiet || self.other_job(program, run).is_some() {
            let finished = output::rfc3339(run.finished).unwrap_or_default();
            let (job, place) = (describe(run), jobs::place(run));
            note!(
                "leasehold: {job} was completed at {finished} by {place}; the command was not run"
            );
        }
        let until = match self {
            // A slot is no longer than the period, so the next one begins by then.
            Self::Every(period, _) => run.started.checked_add(*period),
            _ => None,
        };
        self.print_other_job(program, run, until);
        if at_terminal {
            let reset = reset(run, store);
            note!("leasehold: to run it all the same, add --no-record, or first: {reset}");
        }
        self.job().and_then(|job| job.done_exit_code).unwrap_or(0)
    }

    /// Prints that the last run under this name was perhaps that of another job, which keeps this one from being run, at the
    /// latest until a time.
    pub(super) fn print_other_job(
        &self,
        program: &Program,
        run: &Completion,
        until: Option<SystemTime>,
    ) {
        if let Some((recorded, this)) = self.other_job(program, run) {
            let until = until.and_then(output::local_time);
            let until = output::optional(
                "; if they are one, the recorded run counts at the latest until ",
                until,
            );
            note!(
                "leasehold: {}: the record is of a run of {recorded}, and this is {this}; if they are two jobs, give one \
                 of them another name{until}",
                describe(run)
            );
        }
    }

    /// The recorded job and this one, if the program, the period or the anchor is another.
    fn other_job(&self, program: &Program, run: &Completion) -> Option<(String, String)> {
        let (period, anchor) = match self {
            Self::Always(_) | Self::Election(..) => return None,
            Self::Every(period, command) => (Some(*period), command.anchor),
            Self::Once(_) => (None, None),
        };
        // The record has whole microseconds.
        let micros = |period: Option<Duration>| period.map(|period| period.as_micros());
        let is_same_period = micros(run.period) == micros(period);
        let anchor = anchor.filter(|anchor| is_same_period && has_other_slots(run, *anchor));
        let programs = program.unless_recorded(run);
        let is_same = programs.is_none() && is_same_period && anchor.is_none();
        let (recorded_program, program) =
            programs.unwrap_or_else(|| (run.program.clone(), program.name.clone()));
        let job = |program: &str, period: Option<Duration>, anchor: Option<String>| {
            let every = output::optional(" --every ", period.map(duration::format));
            let anchor = output::optional(" --anchor ", anchor);
            format!("{program}{every}{anchor}")
        };
        let recorded = anchor.and(run.slot).and_then(output::rfc3339);
        (!is_same).then(|| {
            (
                job(&recorded_program, run.period, recorded),
                job(&program, period, anchor.map(|anchor| anchor.to_string())),
            )
        })
    }

    /// Prints what a run has recorded, at a terminal also for a quiet run. A person who tries a job, perhaps by ssh or as a
    /// unit, must know that the next start may not run it: the first record of a periodic job, and each one at a terminal, is
    /// printed with its slots and how to undo it. Without a terminal, prints always that a trial has recorded nothing: its
    /// line is perhaps in a crontab. Prints that a signal has perhaps ended the run before its work was done, and that a run has
    /// failed, perhaps without output of its own.
    pub(crate) fn print_record(
        &self,
        args: &RunArgs,
        store: &StoreArgs,
        last: Option<&Completion>,
        run: Option<&Completion>,
        signal: Option<i32>,
        code: Option<u8>,
    ) {
        let Some(options) = self.job() else {
            return;
        };
        let at_terminal = is_at_terminal();
        if let (Some(run), Some(signal), false) = (run, signal, args.lock.quiet) {
            note!(
                "leasehold: {} was recorded as complete although it was ended by {}: its command exited with 0",
                describe(run),
                signals::name(signal)
            );
        }
        if let (Some(last), Some(run)) = (last, run) {
            self.print_boundary(last, run);
        }
        if let Some(run) = run.filter(|_| at_terminal || !args.lock.quiet) {
            let (job, store_url) = (describe(run), connect::redacted(store));
            if run.period.is_some() {
                let until = run.valid_until.and_then(output::local_time);
                let until = output::optional(" before ", until);
                note!(
                    "leasehold: {job}: starts{until}, also those of a timer, are skipped: this run is recorded as complete \
                     at {store_url}"
                );
            } else {
                let kept = run.valid_until.and_then(output::local_date);
                let kept = kept.map_or_else(String::new, |date| format!(" (kept until {date})"));
                note!(
                    "leasehold: {job} is recorded as complete at {store_url}{kept}; other starts do not run it"
                );
            }
            let is_explained = at_terminal || last.is_none() && run.period.is_some();
            self.print_slots(run, is_explained);
            if is_explained {
                note!("leasehold: to undo that: {}", reset(run, store));
            }
        } else if options.no_record && !(at_terminal && args.lock.quiet) {
            let nothing = match at_terminal {
                true => {
                    "nothing was recorded; the next start runs it unless it was complete before"
                }
                false => {
                    "--no-record is for a trial: nothing was recorded, and each start runs the job"
                }
            };
            note!("leasehold: {}: {nothing}", args.name);
        } else if let Some(code) = code.filter(|code| *code != 0 && !args.lock.quiet) {
            note!(
                "leasehold: {}: exit code {code}, so the run is not recorded as complete",
                args.name
            );
        }
    }

    /// Prints at a terminal that a run without a schedule was none of the job that has a record under its name.
    pub(crate) async fn print_job_of_name(&self, args: &RunArgs, client: &Client) {
        let is_alone = matches!(self, Self::Always(share) if !share.is_given());
        if !is_alone || args.lock.quiet || !is_at_terminal() {
            return;
        }
        let recorded = tokio::time::timeout(QUERY_TIMEOUT, last_run(client, &args.name)).await;
        if let Ok(Some(run)) = recorded
            && let Some(period) = run.period
        {
            note!(
                "leasehold: {} is also a job of --every {}; this run, without --every, is not recorded as one of it",
                args.name,
                duration::format(period)
            );
        }
    }

    /// Prints, even if it is quiet, that a job without an anchor has run twice at one time of its timer: the starts lie on both
    /// sides of the time at which the next slot begins.
    fn print_boundary(&self, last: &Completion, run: &Completion) {
        let (Self::Every(period, command), Ok(after)) =
            (self, run.started.duration_since(last.started))
        else {
            return;
        };
        if command.anchor.is_none() && last.period == run.period && after < *period / 20 {
            note!(
                "leasehold: {}: the run before this one, by {}, began {} earlier: their starts lie at the boundary between \
                 two runs; set --anchor to the time of the timer",
                run.name,
                jobs::place(last),
                duration::format(after)
            );
        }
    }

    /// Prints the slots of a run if they may be others than its user thinks: those that began with a trial, and those of an
    /// anchor in another zone than the timer. A start at a terminal is not that of a timer.
    fn print_slots(&self, run: &Completion, may_be_trial: bool) {
        let Self::Every(_, command) = self else {
            return;
        };
        let next = run.next_slot.and_then(output::local_time);
        let before_anchor = jobs::before_anchor(run).filter(|_| !is_at_terminal());
        match (command.anchor, next, before_anchor) {
            (None, Some(next), _) if may_be_trial => note!(
                "leasehold: later ones are for the run of {next}; if its timer has another time, undo that, or give the \
                 time by --anchor"
            ),
            (Some(Anchor::TimeOfDay(anchor)), _, Some(offset)) => note!(
                "leasehold: this start is about {} before its anchor {anchor} UTC: was a local time meant?",
                duration::format(offset)
            ),
            _ => {}
        }
    }

    /// Prints which options of a job do not agree with its period.
    pub(super) fn print_conflicts(&self, args: &LockArgs) {
        let (period, job) = match self {
            Self::Every(period, command) if !args.quiet => (*period, &command.job),
            _ => return,
        };
        let every = duration::format(period);
        let least = period * 2 + Duration::from_secs(24 * 60 * 60);
        if let Some(keep) = job.keep.filter(|keep| *keep < least) {
            let (keep, least) = (duration::format(keep), duration::format(least));
            note!(
                "leasehold: --keep {keep} has no effect: the record of --every {every} is kept for {least}"
            );
        }
        if let Some(at_least) = args.at_least.filter(|at_least| *at_least > period) {
            let at_least = duration::format(at_least);
            note!(
                "leasehold: --at-least {at_least} is longer than --every {every}: the runs are {at_least} apart"
            );
        }
    }
}

/// The last run of a periodic job.
async fn last_run(client: &Client, name: &str) -> Option<Completion> {
    let job = client.job(name, jobs::ANY_PERIOD).ok()?;
    job.last_run().await.ok()?
}

/// Whether the slots of a run, which have the period of this start, are at other times than those of an anchor.
fn has_other_slots(run: &Completion, anchor: Anchor) -> bool {
    let micros = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_micros())
    };
    let (Some(slot), Some(period)) = (run.slot, run.period) else {
        return false;
    };
    // An invalid anchor is an error of its own.
    anchor.time(period).is_ok_and(|anchor| {
        let apart = micros(slot).abs_diff(micros(anchor));
        !apart.is_multiple_of(period.as_micros())
    })
}

/// Whether a person runs this, perhaps with a pipe or a file in the place of stderr. A timer has no terminal.
fn is_at_terminal() -> bool {
    stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal()
}

/// The job of a run, such as `migrate for v1`.
fn describe(run: &Completion) -> String {
    jobs::describe(&run.name, run.key.as_deref())
}

/// The command that removes the record of a run.
fn reset(run: &Completion, store: &StoreArgs) -> String {
    jobs::reset_command(&run.name, run.key.as_deref(), store)
}
