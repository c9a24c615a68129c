//! Timestamps as text: `2026-11-15T10:00:00Z`.

const DAY: u64 = 86_400;
/// Days in 400 years, after which the calendar repeats.
const CYCLE: u64 = 146_097;
/// Days from 1 March of year 0 to 1 January 1970.
const BEFORE: u64 = 719_468;

/// Formats a Unix time.
pub fn write(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let time = seconds % DAY;
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day number. Years start in March here, so that the leap day is the last day of a
/// year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days.saturating_add(BEFORE);
    let (cycle, day) = (days / CYCLE, days % CYCLE);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (cycle * 400 + year + next, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_right_date() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_794_700_000, "2026-11-14T23:46:40Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(write(seconds), expected);
        }
        assert!(write(u64::MAX).ends_with('Z'));
    }
}
