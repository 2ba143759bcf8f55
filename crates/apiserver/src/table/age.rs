//! Ages and durations as kubectl shows them.

use jiff::Timestamp;
use serde_json::Value;

use crate::field;

/// The age of an object by its creation.
pub(super) fn since(object: &Value, now: Timestamp) -> String {
    of(field::text(object, &["metadata", "creationTimestamp"]), now)
}

/// The age of a timestamp's text; `<unknown>` if it is none.
pub(super) fn of(text: &str, now: Timestamp) -> String {
    text.parse().map_or_else(|_| "<unknown>".to_owned(), |time| human(time, now))
}

/// The time between two moments.
pub(super) fn human(from: Timestamp, to: Timestamp) -> String {
    seconds(to.duration_since(from).as_secs())
}

/// A duration with two units at most, the second only while it says much: 90s, 5m30s, 9h, 3d4h, 2y.
pub(super) fn seconds(seconds: i64) -> String {
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let seconds = seconds.max(0);
    let two = |big: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 192 {
        two(days, 'd', hours % 24, 'h')
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_lose_what_says_little() {
        for (given, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (12_000, "3h20m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (50 * 3600, "2d2h"),
            (8 * 24 * 3600, "8d"),
            (-5, "<invalid>"),
        ] {
            assert_eq!(seconds(given), shown, "{given}");
        }
    }
}
