//! Tests of the kinds of values: what each says of a wrong value.

use super::*;
use crate::reader::problems_of;

#[test]
fn durations_are_parsed() {
    assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(parse_duration("7d"), Some(Duration::from_secs(604_800)));
    assert_eq!(parse_duration("45"), Some(Duration::from_secs(45)));
    for bad in ["", "s", "-1s", "1.5s", "1 s", "99999999999999999999s", "18446744073709551615d", "1w"] {
        assert_eq!(parse_duration(bad), None, "{bad}");
    }
}

#[test]
fn durations_are_written_as_they_are_parsed() {
    for text in ["1ms", "1500ms", "90s", "5m", "36h", "7d"] {
        assert_eq!(duration(parse_duration(text).unwrap()), text);
    }
}

// covers: WORLD-08
#[test]
fn every_kind_says_what_to_write_instead() {
    fn is_none<T>(field: &Field<'_>) -> bool
    where
        T: for<'de> Deserialize<'de>,
    {
        read_as::<T>(field).is_none()
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Full,
        None,
    }
    type Read<'r> = &'r dyn Fn(&Field<'_>) -> bool;
    let count: Read<'_> = &is_none::<Count<1, 9>>;
    let number: Read<'_> = &is_none::<Thousandths<500, 2_000>>;
    let flag: Read<'_> = &is_none::<bool>;
    let duration: Read<'_> = &is_none::<Time<1_000, 60_000>>;
    let list: Read<'_> = &is_none::<Vec<String>>;
    let text: Read<'_> = &is_none::<Text<4>>;
    let mode: Read<'_> = &is_none::<Mode>;
    let cases: [(&str, Read<'_>, &str); 25] = [
        ("'5'", count, "`5`"),
        ("'$5'", count, "1 to 9"),
        ("5,0", count, "1 to 9"),
        ("~", count, "1 to 9"),
        ("[5]", count, "1 to 9"),
        ("0", count, "1"),
        ("10", count, "9"),
        ("'1.5'", number, "`1.5`"),
        ("$1.5", number, "0.5 to 2"),
        ("", number, "0.5 to 2"),
        ("0.25", number, "0.5"),
        ("3", number, "2"),
        ("yes", flag, "true or false"),
        ("'true'", flag, "true"),
        ("", flag, "true or false"),
        ("{ a: 1 }", flag, "true or false"),
        ("soon", duration, "30s"),
        ("", duration, "30s"),
        ("500ms", duration, "1s"),
        ("2h", duration, "60s"),
        ("a, b", list, "[a, b]"),
        ("{ a: 1 }", list, "`- `"),
        ("", text, ""),
        ("words", text, "4"),
        ("", mode, "full, none"),
    ];
    for (value, read, expected) in cases {
        let found = problems_of(&format!("key: {value}\n"), |map| assert!(read(&map.get("key").unwrap()), "{value}"));
        assert!(found.starts_with("error: w.yaml:1: key: ") && found.contains(expected), "{value}: {found}");
    }
}
