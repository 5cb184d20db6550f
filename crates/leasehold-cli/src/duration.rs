//! Durations in text form: `90`, `0.5`, `500ms`, `2m`, `1h30m`, `1d 2h`.

use std::ops::RangeBounds;
use std::time::Duration;

use jiff::SignedDuration;

/// The bounds of a ttl and of a fixed lease. A minimum hold may be shorter.
const TTL_MIN: Duration = Duration::from_millis(100);
pub(crate) const TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const SECONDS_PER_DAY: f64 = 86_400.0;

/// Parses a duration; a plain number is seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || {
        let lower = text.to_lowercase();
        let meant =
            (lower != text && read(&lower).is_some()).then(|| format!("; did you mean {lower}?"));
        let meant = meant.unwrap_or_default();
        format!("a duration is a number with a unit, such as {EXAMPLES}{meant}")
    };
    let duration = read(text.trim().trim_start_matches('-')).ok_or_else(wrong)?;
    if duration.is_negative() || text.contains('-') {
        return Err("a duration is not negative".to_owned());
    }
    Duration::try_from(duration).map_err(|_| wrong())
}

/// Some valid durations.
const EXAMPLES: &str = "90 (seconds), 0.5, 500ms, 2m, 1h30m, 1d or 7d (a week)";

/// Parses the ttl of a renewed lease, or the length of a fixed one.
pub(crate) fn parse_ttl(text: &str) -> Result<Duration, String> {
    within(TTL_MIN..=TTL_MAX, "from 100ms to 24h")(text)
}

/// The parser of durations that have these bounds. `bounds` are the same in words.
pub(crate) fn within(
    range: impl RangeBounds<Duration> + Clone + Send + Sync + 'static,
    bounds: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text: &str| match parse(text)? {
        duration if range.contains(&duration) => Ok(duration),
        _ => Err(format!("it must be {bounds}")),
    }
}

/// A number of seconds, or days and the rest in any form that the time library reads: it knows no days without a
/// calendar.
fn read(text: &str) -> Option<SignedDuration> {
    if text.is_empty() {
        return None;
    }
    if is_number(text) {
        return seconds(text.parse().ok()?);
    }
    let (days, rest) = split_days(text).unwrap_or(("0", text));
    let days = seconds(days.parse::<f64>().ok()? * SECONDS_PER_DAY)?;
    let rest = match rest {
        "" => SignedDuration::ZERO,
        rest => rest.parse().ok()?,
    };
    days.checked_add(rest)
}

/// The number of days at the start of a text, and the rest.
fn split_days(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
    let rest = rest.trim_start();
    let unit = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit);
    let is_days = is_number(number) && matches!(unit, "d" | "day" | "days");
    is_days.then(|| (number, rest.trim_start_matches([',', ' '])))
}

pub(crate) fn is_number(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    !text.is_empty() && text.bytes().all(is_digit)
}

fn seconds(number: f64) -> Option<SignedDuration> {
    let duration = Duration::try_from_secs_f64(number).ok()?;
    SignedDuration::try_from(duration).ok()
}

/// A duration as people write it: its two largest units, without a smaller one that is zero.
pub(crate) fn format(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, 0) => format!("{millis}ms"),
        (0, 0, 0, s) if millis < 100 => format!("{s}s"),
        (0, 0, 0, s) => format!("{s}.{}s", millis / 100),
        (0, 0, m, 0) => format!("{m}m"),
        (0, 0, m, s) => format!("{m}m {s}s"),
        (0, h, 0, _) => format!("{h}h"),
        (0, h, m, _) => format!("{h}h {m}m"),
        (d, 0, _, _) => format!("{d}d"),
        (d, h, _, _) => format!("{d}d {h}h"),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Client;

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
            ("1d", 86_400_000),
            ("1.5d", 129_600_000),
            ("2 days", 172_800_000),
            ("1d2h", 93_600_000),
            ("1 day, 2 hours", 93_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "soon",
            "1x",
            "1e9",
            ".",
            "d",
            "1dx",
            "1d1d",
            "-",
            "-n",
            "--",
            "99999999999999999999",
            "99999999999999999999d",
        ] {
            assert!(parse(text).unwrap_err().contains("such as"), "{text}");
        }
        for text in ["-1", "-5s", "-1d", "1d-2h", "5s ago"] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, "a duration is not negative", "{text}");
        }
    }

    #[test]
    fn durations_are_shown_by_their_largest_units_and_read_back() {
        for (millis, text, read_back) in [
            (0, "0ms", 0),
            (1_250, "1.2s", 1_200),
            (2_000, "2s", 2_000),
            (65_000, "1m 5s", 65_000),
            (120_000, "2m", 120_000),
            (3_600_000, "1h", 3_600_000),
            (3_725_000, "1h 2m", 3_720_000),
            (90_000_000, "1d 1h", 90_000_000),
        ] {
            assert_eq!(format(Duration::from_millis(millis)), text);
            assert_eq!(parse(text), Ok(Duration::from_millis(read_back)), "{text}");
        }
    }

    #[test]
    fn the_bounds_of_a_ttl_are_those_of_the_library() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let accepts = |ttl| {
            let connected = Client::builder().ttl(ttl).connect("memory:");
            runtime.block_on(connected).is_ok()
        };
        let step = Duration::from_millis(1);
        for (ttl, text) in [(TTL_MIN, "100ms"), (TTL_MAX, "24h")] {
            assert!(accepts(ttl));
            assert_eq!(parse_ttl(text), Ok(ttl));
        }
        for (ttl, text) in [(TTL_MIN - step, "99ms"), (TTL_MAX + step, "24h 1ms")] {
            assert!(!accepts(ttl));
            let bounds = "it must be from 100ms to 24h";
            assert_eq!(parse_ttl(text), Err(bounds.to_owned()));
        }
    }
}
