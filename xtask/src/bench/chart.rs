//! The figures as a picture: throughput, and beside it how long the unlucky wait.

use std::fmt::Write as _;

use super::figures::Figures;
use super::play::{SCENARIOS, Scenario};
use super::report::span;
use super::{Results, of};

const WIDTH: u32 = 980;
const ROW: u32 = 20;
const LABEL: u32 = 200;
const BAR: f64 = 280.0;
const GAP: u32 = 90;

/// One panel for each scenario, bars on scales of powers of ten.
pub(super) fn draw(results: &Results, machine: &str) -> String {
    let mut body = String::new();
    let mut y = 70;
    for scenario in &SCENARIOS {
        let rows: Vec<_> = of(results, scenario).collect();
        if !rows.is_empty() {
            y = panel(&mut body, scenario, &rows, y);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <style>\n\
         :root {{ color-scheme: light dark }}\n\
         .paper {{ fill: #fff }} text {{ fill: #1f2933 }} .quiet {{ fill: #66737f }}\n\
         .peer {{ fill: #b4bec8 }} .ours {{ fill: #0b7a75 }} .wait {{ fill: #d9b26a }} \
         .oursw {{ fill: #c77d0a }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         .paper {{ fill: #14181d }} text {{ fill: #e4e9ee }} .quiet {{ fill: #93a0ac }}\n\
         .peer {{ fill: #46515c }} .ours {{ fill: #34b8b0 }} .wait {{ fill: #6b5a33 }} \
         .oursw {{ fill: #e0a030 }} }}\n\
         </style>\n\
         <rect class=\"paper\" width=\"{WIDTH}\" height=\"{y}\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"18\" font-weight=\"600\">Locks on one Redis server: \
         Leasehold and others</text>\n\
         <text x=\"20\" y=\"50\" class=\"quiet\">{}; scales are powers of ten</text>\n\
         {body}</svg>\n",
        escape(machine)
    )
}

/// Draws a panel from `y` on, and answers where the next one starts.
fn panel(body: &mut String, scenario: &Scenario, rows: &[(String, &Figures)], mut y: u32) -> u32 {
    let changes = rows.iter().any(|(_, row)| row.change_p50_us.is_some());
    let right = if changes {
        "from release to acquisition in the other, median"
    } else {
        "wait for the lock, 99 of 100 are shorter"
    };
    let second = LABEL + BAR as u32 + GAP;
    let _ = writeln!(
        body,
        "<text x=\"20\" y=\"{}\" font-weight=\"600\">{}: {}</text>\n\
         <text x=\"{LABEL}\" y=\"{}\" class=\"quiet\">acquisitions a second (longer is better)</text>\n\
         <text x=\"{second}\" y=\"{}\" class=\"quiet\">{right} (shorter is better)</text>",
        y + 16,
        scenario.name,
        escape(scenario.what),
        y + 34,
        y + 34,
    );
    y += 42;
    let time = |row: &Figures| match row.change_p50_us {
        Some(change) if changes => change,
        _ => row.wait_p99_us,
    };
    let most_rate = rows
        .iter()
        .map(|(_, row)| row.per_second)
        .fold(1.0, f64::max);
    let most_time = rows.iter().map(|(_, row)| time(row)).fold(1.0, f64::max);
    for (label, row) in rows {
        let ours = label.starts_with("leasehold");
        let (bar, wait) = if ours {
            ("ours", "oursw")
        } else {
            ("peer", "wait")
        };
        let middle = y + 14;
        let rate = length(row.per_second, most_rate);
        let long = length(time(row), most_time);
        let weight = if ours { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            body,
            "<text x=\"20\" y=\"{middle}\"{weight}>{}</text>\
             <rect class=\"{bar}\" x=\"{LABEL}\" y=\"{}\" width=\"{rate:.1}\" height=\"14\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{middle}\">{}</text>\
             <rect class=\"{wait}\" x=\"{second}\" y=\"{}\" width=\"{long:.1}\" height=\"14\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{middle}\">{}</text>",
            escape(label),
            y + 3,
            f64::from(LABEL) + rate + 6.0,
            thousands(row.per_second),
            y + 3,
            f64::from(second) + long + 6.0,
            span(time(row)),
        );
        y += ROW;
    }
    y + 24
}

/// The length of a bar: the tenth part of the largest is a fixed step shorter.
fn length(value: f64, largest: f64) -> f64 {
    let decades = largest.max(10.0).log10();
    (value.max(1.0).log10() / decades).clamp(0.0, 1.0) * BAR + 2.0
}

pub(super) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
