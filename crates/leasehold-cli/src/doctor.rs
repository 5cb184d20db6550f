//! `leasehold doctor`.

use leasehold::doctor::{Finding, Report, Severity, postgres_setup};
use leasehold::{Client, Durability};

use crate::args::{DoctorArgs, StoreArgs};
use crate::exit::{self, Failure};
use crate::{connect, json, output};

/// How wide the column of a severity and that of a check are.
const SEVERITY_WIDTH: usize = 9;
const CHECK_WIDTH: usize = 13;

/// The beginning of a command to paste.
const PASTED: &str = "ACL SETUSER";

/// How wide the text beside them is.
const TEXT_WIDTH: usize = 78;

pub(crate) async fn doctor(args: &DoctorArgs, store: &StoreArgs) -> Result<u8, Failure> {
    if args.setup {
        let sql = postgres_setup(args.role.as_deref());
        output::print_line(sql.trim_end())?;
        return Ok(0);
    }
    let durability = args.replicas.map(|count| Durability::Replicas {
        count,
        timeout: args.ttl / 30,
    });
    let mut report = connect::with_settings(store, Client::builder())?
        .ttl(args.ttl)
        .durability(durability.unwrap_or(Durability::None))
        .diagnose(&connect::url(store)?)
        .await
        .map_err(|error| connect::failure(store, error))?;
    if store.store.is_none() {
        // Every other command creates the directory of the default store.
        let findings = &mut report.findings;
        findings.retain(|finding| finding.check != "directory");
    }
    if args.json {
        json::print(&report)?;
    } else {
        output::print_line(&text(&report, store))?;
    }
    Ok(match report.severity() {
        Severity::Danger => exit::DANGERS,
        Severity::Warning | Severity::Unknown => exit::WARNINGS,
        _ => 0,
    })
}

fn text(report: &Report, store: &StoreArgs) -> String {
    let title = format!("{} ({}), {}", report.store, store.origin, store.scope());
    let mut lines = vec![output::printable(&title), String::new()];
    for finding in &report.findings {
        lines.extend(block(finding));
    }
    if let Some(acl) = &report.acl {
        lines.push(String::new());
        lines.push("A Redis user with the rights that locks need, and no others:".to_owned());
        lines.push(format!("  {acl}"));
    }
    lines.push(String::new());
    lines.push(summary(report));
    lines.join("\n")
}

/// A finding, and below it its consequence and its fix.
fn block(finding: &Finding) -> Vec<String> {
    let Finding {
        severity, check, ..
    } = finding;
    let node = finding.node.as_ref().map(|node| format!("{node}: "));
    let observed = format!("{}{}", node.unwrap_or_default(), finding.observed);
    let head = format!("{severity:<SEVERITY_WIDTH$}{check:<CHECK_WIDTH$}");
    let mut lines = wrapped(&observed);
    lines.extend(finding.consequence.iter().flat_map(|text| wrapped(text)));
    lines.extend(finding.fix.iter().flat_map(|fix| fix_lines(fix)));
    let heads = std::iter::once(head.clone()).chain(std::iter::repeat(" ".repeat(head.len())));
    let lines = heads.zip(lines);
    lines
        .map(|(head, line)| format!("{head}{}", output::printable(&line)))
        .collect()
}

/// A fix. A command to paste has a line of its own, however long it is.
fn fix_lines(fix: &str) -> Vec<String> {
    match fix.find(PASTED) {
        None => wrapped(&format!("fix: {fix}")),
        Some(0) => vec![format!("fix: {fix}")],
        Some(at) => {
            let (words, command) = fix.split_at(at);
            let mut lines = wrapped(&format!("fix: {}", words.trim_end()));
            lines.push(command.to_owned());
            lines
        }
    }
}

/// Wraps a text to the width beside the columns.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut();
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= TEXT_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn summary(report: &Report) -> String {
    let count = |severity| {
        let same = report.findings.iter().filter(|f| f.severity == severity);
        same.count()
    };
    let (dangers, warnings) = (count(Severity::Danger), count(Severity::Warning));
    let unknown = count(Severity::Unknown);
    let outcome = match (dangers, warnings) {
        (0, 0) => "no problem found in what was checked",
        (0, _) => "locks may be lost when something else fails",
        _ => "locks would be lost, or cannot be acquired",
    };
    format!(
        "{outcome} ({}, {}, {unknown} unknown, {})",
        output::count(dangers, "danger"),
        output::count(warnings, "warning"),
        output::count(count(Severity::Note), "note")
    )
}
