//! Serves the methods of the contract over HTTP: the fields of a request become the message of its method, and the answer
//! becomes JSON. What a route takes is in the options of the contract (`ghost/v1/http.proto`).

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest as _, Path, Request, State};
use axum::routing::{MethodRouter, get, patch, post};
use ghost_domain::text::clip;
use ghost_domain::{Code, Party, Refusal};
use ghost_proto::http::{Field, Kind, Place, Route, Verb};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

use super::params::{Params, Write};
use super::rest::{Failed, Rest, Shared};
use crate::convert::input::PAGE_MAX;
use crate::dispatch::Query;

/// The names and ids in a path.
pub(super) type Names = Result<Path<Vec<(String, String)>>, PathRejection>;

/// Default number of chat messages in a page.
const HISTORY_LIMIT: usize = 50;

/// Serves a method at its route.
pub(super) fn serve(route: &'static Route) -> MethodRouter<Arc<Rest>> {
    let handler = move |State(rest): Shared, names: Names, request: Request| async move {
        let given = Given::read(route, names, request, rest.control.world.ctx().now().0).await?;
        // A change has the same principal as over gRPC with the token, so one key means one request over both.
        let principal = if route.verb == Verb::Get { "http" } else { "token" };
        let caller = Query::new(&rest.control, Party::Operator(principal.to_owned()));
        let answer = rest.methods.answer(route.method, caller, given.message()).await?;
        Ok::<_, Failed>(Json(shaped(route, &given, rest.methods.json(route.method, answer)?)))
    };
    match route.verb {
        Verb::Get => get(handler),
        Verb::Post => post(handler),
        Verb::Patch => patch(handler),
    }
}

/// The names in a path.
pub(super) fn names(names: Names) -> Result<Vec<(String, String)>, Refusal> {
    let Path(names) = names.map_err(|rejection| {
        Refusal::new(Code::InvalidArguments, clip(&rejection.body_text(), 200))
            .hint("write a valid name or id into the path")
    })?;
    Ok(names)
}

