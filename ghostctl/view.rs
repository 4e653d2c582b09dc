//! How things look to the person who reads them: times in their zone, and no wider than their screen.
//!
//! Must never: touch what programs read. JSON has times in UTC as ever.

use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::text::rfc3339;
use crate::wait::now_ms;

/// Where the zone of this machine stands.
const LOCALTIME: &str = "/etc/localtime";
/// A file of a zone is smaller.
const ZONE_BYTES: u64 = 1024 * 1024;

/// What is known of the reader.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Their zone; none is UTC.
    pub zone: Option<TimeZone>,
    /// The columns of their screen; none if a pipe or a file takes what is printed.
    pub screen: Option<usize>,
}

impl View {
    /// An instant to the second, with its distance to UTC: `2026-11-21 23:08:00+01`, or `2026-11-21 22:08:00Z` in UTC.
    pub fn moment(&self, ms: i64) -> String {
        let utc = || rfc3339(ms).get(..19).map_or_else(|| rfc3339(ms), |at| format!("{}Z", at.replace('T', " ")));
        let Some((zone, at)) = self.zone.clone().zip(Timestamp::from_millisecond(ms).ok()) else { return utc() };
        let zoned = at.to_zoned(zone);
        match zoned.offset().seconds() {
            0 => utc(),
            _ => zoned.strftime("%Y-%m-%d %H:%M:%S%:::z").to_string(),
        }
    }

    /// How long ago that was: `12s`, `3m`, `7h`, `5d`; `in 3m` if it is yet to be.
    pub fn age(&self, ms: i64) -> String {
        age(now_ms(), ms)
    }

    /// Both: `2026-11-21 23:08:00+01 (3m ago)`.
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
    // Two clocks may differ by a little.
    if past < -1_000 { format!("in {long}") } else { long }
}

/// The zone that `TZ` names, else that of this machine. What is not understood is UTC, which every time then says.
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
    fn a_moment_says_its_zone() {
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
        // In summer the same zone is another one.
        assert_eq!(in_zone("Europe/Berlin").moment(1_720_000_000_000), "2024-07-03 11:46:40+02");
        // What no calendar of a zone holds is told all the same.
        assert!(in_zone("Europe/Berlin").moment(i64::MAX / 2).ends_with('Z'));
    }

    #[test]
    fn an_age_has_one_unit() {
        let now = 1_709_164_800_123;
        for (seconds, told) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_100, "1h"), (172_799, "47h"), (900_000, "10d"), (-90, "in 1m")]
        {
            assert_eq!(age(now, now - seconds * 1_000), told);
        }
        assert_eq!(age(now, now + 900), "0s", "two clocks");
        assert_eq!(when("x".into(), "3m"), "x (3m ago)");
        assert_eq!(when("x".into(), "in 3m"), "x (in 3m)");
    }
}
