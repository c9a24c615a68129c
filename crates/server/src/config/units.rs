//! Reads durations and sizes, which are a number and a unit, and names the paces of text.

use std::time::Duration;

use throughline_codec::pacing::Pace;

/// The paces that are a word.
pub(super) const PACES: [(&str, Pace); 4] = [
    ("immediate", Pace::Immediate),
    ("sentence", Pace::Sentence),
    ("paragraph", Pace::Paragraph),
    ("json_boundary", Pace::JsonBoundary),
];

/// Long enough for every use, and short enough that adding it to a time cannot overflow.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads `250ms`, `15s`, `5m`, `1h` or `30d`; at most a year.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (count, unit) = split(text)?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    let duration = Duration::from_millis(count.checked_mul(milliseconds)?);
    (duration <= MAX_DURATION).then_some(duration)
}

/// Reads `512KiB`, `64MiB`, `1GiB`, `500kB`, `10MB`, `1GB` or `100B` as bytes.
pub(super) fn size(text: &str) -> Option<u64> {
    let (count, unit) = split(text)?;
    let bytes = match unit {
        "B" => 1,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    count.checked_mul(bytes)
}

/// Writes bytes in the largest binary unit that divides them.
pub(super) fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

fn split(text: &str) -> Option<(u64, &str)> {
    let border = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (count, unit) = text.split_at(border);
    Some((count.parse().ok()?, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_a_number_and_a_unit() {
        for (text, milliseconds) in [
            ("250ms", Some(250)),
            ("15s", Some(15_000)),
            ("5m", Some(300_000)),
            ("30m", Some(1_800_000)),
            ("1h", Some(3_600_000)),
            ("8760h", Some(31_536_000_000)),
            ("8761h", None),
            ("15", None),
            ("s", None),
            ("15 s", None),
            ("-1s", None),
            ("1.5s", None),
            ("30d", Some(2_592_000_000)),
            ("1w", None),
            ("", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(duration(text), milliseconds.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_or_decimal() {
        for (text, bytes) in [
            ("512KiB", Some(512 << 10)),
            ("64MiB", Some(64 << 20)),
            ("1GiB", Some(1 << 30)),
            ("1kB", Some(1_000)),
            ("2MB", Some(2_000_000)),
            ("3GB", Some(3_000_000_000)),
            ("100B", Some(100)),
            ("64mib", None),
            ("64M", None),
            ("MiB", None),
            ("18446744073709551615GiB", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn shown_sizes_read_back() {
        for bytes in [0, 1, 1000, 1024, 1 << 20, 3 << 20, 1 << 30, (1 << 30) + 1] {
            assert_eq!(size(&show_size(bytes)), Some(bytes));
        }
    }
}
