//! `leasehold jobs`.

use std::time::SystemTime;

use leasehold::{Client, CompletionInfo};

use crate::args::{JobsArgs, StoreArgs};
use crate::connect::connect;
use crate::exit::Failure;
use crate::{duration, json, output};

/// There was no record to remove.
const NONE: u8 = 1;

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
        let run = output::printable(&run);
        output::print_line(&match removed {
            true => format!("the record of {run} was removed; its next start runs it"),
            false => format!("there is no record of {run}"),
        })?;
    }
    Ok(if removed { 0 } else { NONE })
}

fn table(runs: &[CompletionInfo], now: SystemTime) -> String {
    let time = |time: SystemTime| output::rfc3339(time).unwrap_or_else(|| "-".to_owned());
    let rows = runs.iter().map(|run| {
        let next = match run.next_slot {
            Some(next) if run.is_overdue(now) => format!("{} (overdue)", time(next)),
            Some(next) => time(next),
            None => "-".to_owned(),
        };
        [
            output::printable(&run.name),
            output::printable(run.key.as_deref().unwrap_or("-")),
            time(run.started),
            time(run.finished),
            duration::format(run.took()),
            run.exit_code.to_string(),
            place(run),
            next,
        ]
    });
    let header = [
        "NAME", "KEY", "STARTED", "ENDED", "TOOK", "EXIT", "BY", "NEXT",
    ];
    output::table(header, rows, 4..6).trim_fmt()
}

/// Where a run was, such as `ci-7, backup.sh ("nightly")`.
pub(crate) fn place(run: &CompletionInfo) -> String {
    let label = match &*run.label {
        "" => String::new(),
        label => format!(" (\"{label}\")"),
    };
    output::printable(&format!("{}, {}{label}", run.host, run.program))
}
