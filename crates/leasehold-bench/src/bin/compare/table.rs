//! Markdown tables, and the figures in them.

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unit {
    Count,
    Micros,
}

/// Rows as a table. The first column is text, the others are numbers.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let lines = rows.iter().map(|row| format!("| {} |\n", row.join(" | ")));
    let mut lines: Vec<_> = lines.collect();
    let numbers = "---:|".repeat(rows[0].len() - 1);
    lines.insert(1, format!("|---|{numbers}\n"));
    lines.concat()
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
