//! Durations and times as people say them. Pure: "now" is a parameter.

use shared::time::Timestamp;

/// Seconds of each unit, the largest first.
const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];
/// The words for them.
const WORDS: [(&str, u64); 5] =
    [("year", 31_536_000), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)];

/// The text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a duration such as 90s, 30m, 1h, 7d or 1h30m, or a number of seconds")]
pub(super) struct InvalidDuration;

/// Reads `1h`, `30m`, `1h30m` (each unit once, the largest first), or a number of seconds.
///
/// # Errors
/// It is none of these, or over what an integer of the wire holds.
pub(super) fn parse_seconds(text: &str) -> Result<i64, InvalidDuration> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits(text) {
        return text.parse().map_err(|_| InvalidDuration);
    }
    let (mut rest, mut total, mut larger) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).ok_or(InvalidDuration)?;
        let (number, after) = rest.split_at(end);
        let unit = after.chars().next().ok_or(InvalidDuration)?;
        let seconds = UNITS.iter().find(|(name, _)| *name == unit).ok_or(InvalidDuration)?.1;
        if seconds >= larger {
            return Err(InvalidDuration);
        }
        let number: u64 = number.parse().map_err(|_| InvalidDuration)?;
        total =
            number.checked_mul(seconds).and_then(|more| total.checked_add(more)).ok_or(InvalidDuration)?;
        (rest, larger) = (after.strip_prefix(unit).unwrap_or_default(), seconds);
    }
    if text.is_empty() { Err(InvalidDuration) } else { i64::try_from(total).map_err(|_| InvalidDuration) }
}

/// `6 days from now`, `3 minutes ago`, `now`.
#[must_use]
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    let (span, ahead) = if at > now { (at.since(now), true) } else { (now.since(at), false) };
    let seconds = span.as_secs();
    let Some((word, unit)) = WORDS.iter().find(|(_, unit)| seconds >= *unit) else { return "now".to_owned() };
    let count = seconds / unit;
    let plural = if count == 1 { "" } else { "s" };
    let direction = if ahead { "from now" } else { "ago" };
    format!("{count} {word}{plural} {direction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_every_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("60", 60),
            ("90s", 90),
            ("30m", 1800),
            ("1h", 3600),
            ("7d", 604_800),
            ("2w", 1_209_600),
            ("1h30m", 5400),
            ("1d12h5s", 129_605),
            ("9223372036854775807", i64::MAX),
        ] {
            assert_eq!(parse_seconds(text), Ok(seconds), "{text}");
        }
        for text in [
            "",
            "h",
            "1",
            "1x",
            "1H",
            "-1h",
            "+1",
            "1.5h",
            "1h 30m",
            "30m1h",
            "1h1h",
            "1h30",
            "1é",
            "9223372036854775808",
            "18446744073709551616s",
            "99999999999999999w",
        ] {
            let refused = if text == "1" { Ok(1) } else { Err(InvalidDuration) };
            assert_eq!(parse_seconds(text), refused, "{text}");
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let now = Timestamp::from_seconds(1_000_000_000);
        for (seconds, text) in [
            (0, "now"),
            (1, "1 second from now"),
            (-59, "59 seconds ago"),
            (-60, "1 minute ago"),
            (7200, "2 hours from now"),
            (6 * 86_400, "6 days from now"),
            (-800 * 86_400, "2 years ago"),
        ] {
            assert_eq!(relative(now.plus_seconds(seconds), now), text);
        }
    }
}