/// The fields that a request gives.
#[derive(Default)]
pub(super) struct Given(Vec<(&'static Field, Value)>);

impl Given {
    async fn read(route: &'static Route, in_path: Names, request: Request, now_ms: i64) -> Result<Self, Refusal> {
        let params = Params::read(request.uri(), route.fields)?;
        let write = match route.verb {
            Verb::Get => None,
            Verb::Post | Verb::Patch => {
                let headers = request.headers().clone();
                Some(Write::read(&headers, Bytes::from_request(request, &()).await, route.fields)?)
            }
        };
        let in_path = names(in_path)?;
        let mut given = Vec::new();
        for field in route.fields {
            let value = match (field.place, &write) {
                (Place::Path, _) => {
                    in_path.iter().find(|(name, _)| name == field.name).map(|(_, text)| text.as_str().into())
                }
                (Place::Query, _) => params.value(field, now_ms)?,
                (Place::Key, Some(write)) => Some(write.request_id.as_str().into()),
                (Place::Body, Some(write)) => write.value(field)?,
                (Place::Key | Place::Body, None) => None,
            };
            given.extend(value.map(|value| (field, value)));
        }
        Ok(Self(given))
    }

    /// The value of a field; null if it is not given.
    fn get(&self, field: &str) -> &Value {
        self.0.iter().find(|(given, _)| given.field == field).map_or(&Value::Null, |(_, value)| value)
    }

    /// The encoded message with these fields.
    fn message(&self) -> Bytes {
        let mut out = Vec::new();
        for (field, value) in &self.0 {
            if field.kind == Kind::OptionalTexts {
                let mut texts = Vec::new();
                encode(1, value, &mut texts);
                encode_bytes(field.number, &texts, &mut out);
            } else {
                encode(field.number, value, &mut out);
            }
        }
        out.into()
    }
}

/// Encodes the value of a field of a message. An object becomes JSON text.
fn encode(number: u32, value: &Value, out: &mut Vec<u8>) {
    let mut encode_number = |value: i64| {
        encode_key(number, WireType::Varint, out);
        encode_varint(value.cast_unsigned(), out);
    };
    match value {
        Value::Null => {}
        Value::Bool(flag) => encode_number((*flag).into()),
        Value::Number(value) => encode_number(value.as_i64().unwrap_or_default()),
        Value::String(text) => encode_bytes(number, text.as_bytes(), out),
        Value::Array(list) => list.iter().for_each(|one| encode(number, one, out)),
        Value::Object(_) => encode_bytes(number, value.to_string().as_bytes(), out),
    }
}

/// Encodes a text or a message as a field of a message.
pub(super) fn encode_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The JSON of an answer. Here is how that of a route differs from that of its message.
pub(super) fn shaped(route: &Route, given: &Given, mut answer: Value) -> Value {
    let Value::Object(fields) = &mut answer else { return answer };
    match route.method {
        "/ghost.v1.Messages/Send" | "/ghost.v1.Messages/Ask" => {
            let agent_id = given.get("agent_id").as_str().unwrap_or_default();
            fields.shift_insert(1, "agent_id".to_owned(), agent_id.into());
        }
        "/ghost.v1.Chat/Post" => drop(fields.shift_remove("held")),
        "/ghost.v1.Chat/History" => {
            let truncated = is_truncated(fields, given);
            fields.shift_remove("cut");
            fields.insert("truncated".to_owned(), truncated.into());
        }
        "/ghost.v1.Ledger/List" => {
            let rows = fields.shift_remove("rows").unwrap_or_default();
            fields.shift_insert(0, "calls".to_owned(), rows);
        }
        _ => {}
    }
    if let Some(cursor) = fields.get_mut("next_cursor").filter(|cursor| *cursor == "") {
        *cursor = Value::Null;
    }
    answer
}

/// Whether a history omits chat messages. The newest are returned, so older ones may be missing if the page is full.
fn is_truncated(history: &Map<String, Value>, given: &Given) -> bool {
    let messages = history["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let limit = match given.get("limit").as_u64().and_then(|limit| usize::try_from(limit).ok()) {
        None => HISTORY_LIMIT,
        Some(limit) => limit.min(PAGE_MAX),
    };
    let after = given.get("after_seq").as_i64().unwrap_or(0);
    let first = messages.first().and_then(|first| first["seq"].as_i64());
    let before = first.is_some_and(|first| first > after.saturating_add(1));
    history["cut"] == true || (messages.len() >= limit && before)
}

#[cfg(test)]
mod tests {
    use ghost_proto::{http, v1};
    use serde_json::json;

    use super::*;

    fn message<M: prost::Message + Default>(method: &str, values: &Value) -> M {
        let route = http::ROUTES.iter().find(|route| route.method == method).unwrap();
        let value = |field: &'static Field| Some((field, values.get(field.name)?.clone()));
        let given = Given(route.fields.iter().filter_map(value).collect());
        M::decode(given.message()).unwrap()
    }

    #[test]
    fn the_fields_of_a_request_become_the_message_of_its_method() {
        let change = json!({
            "request_id": "k", "id": "t", "priority": -3, "due_at_ms": 5, "reopen": true, "depends_on": ["a", "b"],
        });
        let expected = v1::UpdateTaskRequest {
            request_id: "k".into(),
            task_id: "t".into(),
            priority: Some(-3),
            due_at_ms: Some(5),
            reopen: true,
            depends_on: Some(v1::TaskIds { task_ids: vec!["a".into(), "b".into()] }),
            ..Default::default()
        };
        assert_eq!(message::<v1::UpdateTaskRequest>("/ghost.v1.Tasks/Update", &change), expected);
        // What is given empty is there, and what is not given is not.
        let empty =
            message::<v1::UpdateTaskRequest>("/ghost.v1.Tasks/Update", &json!({ "depends_on": [], "owner": "" }));
        assert_eq!((empty.depends_on, empty.owner), (Some(v1::TaskIds::default()), Some(String::new())));
        assert_eq!((empty.priority, empty.note), (None, None));
        let answer = json!({ "approve": true, "fields": { "b": [1.5], "a": null } });
        let answer = message::<v1::DecideApprovalRequest>("/ghost.v1.Approvals/Decide", &answer);
        assert_eq!((answer.approve, answer.fields_json.as_str()), (true, "{\"b\":[1.5],\"a\":null}"));
        let sent = json!({ "id": "ada", "body": "é", "attachments": ["x", "y"] });
        let sent = message::<v1::SendRequest>("/ghost.v1.Messages/Send", &sent);
        assert_eq!((sent.agent_id.as_str(), sent.body.as_str()), ("ada", "é"));
        assert_eq!(sent.attachments, ["x", "y"]);
    }
}
