//! Slots of rules, and slots that are computed again.

use super::*;
use crate::refusal::Code;
use crate::schedule::words::instant;
use proptest::prelude::*;

fn at(text: &str) -> Timestamp {
    instant("t", text).unwrap()
}

fn rule(expression: &str, zone: &str) -> When {
    When::Cron { expression: expression.into(), zone: Some(zone.into()) }
}

/// The first slots after an instant, in UTC.
fn slots(when: &When, after: &str, count: usize) -> Vec<String> {
    let slots = Slots::of(when).unwrap();
    let mut last = at(after);
    (0..count)
        .map_while(|_| {
            last = slots.next_after(last)?;
            Some(last.rfc3339()[..16].to_owned())
        })
        .collect()
}

#[test]
fn a_fixed_slot_moves_out_of_a_skipped_hour_and_runs_once_in_a_repeated_hour() {
    // Berlin goes from 02:00 to 03:00 on 29 March 2026 and from 03:00 to 02:00 on 25 October.
    let daily = rule("30 2 * * *", "Europe/Berlin");
    assert_eq!(slots(&daily, "2026-03-28T00:00Z", 3), ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]);
    assert_eq!(slots(&daily, "2026-10-24T12:00Z", 2), ["2026-10-25T00:30", "2026-10-26T01:30"]);
    let half_hours = rule("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        slots(&half_hours, "2026-10-25T00:00Z", 4),
        ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]
    );
    assert_eq!(slots(&half_hours, "2026-03-29T00:30Z", 2), ["2026-03-29T01:00", "2026-03-29T01:30"]);
}

/// For each rule, its slots within a span around a change of the clock.
fn expect(zone: &str, (from, to): (&str, &str), rules: &[(&str, &[&str])]) {
    for (expression, expected) in rules {
        let found = slots(&rule(expression, zone), from, 1_000);
        let found: Vec<&String> = found.iter().take_while(|slot| slot.as_str() < to).collect();
        assert_eq!(found, *expected, "{expression} in {zone}");
    }
}

// covers: SCHED-04
#[test]
fn times_of_the_day_have_one_slot_each_over_a_skipped_and_a_repeated_hour() {
    // Berlin, as above.
    let spring = ("2026-03-29T00:00Z", "2026-03-29T02:30");
    let (before, after) = ("2026-03-29T00:30", "2026-03-29T01:00");
    expect(
        "Europe/Berlin",
        spring,
        &[
            ("30 2 * * *", &[after]),
            ("0,30 2 * * *", &[after]),
            ("15-45 2 * * *", &[after]),
            ("0 2,14 * * *", &[after]),
            ("30 1-3 * * *", &[before, after, "2026-03-29T01:30"]),
            ("0 2,3 * * *", &[after]),
            ("0 30 2 * * *", &[after]),
            // Real time goes on: nothing is skipped, so nothing is made up for.
            ("0 * * * *", &[after, "2026-03-29T02:00"]),
            ("*/15 2 * * *", &[]),
        ],
    );
    let autumn = ("2026-10-24T23:00Z", "2026-10-25T02:30");
    let (first, second) = ("2026-10-25T00:30", "2026-10-25T01:30");
    expect(
        "Europe/Berlin",
        autumn,
        &[
            ("30 2 * * *", &[first]),
            ("0,30 2 * * *", &["2026-10-25T00:00", first]),
            ("30 2,14 * * *", &[first]),
            ("30 1-3 * * *", &["2026-10-24T23:30", first, "2026-10-25T02:30"][..2]),
            ("30 * * * *", &["2026-10-24T23:30", first, second]),
            ("*/30 2 * * *", &["2026-10-25T00:00", first, "2026-10-25T01:00", second]),
        ],
    );
    // From the second pass, the times of the first one have been.
    assert_eq!(slots(&rule("0,30 2 * * *", "Europe/Berlin"), "2026-10-25T01:10Z", 1), ["2026-10-26T01:00"]);
    // New York, 8 March and 1 November 2026.
    let daily = "30 2 * * *";
    expect(
        "America/New_York",
        ("2026-03-07T12:00Z", "2026-03-09T12:00"),
        &[(daily, &["2026-03-08T07:00", "2026-03-09T06:30"])],
    );
    let nightly = "30 1,13 * * *";
    let once = ["2026-11-01T05:30", "2026-11-01T18:30", "2026-11-02T06:30"];
    expect("America/New_York", ("2026-11-01T00:00Z", "2026-11-02T12:00"), &[(nightly, &once)]);
}

