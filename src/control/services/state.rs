//! The `State` service: shared state.

use ghost_domain::StateEntry;
use ghost_operations::shared_state::{self as rules, Listed, Setting};
use ghost_proto::v1;

use crate::act_as::Acting;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

pub(crate) async fn get(cx: Query, request: v1::GetStateRequest) -> Result<v1::StateEntry> {
    let found: StateEntry = cx.world.store().read(move |r| rules::get(r, &request.key)).await?;
    Ok(convert::state_entry(&found, cx.redactor()))
}

pub(crate) async fn list(cx: Query, request: v1::ListStateRequest) -> Result<v1::ListStateResponse> {
    let after = input::unseal("state", &request.cursor)?.to_owned();
    let limit = u32::try_from(input::page(request.limit)).unwrap_or(u32::MAX);
    let listed: Listed = cx.world.store().read(move |r| rules::list(r, &request.prefix, &after, limit)).await?;
    let redactor = cx.redactor();
    let entries = listed.entries.iter().map(|entry| convert::state_entry(entry, redactor));
    let (entries, next_cursor) = queries::sealed("state", entries, listed.more, |last| &last.key);
    Ok(v1::ListStateResponse { entries, next_cursor })
}

pub(crate) async fn set(cx: Mutation, request: v1::SetStateRequest) -> Result<v1::StateEntry> {
    let acting = Acting::read(&cx, request.as_agent.as_deref())?;
    let new = Setting {
        value: input::json("value_json", &request.value_json, cx.world.ctx().limits().state_bytes)?,
        key: request.key,
        expected_version: request.expected_version,
    };
    let entry: StateEntry = cx
        .once(move |w, by| {
            let author = acting.author(w, by, "syscall.state.write")?;
            rules::set(w, &author.by, author.through.as_ref(), new)
        })
        .await?;
    Ok(convert::state_entry(&entry, cx.redactor()))
}
