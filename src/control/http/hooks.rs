//! Incoming webhooks: `POST /hooks/<name>` with signed JSON. It needs no token and no host
//! check, because the signature authenticates the sender, and a web page cannot produce one.
//!
//! A body must never be parsed before its signature is verified. A delivery must never be processed
//! twice.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use ghost_config::plan::WebhookPlan;
use ghost_domain::conversation::WEBHOOK;
use ghost_domain::json_text::readable;
use ghost_domain::text::{clip, nearest, shown};
use ghost_domain::{Code, Party, Refusal, RequestId, RequestKey};
use ghost_operations::conversations::{self as rules, IncomingMessage, Start};
use ghost_operations::requests;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::rest::{Failed, Rest, body};
use crate::adapters::{DELIVERY, SIGNATURE, TIMESTAMP, secret, verify};
use crate::convert::input;

/// Allowed size of a body beyond its text, in bytes.
const BYTES_BESIDE_TEXT: usize = 16 * 1024;
/// Largest number of bytes that JSON needs for one byte of text.
const ESCAPED_BYTES_MAX: usize = 6;
/// Largest length of `from` and of ids, in characters.
const NAME_MAX: usize = 128;

/// The JSON body of an incoming delivery.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Inbound {
    /// Name of the conversation.
    thread: String,
    /// Name of the author of the message.
    from: String,
    /// Text of the message.
    text: String,
    /// Id of the message to which this one is a reply.
    #[serde(default)]
    reply_to: Option<String>,
    /// The sender's own id of the message.
    #[serde(default)]
    message_id: Option<String>,
}

/// The response. It is the same for every repetition of a delivery.
#[derive(Serialize, Deserialize)]
struct Accepted {
    conversation_id: String,
    message_id: String,
    seq: i64,
    thread: String,
    owner: String,
}

/// A 401 response. Its codes exist only for webhooks.
fn unauthorized(code: &str, what: &str, hint: &str) -> Response {
    (StatusCode::UNAUTHORIZED, Json(json!({ "error": { "code": code, "message": what, "hint": hint } })))
        .into_response()
}