// covers: SCHED-04
#[test]
fn zones_that_change_by_half_an_hour_at_midnight_or_by_a_day_lose_no_slot() {
    // Lord Howe goes back by half an hour on 5 April 2026 (02:00 to 01:30) and ahead on 4 October (02:00 to 02:30).
    expect(
        "Australia/Lord_Howe",
        ("2026-04-04T14:00Z", "2026-04-04T17:00"),
        &[
            ("45 1 * * *", &["2026-04-04T14:45"]),
            ("45 1,2 * * *", &["2026-04-04T14:45", "2026-04-04T16:15"]),
            ("45 * * * *", &["2026-04-04T14:45", "2026-04-04T15:15", "2026-04-04T16:15"]),
        ],
    );
    expect("Australia/Lord_Howe", ("2026-10-03T12:00Z", "2026-10-04T00:00"), &[("15 2 * * *", &["2026-10-03T15:30"])]);
    // Nuuk skips the last hour of Saturday, 28 March 2026: the first instant after it is a Sunday.
    let saturday = ("2026-03-28T12:00Z", "2026-03-30T12:00");
    expect("America/Nuuk", saturday, &[("30 23 * * 6", &["2026-03-29T01:00"]), ("0 23 28 3 *", &["2026-03-29T01:00"])]);
    // Havana skips the first hour of 8 March 2026.
    expect("America/Havana", ("2026-03-07T12:00Z", "2026-03-08T12:00"), &[("0 0 * * 0", &["2026-03-08T05:00"])]);
    // Apia had no 30 December 2011.
    let month = ("2011-12-29T00:00Z", "2011-12-31T23:00");
    let friday = ["2011-12-30T10:00"];
    expect("Pacific/Apia", month, &[("30 2 30 * *", &friday), ("0,15,30 2,20 * * 5", &friday)]);
    let daily = ["2011-12-29T12:30", "2011-12-30T10:00", "2011-12-30T12:30", "2011-12-31T12:30"];
    expect("Pacific/Apia", month, &[("30 2 * * *", &daily), ("30 */24 30 12 *", &[])]);
}

#[test]
fn leap_days_and_the_far_future_have_slots() {
    let leap = rule("0 12 29 2 *", "UTC");
    assert_eq!(slots(&leap, "2026-01-01T00:00Z", 2), ["2028-02-29T12:00", "2032-02-29T12:00"]);
    assert_eq!(slots(&rule("0 0 1 1 *", "UTC"), "2999-06-01", 1), ["3000-01-01T00:00"]);
    assert_eq!(Slots::of(&rule("* * * * *", "UTC")).unwrap().next_after(Timestamp(i64::MAX)), None);
}

#[test]
fn errors_of_the_expression_parser_are_reworded() {
    let message = |expression: &str| Slots::of(&rule(expression, "UTC")).unwrap_err().message;
    assert!(message("*/0 * * * *").contains("`/`"));
    for wrong in ["61 * * * *", "x * * * *"] {
        let message = message(wrong);
        assert!(!message.contains("error:") && !message.ends_with('.'), "{message}");
    }
}

