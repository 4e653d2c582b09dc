//! The services `Conversations` and `Sessions`: what is said with people outside the world, and what each agent remembers of it.

mod watch;

use ghost_domain::conversation::{CONTROL, mime_of};
use ghost_domain::session::name_of;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Attachment, Code, Conversation, ConversationId, Refusal, Timestamp, TurnId};
use ghost_operations::approvals::{self, ApproveCommand};
use ghost_operations::conversations::{self as rules, Handover, IncomingMessage, Received, Start};
use ghost_operations::mail::{self, Chain};
use ghost_operations::sessions::{self, HISTORY_MAX, SessionEntry, cut_page, session_named};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_world::World;

use crate::convert;
use crate::convert::input::{self, Position};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;
use crate::streams::PermitStream;

/// Largest length of a reason, in characters.
const REASON_MAX: usize = 1_000;

/// Workspace files as attachments. Each must exist, and be no larger than `attachment_bytes`.
fn attachments(world: &World, paths: &[String]) -> Result<Vec<Attachment>> {
    let limit = world.ctx().limits().attachment_bytes;
    let mut files = Vec::new();
    for path in input::paths("attachments", paths)? {
        let bytes = world.engine().services.workspace.size_now(&WorkspacePath::parse(&path, false)?)?;
        if bytes > u64::from(limit) {
            let what = format!("`{path}` has {bytes} bytes; the maximum is {limit}");
            return Err(Refusal::new(Code::TooLarge, what).hint("attach a smaller file, or a part of it"));
        }
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        files.push(Attachment { mime_type: mime_of(&name).to_owned(), name, path, bytes });
    }
    Ok(files)
}

/// Where a message goes to, and the message.
fn heard(
    cx: &Mutation,
    request: &v1::SayRequest,
) -> Result<(Option<ConversationId>, Option<AgentId>, IncomingMessage)> {
    let world = &cx.world;
    let conversation_id: Option<ConversationId> =
        input::parsed_if("conversation_id", request.conversation_id.as_deref())?;
    let agent_id: Option<AgentId> = input::parsed_if("agent_id", request.agent_id.as_deref())?;
    if conversation_id.is_some() == agent_id.is_some() {
        return Err(input::bad("agent_id", "or conversation_id is needed, but not both")
            .hint("name the agent to begin a conversation, or the conversation to continue"));
    }
    let message = IncomingMessage {
        from: cx.by.clone(),
        content: input::prose("content", &request.content, world.ctx().limits().message_bytes)?,
        attachments: attachments(world, &request.attachments)?,
        reply_to: None,
        external_id: None,
    };
    Ok((conversation_id, agent_id, message))
}

async fn say_once(cx: &Mutation, request: &v1::SayRequest) -> Result<Received> {
    let (conversation_id, agent_id, message) = heard(cx, request)?;
    if let Some(command) = ApproveCommand::read(&message.content) {
        return approve(cx, conversation_id, command?).await;
    }
    cx.once(move |w, by| match (conversation_id, agent_id) {
        (Some(id), _) => rules::say(w, id, message),
        (None, Some(owner)) => {
            let start = Start { adapter: CONTROL.to_owned(), thread: None, owner, party: by.clone() };
            rules::arrive(w, start, message)
        }
        // Refused above.
        (None, None) => Err(Refusal::new(Code::InvalidArguments, "neither an agent nor a conversation is named")),
    })
    .await
}

/// Answers an approval from within a conversation.
async fn approve(cx: &Mutation, conversation_id: Option<ConversationId>, command: ApproveCommand) -> Result<Received> {
    let conversation_id = conversation_id.ok_or_else(|| {
        input::bad("content", "is an answer to an approval, but no conversation is named")
            .hint("answer in a conversation, or with `ghostctl approval approve`")
    })?;
    let world = &cx.world;
    let whole = queries::beginning_with(world, "approval", &command.typed_id).await?;
    let answer = (input::parsed("content", &whole)?, command.decision, command.note);
    let approvers = world.plan().approvals.approvers.clone();
    cx.once(move |w, by| approvals::decide_in_conversation(w, by, &approvers, conversation_id, answer)).await
}

