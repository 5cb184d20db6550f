//! Rounded numbers.

/// Rounds to three places: more than most figures are accurate to.
pub(crate) fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Rounds to five places, for parts of a whole that may be small.
pub(crate) fn fine(number: f64) -> f64 {
    (number * 1e5).round() / 1e5
}

/// One count for each of another.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_not_a_division_by_zero() {
        assert_eq!((per(0, 0), ratio(1.0, 0.0)), (0.0, 0.0));
        assert_eq!((round(1.000_6), fine(0.000_016)), (1.001, 0.000_02));
    }
}
