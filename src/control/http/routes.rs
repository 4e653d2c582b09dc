//! The one table of routes: the router serves it, and the description is made from it.
//!
//! Must never: hold a rule. What a route does stands with its handler.

use axum::routing::{get, patch, post};
use ghost_proto::v1;
use serde_json::Value;

use super::route::{Access, Answer, Body, Holds, Param, Record, Route, Verb};
use super::{admission, events, health, hooks, openapi, reads, session, writes};

const fn param(name: &'static str, holds: Holds, about: &'static str) -> Param {
    Param { name, holds, about }
}

const LIMIT: Param = param("limit", Holds::Number, "Most rows, 1 to 500; 100 unless it is given.");
const CURSOR: Param = param("cursor", Holds::Text, "The `next_cursor` of the page before.");
const EVENTS: &[Param] = &[
    param("agent", Holds::Text, "Only events about this agent."),
    param("channel", Holds::Text, "Only events about this chat channel."),
    param("after", Holds::Text, "A sequence to go on after, `oldest` or `now`."),
    param("ephemeral", Holds::Flag, "With model deltas and tool progress, which are never stored."),
    param("unnamed", Holds::Flag, "Events without a name, for EventSource.onmessage."),
    param("ticket", Holds::Text, "A ticket in place of the token."),
    param("kind", Holds::Texts, "Of these kinds, or families such as `turn.*`."),
];

const fn record(message: &'static str, like: fn() -> Value) -> Record {
    Record { message, like }
}

const AGENT: Record = record("Agent", || ghost_record::agent(&v1::Agent::default()));
const AGENT_AT_WORK: Record = record("GetAgentResponse", || {
    ghost_record::agent_at_work(&v1::GetAgentResponse { agent: Some(v1::Agent::default()), ..Default::default() })
});
const CHANNEL: Record = record("Channel", || ghost_record::channel(&v1::Channel::default()));
const TASK: Record = record("Task", || ghost_record::task(&v1::Task::default()));
const TASK_WITH_HISTORY: Record = record("GetTaskResponse", || {
    ghost_record::task_with_history(&v1::GetTaskResponse { task: Some(v1::Task::default()), ..Default::default() })
});
const CALL: Record = record("LedgerRow", || ghost_record::ledger_row(&v1::LedgerRow::default()));
const SENT: Record = record("SendResponse", || writes::sent(&v1::SendResponse::default(), ""));
const ASKED: Record = record("AskResponse", || writes::asked(&v1::AskResponse::default(), ""));
const POSTED: Record = record("PostResponse", || {
    writes::posted(&v1::PostResponse { message: Some(v1::ChatMessage::default()), ..Default::default() })
});

/// A route that is read, by whoever holds the token.
const fn read(path: &'static str, about: &'static str, params: &'static [Param], answer: Answer) -> Route {
    Route {
        verb: Verb::Get,
        path,
        access: Access::Token,
        about,
        params,
        body: None,
        answer,
        serve: || get(openapi::described),
    }
}

/// A route that changes something, for whoever holds the token.
const fn write(verb: Verb, path: &'static str, about: &'static str, body: Body, of: Record) -> Route {
    Route {
        verb,
        path,
        access: Access::Token,
        about,
        params: &[],
        body: Some(body),
        answer: Answer::One(of),
        serve: || get(openapi::described),
    }
}

/// All of them.
pub(super) const ROUTES: &[Route] = &[
    Route {
        access: Access::Open,
        serve: || get(health::healthz),
        ..read("/healthz", "Whether the process answers.", &[], Answer::Text("text/plain"))
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
        serve: || get(health::figures),
        ..read("/metrics", "Figures for Prometheus; open if the world file says so.", &[], Answer::Text("text/plain"))
    },
    Route {
        access: Access::Open,
        serve: || get(openapi::described),
        ..read("/api/openapi.json", "This description.", &[], Answer::Json("An OpenAPI 3.1 document."))
    },
    Route {
        serve: || get(reads::agents),
        ..read(
            "/api/agents",
            "Every agent, in the order of ids.",
            &[
                param("status", Holds::Text, "With this status only."),
                param("archetype", Holds::Text, "Of this archetype only."),
                param("deleted", Holds::Flag, "Tombstones, too."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "agents", of: AGENT, truncated: false },
        )
    },
    Route {
        serve: || get(reads::agent),
        ..read("/api/agents/{id}", "One agent and what it works on.", &[], Answer::One(AGENT_AT_WORK))
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
            "Asks an agent and waits for the answer. Sent again with the same key it goes on waiting for the same ask.",
            Body { message: "AskRequest", fields: &["body", "timeout_ms"] },
            ASKED,
        )
    },
    Route {
        serve: || get(reads::channels),
        ..read(
            "/api/channels",
            "Chat channels, in the order of names.",
            &[param("agent", Holds::Text, "Only channels of this agent."), LIMIT, CURSOR],
            Answer::Page { name: "channels", of: CHANNEL, truncated: false },
        )
    },
    Route {
        serve: || get(reads::messages),
        ..read(
            "/api/channels/{name}/messages",
            "Posts of a channel, in the order of sequence.",
            &[
                param("limit", Holds::Number, "Most posts, 1 to 500; 50 unless it is given."),
                param("before", Holds::Number, "Only posts before this sequence."),
                param("after", Holds::Number, "Only posts after this sequence."),
            ],
            Answer::Json("An object with `messages` and `truncated`."),
        )
    },
    Route {
        serve: || post(writes::chat),
        ..write(
            Verb::Post,
            "/api/channels/{name}/messages",
            "Posts in a channel.",
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
                param("owner", Holds::Text, "Tasks of this agent only."),
                param("status", Holds::Text, "Tasks with this status only."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "tasks", of: TASK, truncated: true },
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
        serve: || get(reads::ledger),
        ..read(
            "/api/ledger",
            "Tool calls, newest first.",
            &[
                param("agent", Holds::Text, "Calls of this agent only."),
                param("tool", Holds::Text, "Calls of this tool only."),
                param("status", Holds::Text, "Calls with this status only."),
                param("turn", Holds::Text, "Calls of this turn only."),
                param("since", Holds::Text, "Such as `24h`, or milliseconds since 1970."),
                LIMIT,
                CURSOR,
            ],
            Answer::Page { name: "calls", of: CALL, truncated: false },
        )
    },
    Route {
        verb: Verb::Post,
        serve: || post(admission::issue),
        ..read(
            "/api/events/ticket",
            "A ticket that opens one stream, within 30 seconds and once.",
            &[],
            Answer::Json("An object with `ticket` and `expires_at`."),
        )
    },
    Route {
        verb: Verb::Post,
        access: Access::Bearer,
        serve: || post(session::begin),
        ..read(
            "/api/session",
            "A cookie that stands for the token in this browser, for 12 hours.",
            &[],
            Answer::Json("An object with `expires_at`; the cookie is HttpOnly."),
        )
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::sent),
        ..read("/api/events", "Events as they happen.", EVENTS, Answer::Text("text/event-stream"))
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::sent),
        ..read("/api/events/stream", "The same as /api/events.", EVENTS, Answer::Text("text/event-stream"))
    },
    Route {
        access: Access::Ticket,
        serve: || get(events::socket),
        ..read(
            "/api/events/ws",
            "The same as a WebSocket, one event a frame.",
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