pub(crate) async fn list(cx: Query, request: v1::ListConversationsRequest) -> Result<v1::ListConversationsResponse> {
    let owner = queries::agent_in_filter(&cx.world, "owner", request.owner.as_deref()).await?;
    let after = input::position_of("conversations", &request.cursor)?;
    let after = after.map(|after| (after.at, ConversationId(after.id)));
    let read = move |r: &mut Tx, most| r.conversation_list(owner.as_ref(), after, most);
    let position = |row: &Conversation| Position { at: row.updated_at, id: row.conversation_id.0 }.cursor();
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    let (conversations, next_cursor) = page.sealed("conversations", convert::conversation);
    Ok(v1::ListConversationsResponse { conversations, truncated: false, next_cursor })
}

pub(crate) async fn get(cx: Query, request: v1::GetConversationRequest) -> Result<v1::GetConversationResponse> {
    let after = request.after_seq.unwrap_or(0);
    if after < 0 {
        return Err(input::bad("after_seq", format!("is {after}")).hint("give 0 or the seq of an entry"));
    }
    let limit = u32::try_from(input::page(request.limit)).unwrap_or(u32::MAX);
    let id = input::parsed("conversation_id", &request.conversation_id)?;
    let (conversation, entries) = queries::conversation(&cx.world, id, after, limit).await?;
    if after > conversation.last_seq {
        return Err(queries::beyond_the_end(&conversation, after));
    }
    let redactor = cx.redactor();
    let (entries, _) =
        queries::within_bytes(entries.iter().map(|entry| convert::conversation_entry(entry, redactor)), false);
    let more = entries.last().is_some_and(|last| last.seq < conversation.last_seq);
    Ok(v1::GetConversationResponse { conversation: Some(convert::conversation(&conversation)), entries, more })
}

fn handover(request: &v1::HandoffConversationRequest, chain: Chain) -> Result<(ConversationId, Handover)> {
    let id = input::parsed("conversation_id", &request.conversation_id)?;
    let to = input::parsed("agent_id", &request.agent_id)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    Ok((id, Handover { to, reason, summary: None, chain }))
}

pub(crate) async fn check_attachments(
    cx: Query,
    request: v1::CheckAttachmentsRequest,
) -> Result<v1::CheckAttachmentsResponse> {
    let found = attachments(&cx.world, &request.attachments)?;
    let attachments = found.iter().map(convert::attachment).collect();
    Ok(v1::CheckAttachmentsResponse { attachments })
}

pub(crate) async fn say(cx: Mutation, request: v1::SayRequest) -> Result<v1::SayResponse> {
    let heard = say_once(&cx, &request).await?;
    Ok(v1::SayResponse {
        conversation: Some(convert::conversation(&heard.conversation)),
        entry: Some(convert::conversation_entry(&heard.entry, cx.redactor())),
    })
}

pub(crate) async fn watch(cx: Query, request: v1::WatchConversationRequest) -> Result<PermitStream<watch::Item>> {
    if request.after_seq < 0 {
        return Err(input::bad("after_seq", "is negative").hint("give 0 or the seq of an entry"));
    }
    let id = input::parsed("conversation_id", &request.conversation_id)?;
    watch::open(&cx, id, request.after_seq, cx.peer.clone()).await
}

pub(crate) async fn handoff(cx: Mutation, request: v1::HandoffConversationRequest) -> Result<v1::Conversation> {
    let (id, handover) = handover(&request, Chain::root(cx.world.ctx()))?;
    let conversation = cx.once(move |w, by| rules::handoff(w, by, id, handover)).await?;
    Ok(convert::conversation(&conversation))
}

