//! Explores every variant of the models and prints the results, as a table in Markdown.
//!
//! `model [--short] [--traces] [PART OF A VARIANT]`. Exits with 1 if a result is not the expected one.

use std::process::ExitCode;
use std::time::Instant;

use leasehold_sim::model::explore::{Report, Until};
use leasehold_sim::model::rows::{Extent, Row, rows};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let extent = match has("--short") {
        true => Extent::Short,
        false => Extent::Full,
    };
    let part = args.iter().find(|arg| !arg.starts_with('-'));
    let mut faults = Vec::new();
    println!("| variant | states | holds or breaks, in how many steps | independent model |");
    println!("|---|---:|---|---|");
    for row in rows(extent) {
        if part.is_some_and(|part| !row.what.contains(part.as_str())) {
            continue;
        }
        let began = Instant::now();
        let report = row.explore(Until::Done);
        eprintln!("{}: {:.1?}", row.what, began.elapsed());
        println!("{}", line(&row, &report));
        if has("--traces") {
            for (property, trace) in &report.violated {
                eprintln!("{property}:\n{trace}");
            }
        }
        faults.extend(row.faults(&report));
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    ExitCode::from(u8::from(!faults.is_empty()))
}

fn line(row: &Row, report: &Report) -> String {
    let mut violated: Vec<_> = report.violated.iter().collect();
    violated.sort_by_key(|(property, _)| *property as u8);
    let violated = violated.iter();
    let violated = violated.map(|(property, trace)| format!("{property} {}", trace.0.len()));
    let violated: Vec<_> = violated.collect();
    let result = match violated.is_empty() {
        true => "holds".to_owned(),
        false => format!("**breaks**: {}", violated.join(", ")),
    };
    let states = grouped(report.states);
    let independent = row.independent.unwrap_or("");
    format!("| {} | {states} | {result} | {independent} |", row.what)
}

/// A number with its digits in groups of three.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
