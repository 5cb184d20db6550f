//! Explores every variant of the models and prints the results, as a table in Markdown.
//!
//! `model [--short] [--traces] [PART OF A VARIANT]`. Exits with 1 if a result is not the expected one.

use std::process::ExitCode;
use std::time::Instant;

use leasehold_sim::model::rows::{Extent, rows};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let extent = match has("--short") {
        true => Extent::Short,
        false => Extent::Full,
    };
    let part = args.iter().find(|arg| !arg.starts_with('-'));
    let mut code = ExitCode::SUCCESS;
    println!("| variant | states | holds or breaks, in how many steps | independent model |");
    println!("|---|---:|---|---|");
    for row in rows(extent) {
        if part.is_some_and(|part| !row.what.contains(part.as_str())) {
            continue;
        }
        let began = Instant::now();
        let report = row.explore(None);
        eprintln!("{}: {:.1?}", row.what, began.elapsed());
        let violated = report.violated.iter();
        let violated = violated.map(|(property, trace)| format!("{property} {}", trace.len()));
        let result = match violated.collect::<Vec<_>>().join(", ").as_str() {
            "" => "holds".to_owned(),
            violated => format!("**breaks**: {violated}"),
        };
        let states = grouped(report.states);
        let what = row.what;
        match row.independent {
            "" => println!("| {what} | {states} | {result} | |"),
            independent => println!("| {what} | {states} | {result} | {independent} |"),
        }
        if has("--traces") {
            eprintln!("{:#?}", report.violated);
        }
        for fault in row.faults(&report) {
            eprintln!("{}: {fault}", row.what);
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// A number with its digits in groups of three.
fn grouped(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", grouped(number / 1_000), number % 1_000),
    }
}