pub(crate) async fn end(cx: Mutation, request: v1::EndConversationRequest) -> Result<v1::Conversation> {
    let id = input::parsed("conversation_id", &request.conversation_id)?;
    let reason = input::line_if("reason", request.reason.as_deref(), REASON_MAX)?;
    let result = cx.once(move |w, by| rules::end(w, by, id, reason.as_deref())).await;
    Ok(convert::conversation(&result?))
}

pub(crate) async fn redeliver(cx: Mutation, request: v1::RedeliverRequest) -> Result<v1::ConversationEntry> {
    let (typed, seq) = (&request.conversation_id, request.seq);
    let id = input::parsed("conversation_id", typed)?;
    let entry = cx.once(move |w, by| rules::redeliver(w, by, id, seq)).await?;
    Ok(convert::conversation_entry(&entry, cx.redactor()))
}

/// Number of turns in one response by default.
const SESSION_TURNS: u32 = 20;

/// The agent and the session of a request.
fn session_of(agent_id: &str, session: &str) -> Result<(AgentId, Option<ConversationId>)> {
    Ok((input::parsed("agent_id", agent_id)?, session_named(session)?))
}

pub(crate) async fn list_sessions(cx: Query, request: v1::ListSessionsRequest) -> Result<v1::ListSessionsResponse> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let since = input::instant("since_at_ms", request.since_at_ms)?.unwrap_or(Timestamp(i64::MIN));
    let read = cx.world.store().read(move |r| {
        mail::agent_named(r, &agent_id)?;
        sessions::list(r, &agent_id, since, request.limit)
    });
    let sessions = read.await?.into_iter().map(|row| v1::Session {
        session: name_of(row.conversation_id),
        turns: row.turns,
        last_at_ms: row.last_at.0,
    });
    Ok(v1::ListSessionsResponse { sessions: sessions.collect() })
}

pub(crate) async fn get_session(cx: Query, request: v1::GetSessionRequest) -> Result<v1::GetSessionResponse> {
    let (agent_id, conversation_id) = session_of(&request.agent_id, &request.session)?;
    let before = input::parsed_if("before_turn_id", request.before_turn_id.as_deref())?;
    let turns = if request.limit == 0 { SESSION_TURNS } else { request.limit.min(HISTORY_MAX) };
    let read = cx.world.store().read(move |r| {
        mail::agent_named(r, &agent_id)?;
        sessions::history(r, &agent_id, conversation_id, before, turns)
    });
    let history = read.await?;
    let redactor = cx.redactor();
    let entry = |entry: &SessionEntry| v1::SessionEntry {
        turn_id: entry.turn_id.to_string(),
        at_ms: entry.at.0,
        author: entry.author.as_str().to_owned(),
        tool: entry.tool.as_deref().map(|tool| redactor.redact(tool)),
        text: redactor.redact(&entry.text),
    };
    // The newest entries are kept; a client that asks for fewer turns gets the rest.
    let (mut entries, truncated) = queries::within_bytes(history.entries.iter().rev().map(entry), false);
    let turns: Vec<TurnId> = history.entries.iter().rev().map(|entry| entry.turn_id).collect();
    let (shown, earlier) = cut_page(&turns, entries.len(), history.earlier);
    entries.truncate(shown);
    entries.reverse();
    Ok(v1::GetSessionResponse { entries, truncated, earlier_turn_id: earlier.map(|turn_id| turn_id.to_string()) })
}

pub(crate) async fn reset_session(cx: Mutation, request: v1::ResetSessionRequest) -> Result<v1::ResetSessionResponse> {
    let (agent_id, conversation_id) = session_of(&request.agent_id, &request.session)?;
    let reset = cx.once(move |w, by| {
        mail::agent_named(w, &agent_id)?;
        sessions::reset(w, by, &agent_id, conversation_id)
    });
    let changed = reset.await?;
    cx.world.engine().forget_logs();
    Ok(v1::ResetSessionResponse { changed })
}