#[test]
fn invalid_rules_are_refused_with_a_reason() {
    let now = at("2026-11-21T22:00Z");
    let refused = |when: &When| first_slot(when, now, 10).unwrap_err();
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *"] {
        assert_eq!(refused(&rule(never, "UTC")).code, Code::InvalidArguments, "{never}");
    }
    for fields in ["", "* * * *", "0 0 0 1 1 * 2030", "@daily"] {
        assert_eq!(refused(&rule(fields, "UTC")).code, Code::InvalidArguments, "{fields}");
    }
    for wrong in ["61 * * * *", "* 24 * * *", "a b c d e", "*/0 * * * *", "5-1 * * * *"] {
        assert_eq!(refused(&rule(wrong, "UTC")).code, Code::InvalidArguments, "{wrong}");
    }
    assert!(refused(&rule("* * * * *", "Europe/Berln")).hint.unwrap().contains("Europe/Berlin"));
    assert!(refused(&rule("* * * * *", "berlin")).hint.unwrap().contains("Europe/Berlin"));
    assert!(refused(&rule("* * * * *", "Mars/Olympus_Mons_and_more")).hint.is_some());
    assert_eq!(refused(&rule("* * * * * *", "UTC")).code, Code::RateLimited);
    assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 10).is_ok());
    assert!(first_slot(&rule("0,50 0,59 0,23 * * *", "UTC"), now, 11).unwrap_err().message.contains("10s"));
    assert_eq!(refused(&When::Every { every_ms: 9_999, anchor: now }).code, Code::RateLimited);
    assert_eq!(refused(&When::Every { every_ms: 0, anchor: now }).code, Code::InvalidArguments);
    assert_eq!(refused(&When::At { at: now }).code, Code::InvalidArguments);
    assert_eq!(refused(&When::At { at: Timestamp(i64::MAX / 2) }).code, Code::InvalidArguments);
    assert_eq!(first_slot(&rule("0 9 * * 1-5", "Europe/Berlin"), now, 10).unwrap(), at("2026-11-23T08:00Z"));
}

#[test]
fn a_clock_that_jumps_ahead_passes_slots_and_one_that_goes_back_passes_none() {
    let hourly = Slots::of(&rule("0 * * * *", "UTC")).unwrap();
    let due = at("2026-11-21T12:00Z");
    let three = Passed { last: at("2026-11-21T14:00Z"), count: 3 };
    assert_eq!(hourly.passed(due, at("2026-11-21T14:59Z")), three);
    assert_eq!(hourly.passed(due, at("2026-11-21T11:00Z")), Passed { last: due, count: 1 });
    let minutes = Slots::of(&When::Every { every_ms: 60_000, anchor: due }).unwrap();
    assert_eq!(minutes.passed(due, at("2026-11-22T12:00:30Z")).count, 1_441);
    assert_eq!(minutes.next_after(due), Some(at("2026-11-21T12:01Z")));
    assert_eq!(minutes.next_after(at("2026-11-20")), Some(due));
}

// covers: SCHED-04
#[test]
fn minute_of_day_follows_the_zone() {
    assert_eq!(minute_of_day(at("2026-11-21T22:30Z"), "Europe/Berlin").unwrap(), 23 * 60 + 30);
    assert_eq!(minute_of_day(at("2026-07-01T22:30Z"), "Europe/Berlin").unwrap(), 30);
}

fn expression() -> impl Strategy<Value = String> {
    let field = |most: u32| {
        prop_oneof![
            Just("*".to_owned()),
            (0..most).prop_map(|n| n.to_string()),
            (2..most.max(3)).prop_map(|n| format!("*/{n}"))
        ]
    };
    (field(60), field(24), (1u32..=31), field(7)).prop_map(|(minute, hour, day, weekday)| {
        let day = if day % 3 == 0 { day.to_string() } else { "*".to_owned() };
        format!("{minute} {hour} {day} * {weekday}")
    })
}

