//! Time zone and terminal width of the text output.
//!
//! These settings must never affect JSON, whose times are always UTC.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::text::rfc3339;
use crate::wait::now_ms;

/// The time zone file of this machine.
const LOCALTIME: &str = "/etc/localtime";
/// Largest time zone file that is read, in bytes.
const ZONE_BYTES: u64 = 1024 * 1024;

/// Settings of the text output.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Time zone; `None` means UTC.
    pub zone: Option<TimeZone>,
    /// Width of the terminal in columns; `None` for a pipe or a file.
    pub screen: Option<usize>,
}

impl View {
    /// An instant to the second, with its UTC offset: `2026-11-21 23:08:00+01`, or `2026-11-21 22:08:00Z` in UTC.
    pub fn moment(&self, ms: i64) -> String {
        let utc = || rfc3339(ms).get(..19).map_or_else(|| rfc3339(ms), |at| format!("{}Z", at.replace('T', " ")));
        let Some((zone, at)) = self.zone.clone().zip(Timestamp::from_millisecond(ms).ok()) else { return utc() };
        let zoned = at.to_zoned(zone);
        match zoned.offset().seconds() {
            0 => utc(),
            _ => zoned.strftime("%Y-%m-%d %H:%M:%S%:::z").to_string(),
        }
    }

    /// How long ago an instant was: `12s`, `3m`, `7h`, `5d`; `in 3m` if it is in the future.
    pub fn age(&self, ms: i64) -> String {
        age(now_ms(), ms)
    }

    /// Instant and age: `2026-11-21 23:08:00+01 (3m ago)`.
    pub fn when(&self, ms: i64) -> String {
        when(self.moment(ms), &self.age(ms))
    }
}

fn when(moment: String, age: &str) -> String {
    match age.strip_prefix("in ") {
        Some(_) => format!("{moment} ({age})"),
        None => format!("{moment} ({age} ago)"),
    }
}

fn age(now_ms: i64, ms: i64) -> String {
    let past = now_ms.saturating_sub(ms);
    let seconds = past.unsigned_abs() / 1_000;
    let long = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    // The clocks of daemon and client may differ slightly.
    if past < -1_000 { format!("in {long}") } else { long }
}

/// The time zone of `TZ`, else of this machine. An invalid value means UTC; printed times show that.
pub fn local_zone(tz: Option<&str>) -> Option<TimeZone> {
    match tz.map(|tz| tz.strip_prefix(':').unwrap_or(tz)) {
        None => from_file(Path::new(LOCALTIME)),
        Some("") => None,
        Some(path) if path.starts_with('/') => from_file(Path::new(path)),
        Some(name) => TimeZone::get(name).or_else(|_| TimeZone::posix(name)).ok(),
    }
}

fn from_file(path: &Path) -> Option<TimeZone> {
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let bytes = if size <= ZONE_BYTES { std::fs::read(path).ok()? } else { return None };
    TimeZone::tzif("local", &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_zone(name: &str) -> View {
        View { zone: local_zone(Some(name)), screen: None }
    }

    #[test]
    fn a_time_shows_its_utc_offset() {
        let at = 1_709_164_800_123;
        for (zone, moment) in [
            ("UTC", "2024-02-29 00:00:00Z"),
            ("Europe/Berlin", "2024-02-29 01:00:00+01"),
            (":America/New_York", "2024-02-28 19:00:00-05"),
            ("Asia/Kolkata", "2024-02-29 05:30:00+05:30"),
            ("<+03>-3", "2024-02-29 03:00:00+03"),
            ("", "2024-02-29 00:00:00Z"),
            ("No/Such Zone", "2024-02-29 00:00:00Z"),
            ("/no/such/file", "2024-02-29 00:00:00Z"),
        ] {
            assert_eq!(in_zone(zone).moment(at), moment, "{zone}");
        }
        // In summer the same zone has another offset.
        assert_eq!(in_zone("Europe/Berlin").moment(1_720_000_000_000), "2024-07-03 11:46:40+02");
        // An instant outside the range of the zone is still printed, in UTC.
        assert!(in_zone("Europe/Berlin").moment(i64::MAX / 2).ends_with('Z'));
    }

    #[test]
    fn an_age_has_one_unit() {
        let now = 1_709_164_800_123;
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_100, "1h"), (172_799, "47h"), (900_000, "10d"), (-90, "in 1m")]
        {
            assert_eq!(age(now, now - seconds * 1_000), text);
        }
        assert_eq!(age(now, now + 900), "0s", "two clocks");
        assert_eq!(when("x".into(), "3m"), "x (3m ago)");
        assert_eq!(when("x".into(), "in 3m"), "x (in 3m)");
    }
}
