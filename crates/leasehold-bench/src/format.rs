//! Numbers, rounded and as text.

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

/// A number of things.
pub(crate) fn count(number: impl Into<u64>, noun: &str) -> String {
    let number = number.into();
    match (number, noun.ends_with('s')) {
        (1, _) => format!("1 {noun}"),
        (_, true) => format!("{} {noun}es", HumanCount(number)),
        (_, false) => format!("{} {noun}s", HumanCount(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_noun() {
        assert_eq!(count(1_u16, "process"), "1 process");
        assert_eq!(count(4_u16, "process"), "4 processes");
        assert_eq!(count(1_000_u32, "name"), "1,000 names");
    }

    #[test]
    fn nothing_is_not_a_division_by_zero() {
        assert_eq!((per(0, 0), ratio(1.0, 0.0)), (0.0, 0.0));
        assert_eq!((round(1.000_6), fine(0.000_016)), (1.001, 0.000_02));
    }
}
