//! Figures for people.

use std::time::Duration;

/// `512 B`, `1.5 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1023.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let places = usize::from(unit > 0 && value < 99.95);
    format!("{value:.places$} {}", units[unit])
}

/// `1 page`, `2 pages`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// How long something took: `350ms`, `2.4s`, `3m10s`.
pub(crate) fn took(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1000 => format!("{millis}ms"),
        1000..100_000 => format!("{:.1}s", time.as_secs_f64()),
        _ => format!("{}m{}s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

/// How old something is, as kubectl says it: two units while the second one matters.
pub(crate) fn age(time: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    const YEAR: u64 = 365 * DAY;
    let seconds = time.as_secs();
    let two = |large: u64, name: &str, small: u64, rest: &str| {
        let (whole, left) = (seconds / large, seconds % large / small);
        if left == 0 { format!("{whole}{name}") } else { format!("{whole}{name}{left}{rest}") }
    };
    match seconds {
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, "m", 1, "s"),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, "h", MINUTE, "m"),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, "d", HOUR, "h"),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_or_less() {
        let shown = [0, 1023, 1024, 1536, 150 << 10, 1 << 20, (1 << 30) - 1].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "150 KiB", "1.0 MiB", "1.0 GiB"]);
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (700_000, "8d"),
            (70_000_000, "2y80d"),
            (400_000_000, "12y"),
        ];
        for (seconds, shown) in cases {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn times_have_the_precision_that_matters() {
        let shown = [7, 999, 2440, 190_000].map(|it| took(Duration::from_millis(it)));
        assert_eq!(shown, ["7ms", "999ms", "2.4s", "3m10s"]);
    }
}