/// A field and the numbers that it means; whether it has a star or a step.
fn field(most: u32) -> impl Strategy<Value = (String, Vec<u32>, bool)> {
    prop_oneof![
        Just(("*".to_owned(), (0..most).collect(), true)),
        (2..most).prop_map(move |n| (format!("*/{n}"), (0..most).step_by(n as usize).collect(), true)),
        (0..most).prop_map(|n| (n.to_string(), vec![n], false)),
        prop::collection::btree_set(0..most, 2..5).prop_map(|set| {
            let texts: Vec<String> = set.iter().map(u32::to_string).collect();
            (texts.join(","), set.into_iter().collect(), false)
        }),
        (0..most, 0..most).prop_map(|(one, other)| {
            let (from, to) = (one.min(other), one.max(other));
            (format!("{from}-{to}"), (from..=to).collect(), false)
        }),
    ]
}

/// A zone, and an instant up to a day before it changes its clocks.
fn change() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop::sample::select(vec![
        ("Europe/Berlin", "2026-03-28T12:00Z"),
        ("Europe/Berlin", "2026-10-24T12:00Z"),
        ("Europe/Dublin", "2026-10-24T12:00Z"),
        ("America/New_York", "2026-03-07T12:00Z"),
        ("America/New_York", "2026-10-31T12:00Z"),
        ("America/Nuuk", "2026-03-28T06:00Z"),
        ("America/Nuuk", "2026-10-24T06:00Z"),
        ("America/Havana", "2026-03-07T12:00Z"),
        ("America/Havana", "2026-10-31T12:00Z"),
        ("America/Santiago", "2026-09-05T12:00Z"),
        ("Antarctica/Troll", "2026-03-28T12:00Z"),
        ("Antarctica/Troll", "2026-10-24T12:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T06:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T06:00Z"),
        ("Pacific/Chatham", "2026-04-04T06:00Z"),
        ("Pacific/Apia", "2011-12-29T20:00Z"),
        ("Pacific/Kwajalein", "1993-08-20T20:00Z"),
        ("UTC", "2026-03-28T12:00Z"),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    // covers: SCHED-04
    #[test]
    fn over_a_change_of_the_clock_every_slot_is_there_once(
        (minute, minutes, minute_runs) in field(60),
        (hour, hours, hour_runs) in field(24),
        weekday in prop::option::of(0i8..7),
        (zone, start) in change(),
    ) {
        let expression = format!("{minute} {hour} * * {}", weekday.map_or("*".to_owned(), |day| day.to_string()));
        let (found, place) = (Slots::of(&rule(&expression, zone)).unwrap(), time_zone(zone).unwrap());
        let is_meant = |wall: DateTime| {
            minutes.contains(&u32::from(wall.minute().unsigned_abs()))
                && hours.contains(&u32::from(wall.hour().unsigned_abs()))
                && weekday.is_none_or(|day| wall.weekday().to_sunday_zero_offset() == day)
        };
        // What the clocks of the zone show, minute by minute, and what they never show.
        let start = at(start);
        let instants: Vec<Timestamp> = (0..2 * 24 * 60).map(|n| Timestamp(start.0 + n * 60_000)).collect();
        let wall = |at: Timestamp| jiff::Timestamp::from_millisecond(at.0).unwrap().to_zoned(place.clone()).datetime();
        let (mut latest, mut expected) = (wall(Timestamp(start.0 - 60_000)), Vec::new());
        for instant in instants {
            let shown = wall(instant);
            let mut skipped = latest + jiff::Span::new().minutes(1);
            let mut is_slot = false;
            while !(minute_runs || hour_runs) && skipped < shown {
                is_slot |= is_meant(skipped);
                skipped += jiff::Span::new().minutes(1);
            }
            let is_new = shown > latest || minute_runs || hour_runs;
            if is_slot || (is_new && is_meant(shown)) {
                expected.push(instant);
            }
            latest = latest.max(shown);
        }
        let end = Timestamp(start.0 + 2 * 24 * 3_600_000);
        let mut last = Timestamp(start.0 - 1);
        let mut seen = Vec::new();
        while let Some(next) = found.next_after(last).filter(|next| *next < end) {
            seen.push(next);
            last = next;
        }
        prop_assert_eq!(&seen, &expected, "{} in {}", expression, zone);
        // Whenever the daemon looks, it finds the next of them.
        for pair in seen.windows(2) {
            let between = Timestamp(pair[0].0 + (pair[1].0 - pair[0].0) / 2);
            prop_assert_eq!(found.next_after(between), Some(pair[1]), "{} in {}", expression, zone);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn slots_rise_strictly_over_both_changes_of_the_clock(
        expression in expression(),
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
        start in prop::sample::select(vec!["2026-03-28T20:00Z", "2026-10-24T20:00Z", "2027-12-31T00:00Z"]),
    ) {
        let slots = Slots::of(&rule(&expression, zone)).unwrap();
        let mut last = at(start);
        for _ in 0..40 {
            let Some(next) = slots.next_after(last) else { break };
            prop_assert!(next > last);
            // From any time between two slots the next slot is the same.
            let between = Timestamp(last.0 + (next.0 - last.0) / 2);
            prop_assert_eq!(slots.next_after(between), Some(next), "{} in {} after {}", expression, zone, between);
            last = next;
        }
    }

    // covers: SCHED-04
    #[test]
    fn intervals_are_multiples_of_their_anchor(every in 1i64..100_000_000, anchor in 0i64..4_000_000_000_000, after in 0i64..4_000_000_000_000) {
        let slots = Slots::of(&When::Every { every_ms: every.unsigned_abs(), anchor: Timestamp(anchor) }).unwrap();
        let next = slots.next_after(Timestamp(after)).unwrap();
        prop_assert!(next.0 > after && next.0 >= anchor);
        prop_assert_eq!((next.0 - anchor) % every, 0);
        prop_assert!(next.0 == anchor || next.0 - every <= after);
    }

    #[test]
    fn no_expression_and_no_zone_causes_a_panic(expression in "[0-9*,/#LW?@A-Z\\- ]{0,40}", zone in "\\PC{0,20}") {
        let _ = Slots::of(&rule(&expression, &zone));
    }
}

mod again {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::ids::{RootId, ScheduleId};
    use crate::party::Party;
    use crate::schedule::words::instant;
    use crate::schedule::{JobMode, Missed, ScheduleKind};

    const DAY_MS: i64 = 86_400_000;

    fn at(text: &str) -> Timestamp {
        instant("t", text).unwrap()
    }

    fn days(at: Timestamp, days: i64) -> Timestamp {
        Timestamp(at.0.saturating_add(days.saturating_mul(DAY_MS)))
    }

    fn every(minutes: u64, anchor: Timestamp) -> When {
        When::Every { every_ms: minutes * 60_000, anchor }
    }

    fn cron(expression: &str) -> When {
        When::Cron { expression: expression.into(), zone: None }
    }

    /// A schedule that was made at `made` with its first slot.
    fn made(when: When, made: Timestamp) -> Schedule {
        let next_at = Slots::of(&when).unwrap().next_after(made);
        Schedule {
            schedule_id: ScheduleId(Uuid::nil()),
            kind: ScheduleKind::Cron,
            agent_id: "ada".parse().unwrap(),
            name: "job".into(),
            when,
            message: "go".into(),
            missed: Missed::Skip,
            mode: JobMode::default(),
            enabled: true,
            root_id: RootId(Uuid::nil()),
            hop: 0,
            conversation_id: None,
            next_at,
            last_at: None,
            last_status: None,
            runs: 0,
            creator: Party::System,
            created_at: made,
        }
    }

    #[test]
    fn a_slot_that_a_wrong_clock_computed_is_the_next_correct_one_again() {
        let now = at("2026-11-21T10:00Z");
        for ahead in [1, 400, 40_000] {
            let wrong = days(now, ahead);
            for (when, right) in [
                (cron("0 12 * * *"), at("2026-11-21T12:00Z")),
                (cron("*/5 * * * *"), at("2026-11-21T10:05Z")),
                (cron("0 12 1 1 *"), at("2027-01-01T12:00Z")),
                (every(7, wrong), at("2026-11-21T10:07Z")),
                (every(7, days(now, -1)), at("2026-11-21T10:02Z")),
            ] {
                let again = made(when.clone(), wrong).computed_again(None, now);
                if let Some(again) = &again {
                    let next_at = again.next_at.unwrap();
                    assert!(next_at > now && next_at <= right, "{when:?} by {ahead} d: {next_at}");
                }
                assert!(again.is_some() || made(when, wrong).next_at == Some(right));
            }
        }
        // A small step back sets off nothing twice.
        let done = Schedule { next_at: Some(at("2026-11-22T10:00Z")), ..made(cron("0 10 * * *"), days(now, -9)) };
        assert_eq!(done.computed_again(None, at("2026-11-21T09:59:10Z")), None);
        assert!(done.computed_again(None, at("2026-11-21T09:50Z")).is_some());
    }

    #[test]
    fn a_duration_moves_with_the_clock_and_a_date_never() {
        let now = at("2026-11-21T10:00Z");
        let tea = made(When::After { after_ms: 600_000, anchor: now }, now);
        for by in [400, -4_000] {
            let later = now.plus(Duration::from_secs(60));
            let jump = Jump { from: later, to: days(later, by) };
            let moved = tea.computed_again(Some(jump), jump.to).unwrap();
            assert_eq!(moved.next_at, Some(jump.to.plus(Duration::from_secs(540))));
            assert_eq!(moved.when.once_at(), moved.next_at);
            let back = moved.computed_again(Some(Jump { from: jump.to, to: later }), later).unwrap();
            assert_eq!(back, tea);
        }
        // Set by a clock that was ahead, and no jump was seen.
        let wrong = made(tea.when.clone(), days(now, -30)).computed_again(None, days(now, -30)).unwrap();
        assert_eq!(wrong.next_at, Some(days(now, -30).plus(Duration::from_secs(600))));
        let date = made(When::At { at: days(now, 300) }, now);
        let jump = Jump { from: days(now, 90), to: now };
        assert_eq!(date.computed_again(Some(jump), now), None);
        let monday = made(every(60, days(now, 2)), now);
        assert_eq!(monday.computed_again(Some(jump), now), None, "an anchor that a person gave is a date, too");
        // A one-shot that is tried again is not tried later than that.
        let refused = Schedule { next_at: Some(days(now, 400)), ..made(When::At { at: days(now, -1) }, days(now, -2)) };
        assert_eq!(refused.computed_again(None, now).unwrap().next_at, Some(now.plus(TRY_AGAIN)));
        let off = Schedule { next_at: None, ..date };
        assert_eq!(off.computed_again(Some(jump), now), None);
    }

    proptest! {
        #[test]
        fn no_slot_lies_further_ahead_than_its_interval(
            minutes in 1u64..100_000, anchor in any::<i64>(), created in any::<i64>(), next in any::<i64>(), now in any::<i64>(), by in any::<i64>(),
        ) {
            let schedule = Schedule { next_at: Some(Timestamp(next)), ..made(every(minutes, Timestamp(anchor.min(created))), Timestamp(created)) };
            let jump = Jump { from: Timestamp(now.saturating_sub(by)), to: Timestamp(now) };
            let again = schedule.computed_again(Some(jump), Timestamp(now)).unwrap_or(schedule);
            let interval = Duration::from_secs(minutes * 60);
            let latest = Timestamp(now).plus(interval).plus(DONE_MAX);
            // At the very end of time there is no slot.
            if let Some(Timestamp(_)) = Slots::of(&again.when).unwrap().next_after(Timestamp(now).plus(DONE_MAX)) {
                prop_assert!(again.next_at.unwrap() <= latest, "{again:?}");
            }
            for when in [When::After { after_ms: minutes, anchor: Timestamp(anchor) }, When::At { at: Timestamp(anchor) }, cron("0 12 * * *")] {
                let _ = made(when, Timestamp(created)).computed_again(Some(jump), Timestamp(now));
            }
        }
    }
}
