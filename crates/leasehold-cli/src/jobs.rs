//! `leasehold jobs`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Completion, LockInfo};

use crate::args::{JobsArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::{self, Failure};
use crate::{duration, json, misplaced, output, release, shell};

/// How many other records of a name are named.
const OTHERS_MAX: usize = 5;

/// A period for calls that do not depend on it: the record of a periodic job has its own.
pub(crate) const ANY_PERIOD: Duration = Duration::from_secs(1);

/// The offsets of time zones from UTC: they are multiples of the step.
const OFFSET_STEP: Duration = Duration::from_secs(15 * 60);
const OFFSET_MAX: Duration = Duration::from_secs(14 * 60 * 60);

/// How far from such an offset a run may begin.
const START_TOLERANCE: Duration = Duration::from_secs(3 * 60);

/// The column that is cut to the width of the terminal.
const BY: usize = 5;

pub(crate) async fn jobs(args: &JobsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    if let Some(name) = &args.reset {
        return reset(args, name, &client, store).await;
    }
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    for record in client.completion_records().await? {
        match record {
            Ok(run) => runs.push(run),
            Err(name_and_key) => unreadable.push(name_and_key),
        }
    }
    let now = SystemTime::now();
    let (mut missing, mut checked) = (Vec::new(), 0);
    if let Some(names) = &args.check {
        let is_checked = |name: &String| names.is_empty() || names.contains(name);
        let is_of_key = |run: &Completion| args.key.is_none() || run.key == args.key;
        runs.retain(|run| is_checked(&run.name) && is_of_key(run));
        unreadable.retain(|(name, key)| is_checked(name) && *key == args.key);
        let key = args.key.as_deref();
        (missing, checked) = check(names, key, &runs, &unreadable, now, &client, store).await?;
    }
    for (name, key) in &unreadable {
        note!(
            "leasehold: {}: its record cannot be read, at {}; it is of a newer version or was damaged, and {} removes it",
            describe(name, key.as_deref()),
            client.store(),
            reset_command(name, key.as_deref(), store)
        );
    }
    if args.json {
        json::print(&json::object! {
            store: client.store().to_string(),
            jobs: &runs,
            missing: &missing,
        })?;
    } else if args.prometheus {
        output::print_line(&metrics(&runs))?;
    } else if args.check.is_some() {
        // It is for a timer, which mails what is printed.
    } else if runs.is_empty() {
        let place = store.full_place(client.store());
        note!("no completed runs are recorded in {place}");
    } else {
        output::print_line(&table(&runs, now, &client).await)?;
    }
    Ok(checked)
}

/// Prints which of these runs, the periodic ones or those for a key, are overdue, and which names have none. Returns
/// these names, and the exit code.
async fn check<'a>(
    names: &'a [String],
    key: Option<&str>,
    runs: &[Completion],
    unreadable: &[(String, Option<String>)],
    now: SystemTime,
    client: &Client,
    store: &StoreArgs,
) -> Result<(Vec<&'a str>, u8), Failure> {
    let is_of_kind = |run: &&Completion| key.is_some() || run.period.is_some();
    let of_kind: Vec<_> = runs.iter().filter(is_of_kind).collect();
    let overdue = of_kind.iter().copied();
    let overdue: Vec<_> = overdue.filter(|run| run.is_overdue(now)).collect();
    let is_missing = |name: &&str| !of_kind.iter().any(|run| run.name == **name);
    let missing = names.iter().map(String::as_str);
    let missing: Vec<_> = missing.filter(is_missing).collect();
    let is_empty = of_kind.is_empty() && names.is_empty() && unreadable.is_empty();
    for name in &missing {
        misplaced::refuse_text("the name of the job", name)?;
    }
    if let Some(key) = key.filter(|_| is_empty || !missing.is_empty()) {
        misplaced::refuse_text("the key", key)?;
    }
    let for_key = output::optional(" for ", key);
    print_overdue(&overdue, now, client, store).await;
    let place = store.place(client.store());
    let is_unreadable = |name: &str| unreadable.iter().any(|(unreadable, _)| unreadable == name);
    for name in missing.iter().filter(|name| !is_unreadable(name)) {
        match runs.iter().any(|run| run.name == **name) {
            true => note!(
                "leasehold: {name} has completed runs for keys only on record, at {place}; leasehold jobs --check {} --key \
                 KEY checks one",
                shell::quote(name)
            ),
            false => {
                note!("leasehold: {name} has no completed run{for_key} on record, at {place}");
            }
        }
    }
    if is_empty {
        let kind = if key.is_some() { "job" } else { "periodic job" };
        note!("leasehold: no {kind} has a completed run{for_key} on record, at {place}");
    }
    let is_right = overdue.is_empty() && missing.is_empty() && unreadable.is_empty() && !is_empty;
    let code = if is_right { 0 } else { exit::OVERDUE };
    Ok((missing, code))
}

