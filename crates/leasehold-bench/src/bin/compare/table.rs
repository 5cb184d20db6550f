//! Markdown tables, aligned so that they are pleasant on a terminal as well.

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Count,
    Micros,
}

/// Rows as a table. The first column is text, the others are numbers.
pub(super) fn table(mut rows: Vec<Vec<String>>) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let widest = |column: usize| {
        rows.iter()
            .map(move |row| row[column].chars().count())
            .max()
    };
    let widths: Vec<_> = (0..columns).filter_map(widest).collect();
    let separator = widths
        .iter()
        .enumerate()
        .map(|(column, width)| match column {
            0 => "-".repeat(*width),
            _ => "-".repeat(width - 1) + ":",
        });
    rows.insert(1, separator.collect());
    let mut table = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            table.push_str(&match column {
                0 => format!("| {cell:<width$} |"),
                _ => format!(" {cell:>width$} |"),
            });
        }
        table.push('\n');
    }
    table
}

/// A value with its unit.
pub(super) fn value_text(value: f64, unit: Unit) -> String {
    let (scale, decimals, name) = unit.scale(value);
    number_text(value / scale, decimals) + name
}

impl Unit {
    /// What a value is divided by, the decimal places, and the name of the unit then.
    fn scale(self, value: f64) -> (f64, usize, &'static str) {
        match self {
            Self::Micros if value < 1e3 => (1.0, 1, " µs"),
            Self::Micros if value < 1e6 => (1e3, 2, " ms"),
            Self::Micros => (1e6, 2, " s"),
            Self::Count => (1.0, 0, ""),
        }
    }
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
