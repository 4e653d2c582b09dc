//! The table of all routes. The router and the OpenAPI document are built from it.
//!
//! A rule must never be here. The behavior of a route is in its handler.

use axum::routing::{get, patch, post};
use ghost_proto::{json, v1};
use serde_json::Value;

use super::route::{Access, Answer, Body, Param, ParamType, Record, Route, Verb};
use super::{admission, events, health, hooks, openapi, reads, session, writes};

const fn param(name: &'static str, kind: ParamType, about: &'static str) -> Param {
    Param { name, kind, about }
}

const LIMIT: Param = param("limit", ParamType::Number, "Maximum number of rows, 1 to 500; 100 by default.");
const CURSOR: Param = param("cursor", ParamType::Text, "The `next_cursor` of the previous page.");
const EVENTS: &[Param] = &[
    param("agent", ParamType::Text, "Only events about this agent."),
    param("channel", ParamType::Text, "Only events about this chat channel."),
    param("after", ParamType::Text, "A sequence number to resume after, or `oldest` or `now`."),
    param("last_event_id", ParamType::Number, "The `id` of the last event that you have seen; replaces `after`."),
    param("ephemeral", ParamType::Flag, "Include model deltas and tool progress, which are never stored."),
    param("unnamed", ParamType::Flag, "Events without a name, for EventSource.onmessage."),
    param("ticket", ParamType::Text, "A ticket in place of the token."),
    param("kind", ParamType::Texts, "Only these kinds, or families such as `turn.*`."),
];

const fn record(message: &'static str, example: fn() -> Value) -> Record {
    Record { message, example }
}

const AGENT: Record = record("Agent", || json::value(&v1::Agent::default()));
const AGENT_AT_WORK: Record = record("GetAgentResponse", || {
    json::value(&v1::GetAgentResponse { agent: Some(v1::Agent::default()), ..Default::default() })
});
const CHANNEL: Record = record("Channel", || json::value(&v1::Channel::default()));
const TASK: Record = record("Task", || json::value(&v1::Task::default()));
const TASK_WITH_HISTORY: Record = record("GetTaskResponse", || {
    json::value(&v1::GetTaskResponse { task: Some(v1::Task::default()), ..Default::default() })
});
const GRANT: Record = record("Grant", || json::value(&v1::Grant::default()));
const ARTIFACT: Record = record("Artifact", || json::value(&v1::Artifact::default()));
const REBUILT: Record = record("RebuildArtifactsResponse", || json::value(&v1::RebuildArtifactsResponse::default()));
const TOTALS: Record = record("LedgerTotalsResponse", || {
    json::value(&v1::LedgerTotalsResponse { totals: vec![v1::CallTotals::default()] })
});
const CALL: Record = record("LedgerRow", || json::value(&v1::LedgerRow::default()));
const SESSIONS: Record = record("ListSessionsResponse", || {
    json::value(&v1::ListSessionsResponse { sessions: vec![v1::Session::default()] })
});
const SKILLS: Record = record("ListSkillsResponse", || {
    json::value(&v1::ListSkillsResponse { skills: vec![v1::Skill::default()], next_cursor: String::new() })
});
const SKILL: Record = record("GetSkillResponse", || {
    json::value(&v1::GetSkillResponse { skill: Some(v1::Skill::default()), document: String::new() })
});
const SESSION: Record = record("GetSessionResponse", || {
    json::value(&v1::GetSessionResponse { entries: vec![v1::SessionEntry::default()], ..Default::default() })
});
const SESSION_RESET: Record = record("ResetSessionResponse", || json::value(&v1::ResetSessionResponse::default()));
const APPROVAL: Record = record("Approval", || json::value(&v1::Approval::default()));
const SENT: Record = record("SendResponse", || writes::sent(&v1::SendResponse::default(), ""));
const ASKED: Record = record("AskResponse", || writes::asked(&v1::AskResponse::default(), ""));
const POSTED: Record = record("PostResponse", || {
    writes::posted(&v1::PostResponse { message: Some(v1::ChatMessage::default()), ..Default::default() })
});

/// A route that reads, for holders of the token.
const fn read(path: &'static str, about: &'static str, params: &'static [Param], answer: Answer) -> Route {
    Route {
        verb: Verb::Get,
        path,
        access: Access::Token,
        about,
        params,
        body: None,
        answer,
        serve: || get(openapi::serve),
    }
}