/// Prints which jobs are overdue, and how to remove the record of one that no longer exists.
async fn print_overdue(
    overdue: &[&Completion],
    now: SystemTime,
    client: &Client,
    store: &StoreArgs,
) {
    for run in overdue {
        let ended = now.duration_since(run.finished).unwrap_or_default();
        let next = next(run, now, client).await;
        note!(
            "leasehold: {} is {next}; its last run ended {} ago, by {}{}",
            run.name,
            duration::format(ended),
            place(run),
            before_anchor(run).map_or_else(String::new, |offset| format!(
                "; it began about {} before its anchor, which is in UTC: was a local time meant?",
                duration::format(offset)
            ))
        );
    }
    let (job, name) = match overdue {
        [] => return,
        [run] => (run.name.as_str(), run.name.as_str()),
        _ => ("one of them", "NAME"),
    };
    let reset = reset_command(name, None, store);
    note!("leasehold: if {job} is retired: {reset}");
}

/// The metrics of the periodic jobs, as those that the library records.
fn metrics(runs: &[Completion]) -> String {
    type Time = fn(&Completion) -> Option<SystemTime>;
    let metrics: [(&str, &str, Time); 2] = [
        (
            "leasehold_job_last_success_timestamp_seconds",
            "when the last run of a job ended that said it was complete",
            |run| Some(run.finished),
        ),
        (
            "leasehold_job_overdue_timestamp_seconds",
            "when the next run of a periodic job is overdue",
            Completion::overdue_at,
        ),
    ];
    let mut lines = Vec::new();
    for (metric, help, time) in metrics {
        lines.push(format!("# HELP {metric} {help}\n# TYPE {metric} gauge"));
        for run in runs.iter().filter(|run| run.period.is_some()) {
            let Some(since) = time(run).and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            else {
                continue;
            };
            let name = run.name.replace('\\', r"\\").replace('"', r#"\""#);
            let seconds = since.as_secs_f64();
            lines.push(format!("{metric}{{name=\"{name}\"}} {seconds}"));
        }
    }
    lines.join("\n")
}

async fn reset(
    args: &JobsArgs,
    name: &str,
    client: &Client,
    store: &StoreArgs,
) -> Result<u8, Failure> {
    let key = args.key.as_deref();
    let job = match key {
        Some(key) => client.once(name, key)?,
        None => client.job(name, ANY_PERIOD)?,
    };
    let removed = job.reset().await?;
    if !removed {
        misplaced::refuse_text("the name of the job", name)?;
        key.map_or(Ok(()), |key| misplaced::refuse_text("the key", key))?;
    }
    if args.json {
        json::print(&json::object! {
            store: client.store().to_string(),
            name: name,
            key: key,
            reset: removed,
        })?;
    } else {
        let run = match key {
            Some(key) => format!("the run of {name} for {key}"),
            None => format!("the last run of {name}"),
        };
        let text = match removed {
            true => format!("the record of {run} was removed; the next start runs it"),
            false => format!(
                "there is no record of {run} at {}{}",
                client.store(),
                others(&client.completions().await?, name)
            ),
        };
        let taken = taken(client, name, store).await;
        output::print_line(&output::printable(&format!("{text}{taken}")))?;
    }
    Ok(if removed { 0 } else { exit::NONE })
}

/// What the lock of a job means for its next start, if it is taken.
async fn taken(client: &Client, name: &str, store: &StoreArgs) -> String {
    match holder(client, name).await {
        Some(info) if info.min_hold => format!(
            "; its lock stays taken for {}, unless {} revokes it",
            duration::format(info.time_left),
            release::command(name, store)
        ),
        Some(_) => "; its lock is held: a run that is under way writes a new record".to_owned(),
        None => String::new(),
    }
}

/// The holder of the lock of a job, if there is one and it is known.
async fn holder(client: &Client, name: &str) -> Option<LockInfo> {
    client.mutex(name).ok()?.holder().await.ok()?
}

/// The other records of a name, which may be the intended ones.
fn others(runs: &[Completion], name: &str) -> String {
    let runs = runs.iter().filter(|run| run.name == name);
    let mut others: Vec<_> = runs
        .map(|run| match &run.key {
            Some(key) => format!("--key {}", shell::quote(key)),
            None => "without --key".to_owned(),
        })
        .collect();
    if others.len() > OTHERS_MAX {
        let more = others.split_off(OTHERS_MAX).len();
        others.push(format!("and {more} more"));
    }
    let others = (!others.is_empty()).then(|| others.join(", "));
    output::optional("; recorded: ", others)
}

async fn table(runs: &[Completion], now: SystemTime, client: &Client) -> String {
    let mut rows = Vec::new();
    for run in runs {
        let ended = now.duration_since(run.finished).unwrap_or_default();
        rows.push([
            output::printable(&run.name),
            output::printable(run.key.as_deref().unwrap_or("-")),
            format!("{} ago", duration::format(ended)),
            duration::format(run.took()),
            run.exit_code.to_string(),
            place(run),
            next(run, now, client).await,
        ]);
    }
    let header = ["NAME", "KEY", "ENDED", "TOOK", "EXIT", "BY", "NEXT"];
    let mut table = output::table(header, rows.into_iter(), 2..5);
    output::cut_to_lines(&mut table, BY);
    table.trim_fmt()
}

/// The time of the next run, from now, and whether one that is overdue is under way. That of a key is run again only
/// without its record.
async fn next(run: &Completion, now: SystemTime, client: &Client) -> String {
    let Some(next) = run.next_slot else {
        let kept = run.valid_until.and_then(output::local_date);
        return output::or_dash(kept.map(|date| format!("kept until {date}")));
    };
    match (next.duration_since(now), now.duration_since(next)) {
        (Ok(left), _) => format!("in {}", duration::format(left)),
        (_, Ok(late)) if run.is_overdue(now) => {
            let running = running(client, &run.name).await;
            format!("overdue: {} ago{running}", duration::format(late))
        }
        (_, late) => format!("due {} ago", duration::format(late.unwrap_or_default())),
    }
}

/// Since when and where a job is running, if it is.
async fn running(client: &Client, name: &str) -> String {
    match holder(client, name).await {
        Some(info) if !info.min_hold => {
            let host = info.client.as_ref();
            let host = host.map(|client| output::printable(&client.host));
            let (age, host) = (output::age(&info), output::optional(" on ", host));
            format!(", running now for {age}{host}")
        }
        _ => String::new(),
    }
}

/// How long before the time of the next slot a run began, in whole steps, if that slot is the nearer one and this can be the
/// offset of a time zone: perhaps the anchor is a local time. A start behind its slot by such an offset is counted right.
pub(crate) fn before_anchor(run: &Completion) -> Option<Duration> {
    let before = run.next_slot?.duration_since(run.started).ok()?;
    // Slots without a chosen anchor end half a period before the next one. A run that has waited began behind the end.
    let is_nearer = before < run.period? / 2 && run.started < run.valid_until?;
    let latest = (before + START_TOLERANCE).as_secs();
    let rest = latest % OFFSET_STEP.as_secs();
    let is_offset = before <= OFFSET_MAX && rest <= 2 * START_TOLERANCE.as_secs();
    (is_nearer && is_offset).then(|| Duration::from_secs(latest - rest))
}

/// A job, such as `migrate for v1`.
pub(crate) fn describe(name: &str, key: Option<&str>) -> String {
    format!("{name}{}", output::optional(" for ", key))
}

/// The command that removes a record.
pub(crate) fn reset_command(name: &str, key: Option<&str>, store: &StoreArgs) -> String {
    let key = output::optional(" --key ", key.map(shell::quote));
    let (name, store) = (shell::quote(name), store.options());
    format!("leasehold jobs --reset {name}{key}{store}")
}

/// Where a run was, such as `ci-7, backup.sh ("nightly")`.
pub(crate) fn place(run: &Completion) -> String {
    let label = output::in_parentheses(&run.label);
    output::printable(&format!("{}, {}{label}", run.host, run.program))
}
