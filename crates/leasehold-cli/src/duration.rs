//! Durations in text form: `90`, `0.5`, `500ms`, `2m`, `1h30m`.

use std::time::Duration;

use jiff::SignedDuration;

/// Parses a duration; a plain number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90, 0.5, 500ms, 2m or 1h30m");
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plain {
        let seconds: f64 = text.parse().map_err(|_| wrong())?;
        return Duration::try_from_secs_f64(seconds).map_err(|_| wrong());
    }
    let signed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

/// A duration for a person: its two largest units.
pub(crate) fn show(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, 0) => format!("{millis}ms"),
        (0, 0, 0, s) => format!("{s}.{}s", millis / 100),
        (0, 0, m, s) => format!("{m}m {s}s"),
        (0, h, m, _) => format!("{h}h {m}m"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("0.5", 500),
            ("90", 90_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "-1",
            "-5s",
            "soon",
            "1x",
            "1e9",
            ".",
            "99999999999999999999",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_by_their_largest_units() {
        for (millis, text) in [
            (0, "0ms"),
            (1_250, "1.2s"),
            (65_000, "1m 5s"),
            (3_725_000, "1h 2m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
