//! Near names are looked for outside the writer, among a bounded number.

use std::time::Duration;

use ghost_domain::{ChannelName, Code, ScheduleKind};
use serde_json::json;

use super::rig::{Rig, id, party, read, write};
use super::schedules_rig::timer;
use crate::{chat, schedules};

#[tokio::test]
async fn the_nearest_schedule_and_channel_are_looked_for_when_the_command_is_over() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.timers_max = 3_000);
    // The list of an agent's timers ends before the one that is meant.
    for n in 0..1_100 {
        timer(&rig, &format!("a{n:04}"), Duration::from_secs(60)).await;
    }
    timer(&rig, "tea", Duration::from_secs(60)).await;
    let within = write!(rig, |w, ctx| schedules::named(w, &id("ada"), ScheduleKind::Timer, "tee").await).unwrap_err();
    let unknown = json!({ "unknown": { "schedule": { "agent_id": "ada", "kind": "timer", "name": "tee" } } });
    assert_eq!((within.code, within.details.clone()), (Code::NotFound, Some(unknown)), "nothing is looked for in it");
    let told = rig.told(within).await;
    assert_eq!((told.code, told.hint.as_deref(), told.details), (Code::NotFound, Some("did you mean `tea`?"), None));
    // One that is near to none keeps its own hint.
    let far = write!(rig, |w, ctx| schedules::named(w, &id("ada"), ScheduleKind::Timer, "zzzzzz").await).unwrap_err();
    let told = rig.told(far.clone()).await;
    assert_eq!((told.hint, told.details), (far.hint, None));

    let news = chat::NewChannel {
        channel: "news".parse().unwrap(),
        members: vec![id("ada"), id("bob")],
        gated: false,
        skip_creator: false,
        topic: None,
    };
    let by = chat::Speaker::from(party("ada"));
    write!(rig, |w, ctx| chat::create(w, &ctx, &by, news).await).unwrap();
    let wanted: ChannelName = "newz".parse().unwrap();
    let name = wanted.clone();
    let within = write!(rig, |w, ctx| chat::channel_named(w, &name).await).unwrap_err();
    assert_eq!(within.details, Some(json!({ "unknown": { "channel": "newz" } })), "nothing is looked for in it");
    let told = rig.told(within).await;
    assert_eq!((told.code, told.hint.as_deref(), told.details), (Code::NotFound, Some("did you mean `news`?"), None));
    let queried = read!(rig, |r| chat::channel_named(r, &wanted).await.unwrap_err());
    assert_eq!((queried.hint.as_deref(), queried.details), (Some("did you mean `news`?"), None));
}
