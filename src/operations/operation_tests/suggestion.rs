//! Suggestions are searched outside the writer, among a limited number of names.

use super::operation_world::*;
use super::schedule_helpers::*;

world_test!(suggestions_for_schedules_and_channels_are_searched_after_the_command, async |world| {
    world.limits(|limits| limits.timers_max = 3_000);
    // The first names of the list do not include the intended one.
    for n in 0..1_100 {
        timer(&world, &format!("a{n:04}"), Duration::from_secs(60)).await;
    }
    timer(&world, "tea", Duration::from_secs(60)).await;
    let within = run!(world, |w| schedules::named(w, &id("ada"), ScheduleKind::Timer, "tee")).unwrap_err();
    let unknown = json!({ "unknown": { "schedule": { "agent_id": "ada", "kind": "timer", "name": "tee" } } });
    assert_eq!((within.code, within.details.clone()), (Code::NotFound, Some(unknown)), "nothing is looked for in it");
    let refusal = world.with_suggestion(within).await;
    assert_eq!((refusal.code, refusal.details), (Code::NotFound, None));
    assert!(refusal.hint.unwrap().contains("`tea`"));
    // A name without a similar one keeps its own hint.
    let far = run!(world, |w| schedules::named(w, &id("ada"), ScheduleKind::Timer, "zzzzzz")).unwrap_err();
    let refusal = world.with_suggestion(far.clone()).await;
    assert_eq!((refusal.hint, refusal.details), (far.hint, None));

    world.channel(party("ada"), new_channel("news", &["bob"])).await.unwrap();
    let wanted: ChannelName = "newz".parse().unwrap();
    let name = wanted.clone();
    let within = run!(world, |w| chat::channel_named(w, &name)).unwrap_err();
    assert_eq!(within.details, Some(json!({ "unknown": { "channel": "newz" } })), "nothing is looked for in it");
    let refusal = world.with_suggestion(within).await;
    assert_eq!((refusal.code, refusal.details), (Code::NotFound, None));
    assert!(refusal.hint.unwrap().contains("`news`"));
    let queried = read!(world, |r| chat::channel_named(r, &wanted).unwrap_err());
    assert_eq!(queried.details, None);
    assert!(queried.hint.unwrap().contains("`news`"));
});