pub(super) async fn inbound(
    State(rest): State<Arc<Rest>>,
    name: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response {
    let plan = rest.control.world.plan();
    let found = name.ok().and_then(|Path(name)| plan.webhooks.get(&name).map(|webhook| (name, webhook.clone())));
    let Some((name, webhook)) = found else {
        return Failed(
            Refusal::new(Code::NotFound, "there is no such webhook")
                .hint("webhooks are named under channels.webhooks in world-config.yaml"),
        )
        .into_response();
    };
    let Some(secret) = secret(&webhook) else {
        return Failed(
            Refusal::new(Code::Unavailable, format!("the webhook {name} accepts nothing: its secret is not set"))
                .hint(format!(
                    "the operator must set {} in the daemon's environment and restart it; try again later",
                    webhook.secret_env
                ))
                .details(json!({ "webhook": name, "secret_env": webhook.secret_env })),
        )
        .into_response();
    };
    let (head, body) = request.into_parts();
    let limit = (rest.control.world.ctx().limits().message_bytes as usize) * ESCAPED_BYTES_MAX + BYTES_BESIDE_TEXT;
    let Ok(body) = to_bytes(body, limit).await else {
        return Failed(
            Refusal::new(Code::TooLarge, format!("the body is truncated or has more than {limit} bytes"))
                .hint("send a shorter text, or a link to the rest"),
        )
        .into_response();
    };
    let delivery = match verified_delivery(&rest, &webhook, &secret, &head.headers, &body) {
        Ok(delivery) => delivery,
        Err(response) => return *response,
    };
    match accept(&rest, &name, &webhook, delivery, &body).await {
        Ok(accepted) => (StatusCode::ACCEPTED, Json(accepted)).into_response(),
        Err(refusal) => Failed(refusal).into_response(),
    }
}

/// Checks the signature, then the time stamp. Returns the id of the delivery.
fn verified_delivery(
    rest: &Rest,
    webhook: &WebhookPlan,
    secret: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<RequestId, Box<Response>> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let bad = || {
        Box::new(unauthorized(
            "bad_signature",
            "the request is not signed, or not with this webhook's secret",
            "X-Ghost-Signature is `v1=` and the hexadecimal HMAC-SHA256 over `v1:<X-Ghost-Timestamp>:<X-Ghost-Delivery>:<body>`",
        ))
    };
    let (Some(delivery), Some(timestamp), Some(signature)) = (header(DELIVERY), header(TIMESTAMP), header(SIGNATURE))
    else {
        return Err(bad());
    };
    if !verify(secret.as_bytes(), timestamp, delivery, body, signature) {
        return Err(bad());
    }
    let seconds = timestamp.parse::<i64>().ok().filter(|seconds| (0..=253_402_300_799).contains(seconds));
    let now = rest.control.world.ctx().now().0.div_euclid(1_000);
    let tolerance = i64::try_from(webhook.tolerance.as_secs()).unwrap_or(i64::MAX);
    let Some(seconds) = seconds else {
        return Err(Box::new(unauthorized(
            "bad_timestamp",
            &format!("X-Ghost-Timestamp `{}` is not a number of seconds since 1970", shown(timestamp, 40)),
            "write it in decimal digits, for example 1767225600, and sign exactly the body that you send",
        )));
    };
    if (now - seconds).abs() > tolerance {
        return Err(Box::new(unauthorized(
            "stale_timestamp",
            &format!(
                "X-Ghost-Timestamp is {} s from this daemon's clock; the limit is {tolerance} s",
                (now - seconds).abs()
            ),
            "sign each attempt with its own time, in seconds since 1970",
        )));
    }
    delivery.parse().map_err(|_| {
        let refusal = Refusal::new(Code::InvalidArguments, "X-Ghost-Delivery is not an id")
            .hint("give 1 to 128 printable ASCII characters, the same for every attempt of one delivery");
        Box::new(Failed(refusal).into_response())
    })
}

async fn accept(
    rest: &Rest,
    name: &str,
    webhook: &WebhookPlan,
    request_id: RequestId,
    body: &[u8],
) -> Result<Accepted, Refusal> {
    let world = &rest.control.world;
    let text = std::str::from_utf8(body).map_err(|_| bad_json("it is not UTF-8"))?;
    let text = &*readable(text);
    // serde would accept a list as the fields in order.
    if text.trim_start().starts_with('[') {
        return Err(bad_json("it is a list, not an object"));
    }
    let inbound: Inbound = serde_json::from_str(text).map_err(|error| {
        let text = clip(&error.to_string(), 200);
        bad_json(&text.replace("expected struct Inbound", "expected an object"))
    })?;
    let party = Party::Outside(input::line("from", &inbound.from, NAME_MAX)?);
    let message = IncomingMessage {
        from: party.clone(),
        content: input::prose("text", &inbound.text, world.ctx().limits().message_bytes)?,
        attachments: Vec::new(),
        reply_to: input::line_if("reply_to", inbound.reply_to.as_deref(), NAME_MAX)?,
        external_id: input::line_if("message_id", inbound.message_id.as_deref(), NAME_MAX)?,
    };
    let adapter = format!("{WEBHOOK}{name}");
    let start = Start { adapter: adapter.clone(), thread: Some(inbound.thread), owner: webhook.agent.clone(), party };
    let digest = hex::encode(Sha256::digest(body));
    let shown_id = request_id.as_str().to_owned();
    let key = RequestKey { principal: Party::Outside(adapter), request_id, method: "hooks".to_owned(), digest };
    let accepted = requests::once(world.store(), world.ctx(), key, move |w| {
        let arrived = rules::arrive(w, start, message)?;
        Ok(Accepted {
            conversation_id: arrived.conversation.conversation_id.to_string(),
            message_id: arrived.entry.message_id.to_string(),
            seq: arrived.entry.seq,
            thread: arrived.conversation.thread,
            owner: arrived.conversation.owner.to_string(),
        })
    })
    .await;
    // The id of the request is the delivery id here, so the refusal must name that header.
    let reused = |refusal: &Refusal| refusal.details.as_ref().is_some_and(|details| details["field"] == "request_id");
    accepted.map_err(|refusal| match reused(&refusal) {
        true => Refusal::new(refusal.code, format!("X-Ghost-Delivery {shown_id} was used for another body"))
            .hint("give each delivery an id of its own, and the same one only to repeat it unchanged"),
        false => refusal,
    })
}

fn bad_json(what: &str) -> Refusal {
    let keys = ["thread", "from", "text", "reply_to", "message_id"];
    let word = what.split('`').nth(1).unwrap_or_default();
    let hint = match nearest(word, keys.iter().copied()).filter(|_| what.contains("unknown field")) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "send {\"thread\": …, \"from\": …, \"text\": …}, optionally with reply_to and message_id".to_owned(),
    };
    Refusal::new(Code::InvalidArguments, format!("the body cannot be read: {what}")).hint(hint)
}

/// The response to any method but POST.
pub(super) async fn method_not_allowed() -> Response {
    let refusal = Refusal::new(Code::InvalidArguments, "webhooks accept only POST").hint("use POST");
    (StatusCode::METHOD_NOT_ALLOWED, Json(body(&refusal))).into_response()
}
