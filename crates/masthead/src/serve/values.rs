//! Values of flags: times and sizes.

use std::time::Duration;

/// `30s`, `15m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let parsed = parsed.map_err(|_| "expected a time like 500ms, 30s, 15m or 1h".to_owned())?;
    let time = Duration::try_from(parsed).map_err(|_| "a time cannot be negative".to_owned())?;
    if time.is_zero() { Err("must be longer than nothing".to_owned()) } else { Ok(time) }
}

/// `65536`, `64KiB`, `3MiB`, `1GiB`.
pub(super) fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "Ki" | "K" => 1 << 10,
        "MiB" | "Mi" | "M" => 1 << 20,
        "GiB" | "Gi" | "G" => 1 << 30,
        other => return Err(format!("{other:?} is no unit; there are KiB, MiB and GiB")),
    };
    let count: usize = digits
        .trim()
        .parse()
        .map_err(|_| "expected a size like 65536, 64KiB or 3MiB".to_owned())?;
    count.checked_mul(unit).ok_or_else(|| "that is more than there can be".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(bytes("3MiB"), Ok(3 * 1024 * 1024));
        assert_eq!(bytes("65536"), Ok(65536));
        assert!(bytes("3 apples").is_err() && bytes("MiB").is_err() && bytes("-1").is_err());
        assert!(bytes("99999999999999GiB").is_err());
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").is_err() && duration("0s").is_err() && duration("-1s").is_err());
    }
}
