//! `leasehold jobs`.

use std::time::SystemTime;

use leasehold::{Client, CompletionInfo};

use crate::args::{JobsArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, json, output, shell};

/// There was no record to remove.
const NONE: u8 = 1;

/// How many other records of a name are named.
const OTHERS_MAX: usize = 5;

/// The column that is cut to the width of the terminal.
const BY: usize = 5;

pub(crate) async fn jobs(args: &JobsArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let client = connect(store, Client::builder()).await?;
    if let Some(name) = &args.reset {
        return reset(args, name, &client).await;
    }
    let runs = client.completions().await?;
    let now = SystemTime::now();
    if args.json {
        json::print(&json::Jobs::new(&client, &runs, now))?;
    } else if runs.is_empty() {
        let StoreArgs {
            namespace, tenant, ..
        } = store;
        let store = client.store();
        note!(
            "no completed runs are recorded in namespace {namespace}, tenant {tenant}, at {store}"
        );
    } else {
        output::print_line(&table(&runs, now))?;
    }
    Ok(0)
}

async fn reset(args: &JobsArgs, name: &str, client: &Client) -> Result<u8, Failure> {
    let builder = client.job(name)?;
    let key = args.key.as_deref();
    let removed = match key {
        Some(key) => builder.once(key)?.reset().await?,
        None => builder.reset().await?,
    };
    if args.json {
        json::print(&json::JobsReset::new(client, name, key, removed))?;
    } else {
        let run = match key {
            Some(key) => format!("the run of {name} for {key}"),
            None => format!("the last run of {name}"),
        };
        let text = match removed {
            true => format!("the record of {run} was removed; the next start runs it"),
            false => format!(
                "there is no record of {run}{}",
                others(&client.completions().await?, name)
            ),
        };
        output::print_line(&output::printable(&text))?;
    }
    Ok(if removed { 0 } else { NONE })
}

/// The other records of a name, which may be the intended ones.
fn others(runs: &[CompletionInfo], name: &str) -> String {
    let runs = runs.iter().filter(|run| run.name == name);
    let others: Vec<_> = runs
        .map(|run| match &run.key {
            Some(key) => format!("--key {}", shell::quote(key)),
            None => "without --key".to_owned(),
        })
        .take(OTHERS_MAX)
        .collect();
    match others.is_empty() {
        true => String::new(),
        false => format!("; recorded: {}", others.join(", ")),
    }
}

fn table(runs: &[CompletionInfo], now: SystemTime) -> String {
    let rows = runs.iter().map(|run| {
        let ended = now.duration_since(run.finished).unwrap_or_default();
        [
            output::printable(&run.name),
            output::printable(run.key.as_deref().unwrap_or("-")),
            format!("{} ago", duration::format(ended)),
            duration::format(run.took()),
            run.exit_code.to_string(),
            place(run),
            next(run, now),
        ]
    });
    let header = ["NAME", "KEY", "ENDED", "TOOK", "EXIT", "BY", "NEXT"];
    let mut table = output::table(header, rows, 2..5);
    output::cut_to_lines(&mut table, BY);
    table.trim_fmt()
}

/// The time of the next run, from now.
fn next(run: &CompletionInfo, now: SystemTime) -> String {
    let Some(next) = run.next_slot else {
        return "-".to_owned();
    };
    match (next.duration_since(now), now.duration_since(next)) {
        (Ok(left), _) => format!("in {}", duration::format(left)),
        (_, Ok(late)) if run.is_overdue(now) => format!("overdue: {} ago", duration::format(late)),
        (_, late) => format!("due {} ago", duration::format(late.unwrap_or_default())),
    }
}

/// Where a run was, such as `ci-7, backup.sh ("nightly")`.
pub(crate) fn place(run: &CompletionInfo) -> String {
    let label = match &*run.label {
        "" => String::new(),
        label => format!(" (\"{label}\")"),
    };
    output::printable(&format!("{}, {}{label}", run.host, run.program))
}
