//! Routes that write: messages, asks, tasks and chat messages. They call the gRPC services. The
//! header `Idempotency-Key` becomes the `request_id`.
//!
//! A route must never have an effect that gRPC would not have. A request that is sent twice with
//! one key must never be carried out twice.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, Uri, header};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{Code, Refusal, RequestId};
use ghost_proto::{json, v1};
use serde_json::{Map, Value, json};

use super::failed::Failed;
use super::params::Params;
use super::reads::{Named, NamedSession, named, named_session};
use super::rest::Shared;
use crate::convert::input::{bad, strict_json};
use crate::services::{approvals, artifacts, chat, grants, messages, sessions, tasks};

type Answer = Result<Json<Value>, Failed>;
type RawBody = Result<Bytes, BytesRejection>;

/// The header that carries the `request_id`.
const KEY_HEADER: &str = "idempotency-key";

/// A checked write request.
struct Write {
    request_id: String,
    fields: Fields,
}

/// The fields of the body.
struct Fields(Map<String, Value>);

impl Write {
    /// Reads the key and the body. A field outside `known` is refused as a typo.
    fn read(uri: &Uri, headers: &HeaderMap, body: RawBody, known: &[&str]) -> Result<Self, Refusal> {
        Params::read(uri, &[], &[])?;
        let hint = "send a fresh UUID for each change, and the same one when you send it again";
        let key = headers.get(KEY_HEADER).ok_or_else(|| bad("Idempotency-Key", "is missing").hint(hint))?;
        let key = key.to_str().ok().and_then(|key| key.trim_matches('"').parse::<RequestId>().ok());
        let key = key.ok_or_else(|| bad("Idempotency-Key", "is not 1 to 128 printable ASCII characters").hint(hint))?;
        // An HTML form cannot send this type, and a page of another origin must send a preflight
        // request before it can (CSRF).
        let content_type =
            headers.get(header::CONTENT_TYPE).and_then(|content_type| content_type.to_str().ok()).unwrap_or_default();
        let content_type = content_type.split(';').next().unwrap_or_default().trim();
        if !content_type.eq_ignore_ascii_case("application/json") {
            return Err(bad("Content-Type", "is not application/json").hint("send a JSON object, and say so"));
        }
        let body = body.map_err(|rejection| {
            Refusal::new(Code::TooLarge, format!("the body cannot be read: {}", rejection.body_text()))
                .hint("send less, or write the long part to a workspace file and name its path")
        })?;
        let text = std::str::from_utf8(&body)
            .map_err(|_| Refusal::new(Code::InvalidArguments, "the body is not UTF-8").hint("send JSON in UTF-8"))?;
        let hint_fields = || format!("send an object with: {}", known.join(", "));
        let Value::Object(fields) = strict_json(text).map_err(|what| {
            Refusal::new(Code::InvalidArguments, format!("the body is not JSON: {what}")).hint(hint_fields())
        })?
        else {
            return Err(Refusal::new(Code::InvalidArguments, "the body is not an object").hint(hint_fields()));
        };
        if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
            let hint = match nearest(name, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the fields are: {}", known.join(", ")),
            };
            return Err(bad(&clip(name, 80), "is not a field of this request").hint(hint));
        }
        Ok(Self { request_id: key.as_str().to_owned(), fields: Fields(fields) })
    }
}

impl Fields {
    /// A field as `read_as` converts it. Null is treated as absent.
    fn get<T>(&self, name: &str, what: &str, read_as: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, Refusal> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let hint = || format!("write {what}, or omit it");
                read_as(value).map(Some).ok_or_else(|| bad(name, format!("is not {what}")).hint(hint()))
            }
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        self.get(name, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        Ok(self.get(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn number<T: TryFrom<i64>>(&self, name: &str) -> Result<Option<T>, Refusal> {
        self.get(name, "a whole number in its range", |value| T::try_from(value.as_i64()?).ok())
    }

    fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        self.get(name, "a list of texts", |value| {
            value.as_array()?.iter().map(|one| one.as_str().map(str::to_owned)).collect()
        })
    }
}

/// A committed message.
pub(super) fn sent(sent: &v1::SendResponse, agent_id: &str) -> Value {
    json!({
        "message_id": sent.message_id, "agent_id": agent_id, "seq": sent.seq, "root_id": sent.root_id, "waits": sent.waits,
    })
}

/// The result of an ask.
pub(super) fn asked(answer: &v1::AskResponse, agent_id: &str) -> Value {
    json!({
        "ask_id": answer.ask_id, "agent_id": agent_id, "status": answer.status, "reply": answer.reply,
        "error": answer.error, "error_code": answer.error_code, "hint": answer.hint, "truncated": answer.truncated,
    })
}

/// A committed chat message and its recipients.
pub(super) fn posted(posted: &v1::PostResponse) -> Value {
    let mut object = json::value(&posted.message);
    object["delivered"] = posted.delivered.into();
    object["woken"] = posted.woken.into();
    object["skipped"] = json::value(&posted.skipped);
    object
}

/// `POST /api/agents/{id}/messages`
pub(super) async fn send(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &["body", "subject", "attachments"])?;
    let request = v1::SendRequest {
        request_id,
        agent_id: named(id)?,
        body: fields.text("body")?.unwrap_or_default(),
        subject: fields.text("subject")?,
        attachments: fields.texts("attachments")?.unwrap_or_default(),
    };
    let agent_id = request.agent_id.clone();
    let answer = messages::send(rest.mutation(&request)?, request).await?;
    Ok(Json(sent(&answer, &agent_id)))
}

/// `POST /api/agents/{id}/ask`
pub(super) async fn ask(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &["body", "timeout_ms"])?;
    let request = v1::AskRequest {
        request_id,
        agent_id: named(id)?,
        body: fields.text("body")?.unwrap_or_default(),
        timeout_ms: fields.number("timeout_ms")?,
    };
    let agent_id = request.agent_id.clone();
    let answer = messages::ask(rest.mutation(&request)?, request).await?;
    Ok(Json(asked(&answer, &agent_id)))
}

