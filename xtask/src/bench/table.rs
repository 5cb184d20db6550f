//! Markdown tables, aligned so that they are pleasant on a terminal as well.

use super::figures::Spread;

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Count,
    Micros,
    Part,
    Decimal,
}

/// Rows as a table. The first column is text, the others are numbers.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        rows.iter()
            .map(move |row| row[column].chars().count())
            .max()
    };
    let widths: Vec<_> = (0..columns).filter_map(widest).collect();
    let mut table = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            table.push_str(&match column {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            });
        }
        table.push('\n');
        if at == 0 {
            for (column, width) in widths.iter().enumerate() {
                table.push_str(&match column {
                    0 => format!("|{}|", "-".repeat(width + 2)),
                    _ => format!("{}:|", "-".repeat(width + 1)),
                });
            }
            table.push('\n');
        }
    }
    table
}

/// A median with its unit, and the smallest and the largest in the same unit.
pub(super) fn cell(spread: Spread, unit: Unit) -> String {
    let Spread { median, min, max } = spread;
    let (scale, decimals, name) = match unit {
        Unit::Micros if median < 1e3 => (1.0, 1, " µs"),
        Unit::Micros if median < 1e6 => (1e3, 2, " ms"),
        Unit::Micros => (1e6, 2, " s"),
        Unit::Part => (0.01, 1, " %"),
        Unit::Count => (1.0, 0, ""),
        Unit::Decimal => (1.0, 3, ""),
    };
    let [median, min, max] = [median, min, max].map(|number| number_text(number / scale, decimals));
    if min == max {
        return format!("{median}{name}");
    }
    format!("{median}{name} ({min} to {max})")
}

/// A number with commas between thousands.
pub(super) fn number_text(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let whole = text.find('.').unwrap_or(text.len());
    let mut parts = text;
    let mut at = whole;
    while at > 3 {
        at -= 3;
        parts.insert(at, ',');
    }
    parts
}