/// A route that changes something, for holders of the token.
const fn write(verb: Verb, path: &'static str, about: &'static str, body: Body, record: Record) -> Route {
    Route {
        verb,
        path,
        access: Access::Token,
        about,
        params: &[],
        body: Some(body),
        answer: Answer::One(record),
        serve: || get(openapi::serve),
    }
}

/// All routes.
pub(super) const ROUTES: &[Route] = &[
    Route {
        access: Access::Open,
        serve: || get(health::healthz),
        ..read("/healthz", "Whether the process responds.", &[], Answer::Text("text/plain"))
    },
    Route {
        access: Access::Open,
        serve: || get(health::readyz),
        ..read(
            "/readyz",
            "Whether the store reads and writes, and the daemon is not stopping.",
            &[],
            Answer::Text("text/plain"),
        )
    },
    Route {
        access: Access::Setting,
        serve: || get(health::prometheus),
        ..read(
            "/metrics",
            "Metrics for Prometheus; no token is needed if world-config.yaml allows it.",
            &[],
            Answer::Text("text/plain"),
        )
    },
    Route {
        access: Access::Open,
        serve: || get(openapi::serve),
        ..read("/api/openapi.json", "This description.", &[], Answer::Json("An OpenAPI 3.1 document."))
    },
    Route {
        serve: || get(reads::agents),
        ..read(
            "/api/agents",
            "Every agent, in the order of ids.",
            &[
                param("status", ParamType::Text, "Only agents with this status."),
                param("archetype", ParamType::Text, "Only agents of this archetype."),
                param("deleted", ParamType::Flag, "Include deleted agents."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "agents", record: AGENT, truncated: false },
        )
    },
    Route {
        serve: || get(reads::agent),
        ..read("/api/agents/{id}", "One agent and its current work.", &[], Answer::One(AGENT_AT_WORK))
    },
    Route {
        serve: || get(reads::tools),
        ..read(
            "/api/agents/{id}/tools",
            "The tools of an agent.",
            &[],
            Answer::Json("An array of objects with `name` and `description`."),
        )
    },
    Route {
        serve: || get(reads::brief),
        ..read("/api/agents/{id}/tools/brief", "The same, a line for each tool.", &[], Answer::Text("text/plain"))
    },
    Route {
        serve: || get(reads::skills),
        ..read(
            "/api/skills",
            "The skills of the world, or those that an agent may hold.",
            &[
                param(
                    "agent",
                    ParamType::Text,
                    "Only the skills that this agent may hold, and which of them it holds.",
                ),
                param("limit", ParamType::Number, "Maximum number of skills, 1 to 500; 100 by default."),
                param("cursor", ParamType::Text, "`next_cursor` of the page before."),
            ],
            Answer::One(SKILLS),
        )
    },
    Route {
        serve: || get(reads::skill),
        ..read("/api/skills/{name}", "A skill with its text.", &[], Answer::One(SKILL))
    },
    Route {
        serve: || get(reads::approvals),
        ..read(
            "/api/approvals",
            "Calls that wait for an operator, newest first.",
            &[
                param("agent", ParamType::Text, "Only calls of this agent."),
                param("status", ParamType::Text, "Only this status, or `all`; `pending` by default."),
                param("always", ParamType::Flag, "Only approvals that hold for later calls."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "approvals", record: APPROVAL, truncated: false },
        )
    },
    Route {
        serve: || get(reads::approval),
        ..read("/api/approvals/{id}", "An approval with exactly what its call would do.", &[], Answer::One(APPROVAL))
    },
    Route {
        serve: || post(writes::decide),
        ..write(
            Verb::Post,
            "/api/approvals/{id}/decide",
            "Lets a call run, or refuses it.",
            Body { message: "DecideApprovalRequest", fields: &["approve", "always", "note", "digest", "fields"] },
            APPROVAL,
        )
    },
    Route {
        serve: || post(writes::revoke),
        ..write(
            Verb::Post,
            "/api/approvals/{id}/revoke",
            "Ends an approval that holds for later calls.",
            Body { message: "RevokeApprovalRequest", fields: &[] },
            APPROVAL,
        )
    },
    Route {
        serve: || get(reads::sessions),
        ..read(
            "/api/agents/{id}/sessions",
            "The sessions of an agent, the last active first.",
            &[
                param(
                    "since",
                    ParamType::Text,
                    "Only sessions that were active since then: a duration such as 24h, or milliseconds since 1970.",
                ),
                param("limit", ParamType::Number, "Maximum number of sessions, 1 to 500; 100 by default."),
            ],
            Answer::One(SESSIONS),
        )
    },
    Route {
        serve: || get(reads::session),
        ..read(
            "/api/agents/{id}/sessions/{session}",
            "What was said and done in a session, oldest first. `own` is the session of the agent's own work.",
            &[
                param("before", ParamType::Text, "Only turns before this one: `earlier_turn_id` of the page before."),
                param("limit", ParamType::Number, "Maximum number of turns, 1 to 100; 20 by default."),
            ],
            Answer::One(SESSION),
        )
    },
    Route {
        serve: || post(writes::reset_session),
        ..write(
            Verb::Post,
            "/api/agents/{id}/sessions/{session}/reset",
            "Begins a session anew: later prompts hold nothing of what was before.",
            Body { message: "ResetSessionRequest", fields: &[] },
            SESSION_RESET,
        )
    },
    Route {
        serve: || post(writes::send),
        ..write(
            Verb::Post,
            "/api/agents/{id}/messages",
            "Puts a message into an agent's inbox. Answered when it is committed.",
            Body { message: "SendRequest", fields: &["body", "subject", "attachments"] },
            SENT,
        )
    },
    Route {
        serve: || post(writes::ask),
        ..write(
            Verb::Post,
            "/api/agents/{id}/ask",
            "Asks an agent and waits for the answer. A repetition with the same key waits for the same ask.",
            Body { message: "AskRequest", fields: &["body", "timeout_ms"] },
            ASKED,
        )
    },
    Route {
        serve: || get(reads::channels),
        ..read(
            "/api/channels",
            "Chat channels, in the order of names.",
            &[param("agent", ParamType::Text, "Only channels of this agent."), LIMIT, CURSOR],
            Answer::Page { name: "channels", record: CHANNEL, truncated: false },
        )
    },
    Route {
        serve: || get(reads::messages),
        ..read(
            "/api/channels/{name}/messages",
            "Chat messages of a channel, in the order of sequence.",
            &[
                param("limit", ParamType::Number, "Maximum number of chat messages, 1 to 500; 50 by default."),
                param("before", ParamType::Number, "Only chat messages before this sequence."),
                param("after", ParamType::Number, "Only chat messages after this sequence."),
            ],
            Answer::Json("An object with `messages` and `truncated`."),
        )
    },
    Route {
        serve: || post(writes::chat),
        ..write(
            Verb::Post,
            "/api/channels/{name}/messages",
            "Posts a chat message in a channel.",
            Body { message: "PostRequest", fields: &["content", "reply_to", "as_agent", "deliver"] },
            POSTED,
        )
    },
    Route {
        serve: || get(reads::tasks),
        ..read(
            "/api/tasks",
            "Tasks, highest priority first, then oldest first.",
            &[
                param("owner", ParamType::Text, "Only tasks of this agent."),
                param("status", ParamType::Text, "Only tasks with this status."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "tasks", record: TASK, truncated: true },
        )
    },
    Route {
        serve: || post(writes::create_task),
        ..write(
            Verb::Post,
            "/api/tasks",
            "Creates a task and puts it into its owner's inbox.",
            Body {
                message: "CreateTaskRequest",
                fields: &["title", "description", "owner", "priority", "depends_on", "parent_id", "due_at_ms"],
            },
            TASK,
        )
    },
    Route {
        serve: || get(reads::task),
        ..read("/api/tasks/{id}", "A task with its history.", &[], Answer::One(TASK_WITH_HISTORY))
    },
    Route {
        serve: || patch(writes::update_task),
        ..write(
            Verb::Patch,
            "/api/tasks/{id}",
            "Changes the fields of a task that are given.",
            Body {
                message: "UpdateTaskRequest",
                fields: &[
                    "status",
                    "owner",
                    "title",
                    "description",
                    "priority",
                    "result",
                    "due_at_ms",
                    "note",
                    "reopen",
                    "depends_on",
                ],
            },
            TASK,
        )
    },
    Route {
        serve: || get(reads::grants),
        ..read(
            "/api/grants",
            "The write grants that hold now, oldest first.",
            &[param("agent", ParamType::Text, "Only grants of this agent."), LIMIT, CURSOR],
            Answer::Page { name: "grants", record: GRANT, truncated: false },
        )
    },
    Route {
        serve: || post(writes::add_grant),
        ..write(
            Verb::Post,
            "/api/agents/{id}/grants",
            "Lets an agent write to a directory for some time.",
            Body { message: "AddGrantRequest", fields: &["prefix", "lasts_ms", "source", "reason"] },
            GRANT,
        )
    },
    Route {
        serve: || post(writes::revoke_grant),
        ..write(
            Verb::Post,
            "/api/grants/{id}/revoke",
            "Takes a write grant back.",
            Body { message: "RevokeGrantRequest", fields: &[] },
            GRANT,
        )
    },
    Route {
        serve: || get(reads::artifacts),
        ..read(
            "/api/artifacts",
            "The files under output/, by path.",
            &[
                param("agent", ParamType::Text, "Only files that this agent changed last."),
                param("prefix", ParamType::Text, "Only files whose path begins with this text."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "artifacts", record: ARTIFACT, truncated: false },
        )
    },
    Route {
        serve: || post(writes::rebuild_artifacts),
        ..write(
            Verb::Post,
            "/api/artifacts/rebuild",
            "Corrects the record of artifacts after the files, and makes shared/manifests/index.jsonl anew.",
            Body { message: "RebuildArtifactsRequest", fields: &[] },
            REBUILT,
        )
    },
    Route {
        serve: || get(reads::ledger_totals),
        ..read(
            "/api/ledger/totals",
            "Sums of tool calls by tool and status.",
            &[
                param("agent", ParamType::Text, "Only calls of this agent."),
                param("tool", ParamType::Text, "Only calls of this tool."),
                param("status", ParamType::Text, "Only calls with this status."),
                param("turn", ParamType::Text, "Only calls of this turn."),
                param(
                    "since",
                    ParamType::Text,
                    "Only calls since then: a span such as `24h`, or milliseconds since 1970.",
                ),
            ],
            Answer::One(TOTALS),
        )
    },
    Route {
        serve: || get(reads::ledger),
        ..read(
            "/api/ledger",
            "Tool calls, newest first.",
            &[
                param("agent", ParamType::Text, "Only calls of this agent."),
                param("tool", ParamType::Text, "Only calls of this tool."),
                param("status", ParamType::Text, "Only calls with this status."),
                param("turn", ParamType::Text, "Only calls of this turn."),
                param(
                    "since",
                    ParamType::Text,
                    "Only calls since then: a span such as `24h`, or milliseconds since 1970.",
                ),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "calls", record: CALL, truncated: false },
        )
    },
    Route {
        verb: Verb::Post,
        serve: || post(admission::issue),
        ..read(
            "/api/events/ticket",
            "Issues a ticket that opens one stream, once, within 30 seconds.",
            &[],
            Answer::Json("An object with `ticket` and `expires_at`."),
        )
    },
    Route {
        verb: Verb::Post,
        access: Access::Bearer,
        serve: || post(session::issue),
        ..read(
            "/api/session",
            "Issues a cookie that replaces the token in this browser for 12 hours.",
            &[],
            Answer::Json("An object with `expires_at`; the cookie is HttpOnly."),
        )
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::server_sent_events),
        ..read("/api/events", "Events as they happen.", EVENTS, Answer::Text("text/event-stream"))
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::server_sent_events),
        ..read("/api/events/stream", "The same as /api/events.", EVENTS, Answer::Text("text/event-stream"))
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::socket),
        ..read(
            "/api/events/ws",
            "The same events over a WebSocket, one event per frame.",
            EVENTS,
            Answer::Text("application/json"),
        )
    },
    Route {
        verb: Verb::Post,
        access: Access::Signed,
        serve: || post(hooks::inbound),
        ..read(
            "/hooks/{name}",
            "A message from outside, signed with the webhook's secret.",
            &[],
            Answer::Json("An object with `conversation_id`, `message_id`, `seq` and `thread`."),
        )
    },
];