/// `POST /api/approvals/{id}/decide`
pub(super) async fn decide(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let Write { request_id, fields } =
        Write::read(&uri, &headers, body, &["approve", "always", "note", "digest", "fields"])?;
    let approve = fields.get("approve", "true or false", Value::as_bool)?;
    let request = v1::DecideApprovalRequest {
        request_id,
        approval_id: named(id)?,
        approve: approve.ok_or_else(|| bad("approve", "is missing").hint("write true or false"))?,
        always: fields.flag("always")?,
        note: fields.text("note")?,
        digest: fields.text("digest")?,
        fields_json: fields
            .get("fields", "an object", |value| value.is_object().then(|| value.to_string()))?
            .unwrap_or_default(),
    };
    let answer = approvals::decide(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&answer)))
}

/// `POST /api/approvals/{id}/revoke`
pub(super) async fn revoke(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let Write { request_id, .. } = Write::read(&uri, &headers, body, &[])?;
    let request = v1::RevokeApprovalRequest { request_id, approval_id: named(id)? };
    let answer = approvals::revoke(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&answer)))
}

/// `POST /api/agents/{id}/sessions/{session}/reset`
pub(super) async fn reset_session(
    State(rest): Shared,
    path: NamedSession,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody,
) -> Answer {
    let Write { request_id, .. } = Write::read(&uri, &headers, body, &[])?;
    let (agent_id, session) = named_session(path)?;
    let request = v1::ResetSessionRequest { request_id, agent_id, session };
    let answer = sessions::reset(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&answer)))
}

/// `POST /api/channels/{name}/messages`
pub(super) async fn chat(State(rest): Shared, channel: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let known = ["content", "reply_to", "as_agent", "deliver"];
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &known)?;
    let request = v1::PostRequest {
        request_id,
        channel: named(channel)?,
        content: fields.text("content")?.unwrap_or_default(),
        reply_to: fields.number("reply_to")?,
        as_agent: fields.text("as_agent")?,
        deliver: fields.flag("deliver")?,
    };
    let answer = chat::post(rest.mutation(&request)?, request).await?;
    Ok(Json(posted(&answer)))
}

/// `POST /api/agents/{id}/grants`
pub(super) async fn add_grant(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let known = ["prefix", "lasts_ms", "source", "reason"];
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &known)?;
    let request = v1::AddGrantRequest {
        request_id,
        agent_id: named(id)?,
        prefix: fields.text("prefix")?.unwrap_or_default(),
        lasts_ms: fields.number("lasts_ms")?,
        source: fields.text("source")?,
        reason: fields.text("reason")?,
    };
    let made = grants::add(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&made)))
}

/// `POST /api/grants/{id}/revoke`
pub(super) async fn revoke_grant(
    State(rest): Shared,
    id: Named,
    uri: Uri,
    headers: HeaderMap,
    body: RawBody,
) -> Answer {
    let Write { request_id, .. } = Write::read(&uri, &headers, body, &[])?;
    let request = v1::RevokeGrantRequest { request_id, grant_id: named(id)? };
    let gone = grants::revoke(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&gone)))
}

/// `POST /api/artifacts/rebuild`
pub(super) async fn rebuild_artifacts(State(rest): Shared, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let Write { request_id, .. } = Write::read(&uri, &headers, body, &[])?;
    let request = v1::RebuildArtifactsRequest { request_id };
    let done = artifacts::rebuild(rest.mutation(&request)?, request).await?;
    Ok(Json(json::value(&done)))
}

/// `POST /api/tasks`
pub(super) async fn create_task(State(rest): Shared, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let known = ["title", "description", "owner", "priority", "depends_on", "parent_id", "due_at_ms"];
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &known)?;
    let request = v1::CreateTaskRequest {
        request_id,
        title: fields.text("title")?.unwrap_or_default(),
        description: fields.text("description")?.unwrap_or_default(),
        owner: fields.text("owner")?.unwrap_or_default(),
        priority: fields.number("priority")?.unwrap_or_default(),
        depends_on: fields.texts("depends_on")?.unwrap_or_default(),
        parent_id: fields.text("parent_id")?,
        due_at_ms: fields.number("due_at_ms")?,
    };
    Ok(Json(json::value(&tasks::create(rest.mutation(&request)?, request).await?)))
}

/// `PATCH /api/tasks/{id}`
pub(super) async fn update_task(State(rest): Shared, id: Named, uri: Uri, headers: HeaderMap, body: RawBody) -> Answer {
    let known =
        ["status", "owner", "title", "description", "priority", "result", "due_at_ms", "note", "reopen", "depends_on"];
    let Write { request_id, fields } = Write::read(&uri, &headers, body, &known)?;
    let request = v1::UpdateTaskRequest {
        request_id,
        task_id: named(id)?,
        status: fields.text("status")?,
        owner: fields.text("owner")?,
        title: fields.text("title")?,
        description: fields.text("description")?,
        priority: fields.number("priority")?,
        result: fields.text("result")?,
        due_at_ms: fields.number("due_at_ms")?,
        note: fields.text("note")?,
        reopen: fields.flag("reopen")?,
        depends_on: fields.texts("depends_on")?.map(|task_ids| v1::TaskIds { task_ids }),
    };
    Ok(Json(json::value(&tasks::update(rest.mutation(&request)?, request).await?)))
}
