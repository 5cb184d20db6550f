//! Numbers, rounded and as text.

use std::time::Duration;

use indicatif::HumanCount;

/// Rounds to three places: more than most figures are accurate to.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Rounds to five places, for parts of a whole that may be small.
pub(crate) fn fine(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

/// One count for each of another.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn per(count: u64, each: u64) -> f64 {
    count as f64 / each.max(1) as f64
}

/// One figure divided by another; 0 if that is 0.
pub(crate) fn ratio(figure: f64, other: f64) -> f64 {
    match other > 0.0 {
        true => round(figure / other),
        false => 0.0,
    }
}

/// A time with the unit that suits it, from microseconds.
pub(crate) fn time(micros: f64) -> String {
    let duration = Duration::try_from_secs_f64(micros / 1e6).unwrap_or_default();
    format!("{duration:.2?}")
}

/// A rounded number with its thousands marked.
pub(crate) fn number(number: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rounded = number.round() as u64;
    HumanCount(rounded).to_string()
}

/// A number of things.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    match (number, noun.ends_with('s')) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{} {noun}es", HumanCount(number)),
        (_, false) => format!("{} {noun}s", HumanCount(number)),
    }
}

/// A part of a whole.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// How many times as much.
pub(crate) fn times(ratio: f64) -> String {
    match ratio < 100.0 {
        true => format!("{ratio:.2} times"),
        false => format!("{} times", number(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_easy_to_read() {
        assert_eq!(number(1_234.4), "1,234");
        for (micros, text) in [
            (0.25, "250.00ns"),
            (61.44, "61.44µs"),
            (1_500.0, "1.50ms"),
            (2e6, "2.00s"),
        ] {
            assert_eq!(time(micros), text);
        }
        assert_eq!(count(1_u16, "process"), "1 process");
        assert_eq!(count(4_u16, "process"), "4 processes");
        assert_eq!(count(1_000_u32, "name"), "1,000 names");
        assert_eq!(percent(0.973_4), "97.3 %");
        assert_eq!(times(1.096), "1.10 times");
        assert_eq!(times(1_234.5), "1,235 times");
    }

    #[test]
    fn nothing_is_not_a_division_by_zero() {
        assert_eq!((per(0, 0), ratio(1.0, 0.0)), (0.0, 0.0));
        assert_eq!((round(1.000_6), fine(0.000_016)), (1.001, 0.000_02));
    }
}
