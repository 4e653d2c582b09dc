//! Serves the methods of the contract over HTTP: the parameters of the query, the key and the JSON body of a change become the
//! message of its method, and the answer becomes JSON. What a route takes is in the options of the contract
//! (`ghost/v1/http.proto`). An unknown name is refused: a misspelled filter would return everything.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{FromRequest as _, Path, Query as UriQuery, Request, State};
use axum::http::{HeaderMap, Uri, header};
use axum::routing::{MethodRouter, get, patch, post};
use ghost_domain::text::{clip, nearest};
use ghost_domain::{Code, Party, Refusal, RequestId};
use ghost_proto::http::{Field, Kind, Place, Route, Verb};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::{Map, Value};

use super::rest::{Failed, Rest, Shared};
use crate::convert::input::{PAGE_MAX, bad, no_rows, strict_json};
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

/// The header that carries the `request_id`.
const KEY_HEADER: &str = "idempotency-key";

/// A query parameter of a route that is no method of the contract.
pub(super) const fn query(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field { name, field: name, number: 0, place: Place::Query, kind, required: false, about }
}

/// The parsed query parameters of one request.
#[derive(Debug)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the parameters of a route whose fields these are.
    ///
    /// # Errors
    /// If a parameter is unknown, is not valid text, or occurs twice without being a list.
    pub(super) fn read(uri: &Uri, fields: &[Field]) -> Result<Self, Refusal> {
        let UriQuery(pairs) = UriQuery::<Vec<(String, String)>>::try_from_uri(uri).map_err(|rejection| {
            bad("query", clip(&rejection.body_text(), 200)).hint("write ?name=value&name=value")
        })?;
        let known: Vec<&Field> = fields.iter().filter(|field| field.place == Place::Query).collect();
        let names: Vec<&str> = known.iter().map(|field| field.name).collect();
        for (at, (name, _)) in pairs.iter().enumerate() {
            let Some(field) = known.iter().find(|field| field.name == name) else {
                let hint = match nearest(name, names.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if names.is_empty() => "this route takes no parameters".to_owned(),
                    None => format!("the parameters are: {}", names.join(", ")),
                };
                return Err(bad(&clip(name, 80), "is not a parameter of this route").hint(hint));
            };
            if field.kind != Kind::Texts && pairs.iter().take(at).any(|(before, _)| before == name) {
                return Err(bad(name, "is given twice").hint("give it once"));
            }
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter, if present.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter, with lists split at commas.
    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let key = self.0.iter().filter(|(key, _)| key == name);
        key.flat_map(|(_, value)| value.split(',').map(str::to_owned)).collect()
    }

    /// The value of a field, if present.
    pub(super) fn value(&self, field: &Field, now_ms: i64) -> Result<Option<Value>, Refusal> {
        let name = field.name;
        let Some(text) = self.get(name) else { return Ok(None) };
        let value = match field.kind {
            Kind::Text | Kind::Object => text.into(),
            Kind::Texts | Kind::OptionalTexts => self.all(name).into(),
            Kind::Flag => self.flag(name)?.into(),
            Kind::Number(least, most) => {
                let number = text.parse().ok().filter(|number: &i64| (least..=most).contains(number));
                let number = number.ok_or_else(|| {
                    bad(name, format!("is `{}`, which is not a whole number in its range", clip(text, 40)))
                        .hint(format!("for example {name}=20"))
                })?;
                // In a message, 0 means that no limit is given.
                if field.field == "limit" && number == 0 {
                    return Err(no_rows());
                }
                number.into()
            }
            Kind::Since => instant(text, now_ms)
                .ok_or_else(|| {
                    bad(name, format!("is `{}`", clip(text, 40)))
                        .hint("write how long ago, such as 24h, or milliseconds since 1970-01-01")
                })?
                .into(),
        };
        Ok(Some(value))
    }

    /// `true` or `false`. Without a value it is true; absent, it is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true" | "") => Ok(true),
            Some(other) => {
                Err(bad(name, format!("is `{}`", clip(other, 40))).hint(format!("write {name}=true or {name}=false")))
            }
        }
    }
}

/// An instant: milliseconds since 1970, or a time span before `now_ms` such as `24h`.
fn instant(text: &str, now_ms: i64) -> Option<i64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: i64 = number.parse().ok()?;
    let unit_ms = match unit {
        "" => return Some(number),
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    now_ms.checked_sub(number.checked_mul(unit_ms)?).filter(|at| *at >= 0)
}

/// A checked request for a change.
pub(super) struct Write {
    pub(super) request_id: String,
    fields: Map<String, Value>,
}

impl Write {
    /// Reads the key and the body of a route whose fields these are. A field that is not one of the body is refused as a
    /// typo.
    pub(super) fn read(
        headers: &HeaderMap,
        body: Result<Bytes, BytesRejection>,
        fields: &[Field],
    ) -> Result<Self, Refusal> {
        let known = fields.iter().filter(|field| field.place == Place::Body).map(|field| field.name);
        let known: Vec<&str> = known.collect();
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
        Ok(Self { request_id: key.as_str().to_owned(), fields })
    }

    /// The value of a field, if present. Null is treated as absent.
    pub(super) fn value(&self, field: &Field) -> Result<Option<Value>, Refusal> {
        let value = self.fields.get(field.name).filter(|value| !value.is_null());
        let what = wanted(field.kind);
        match value {
            Some(value) if !fits(value, field.kind) => {
                Err(bad(field.name, format!("is not {what}")).hint(format!("write {what}, or omit it")))
            }
            None if field.required => Err(bad(field.name, "is missing").hint(format!("write {what}"))),
            value => Ok(value.cloned()),
        }
    }
}

/// What the value of a field in a body must be, in words.
fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a text",
        Kind::Flag => "true or false",
        Kind::Number(..) | Kind::Since => "a whole number in its range",
        Kind::Texts | Kind::OptionalTexts => "a list of texts",
        Kind::Object => "an object",
    }
}

fn fits(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Text => value.is_string(),
        Kind::Flag => value.is_boolean(),
        Kind::Number(least, most) => value.as_i64().is_some_and(|number| (least..=most).contains(&number)),
        Kind::Since => value.is_i64(),
        Kind::Texts | Kind::OptionalTexts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        Kind::Object => value.is_object(),
    }
}

#[cfg(test)]
mod answer_tests {
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

#[cfg(test)]
mod parameter_tests {
    use super::*;
    use proptest::prelude::*;

    const FIELDS: [Field; 4] = [
        query("limit", Kind::Number(0, 4_294_967_295), ""),
        query("since", Kind::Since, ""),
        query("deleted", Kind::Flag, ""),
        query("kind", Kind::Texts, ""),
    ];

    fn read(query: &str) -> Result<Params, Refusal> {
        Params::read(&format!("/x?{query}").parse().unwrap(), &FIELDS)
    }

    fn limit(query: &str) -> Result<Option<Value>, Refusal> {
        read(query)?.value(&FIELDS[0], 0)
    }

    fn since(query: &str, now_ms: i64) -> Result<Option<Value>, Refusal> {
        read(query)?.value(&FIELDS[1], now_ms)
    }

    #[test]
    fn unknown_and_repeated_names_are_refused() {
        let params = read("kind=a&kind=b,c&limit=5&deleted").unwrap();
        assert_eq!(params.all("kind"), ["a", "b", "c"]);
        assert_eq!(params.value(&FIELDS[0], 0).unwrap(), Some(5.into()));
        assert_eq!(params.value(&FIELDS[2], 0).unwrap(), Some(true.into()));
        assert!(read("limt=5").unwrap_err().hint.as_deref().unwrap().contains("`limit`"));
        assert!(read("zzz=1").unwrap_err().hint.unwrap().contains("since"));
        assert!(read("limit=1&limit=2").unwrap_err().message.contains("twice"));
        for wrong in ["limit=-1", "limit=", "limit=x", "limit=99999999999"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
        assert_eq!((limit("limit=7").unwrap(), limit("").unwrap()), (Some(7.into()), None));
        assert!(limit("limit=0").unwrap_err().message.contains("1 to 500"));
        assert!(read("deleted=yes").unwrap().flag("deleted").is_err());
        assert!(!read("").unwrap().flag("deleted").unwrap());
    }

    #[test]
    fn an_instant_is_milliseconds_or_a_span() {
        for (text, at) in [("5", 5), ("1s", 99_000), ("1m", 40_000), ("0h", 100_000)] {
            assert_eq!(since(&format!("since={text}"), 100_000).unwrap(), Some(at.into()), "{text}");
        }
        for wrong in ["", "h", "1d", "1w", "-5", "1.5h", "99999999999999999999", "9999999999999999d"] {
            assert!(since(&format!("since={wrong}"), 100_000).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read_without_a_panic(query in "[a-z%&=0-9,+]{0,60}") {
            if let Ok(params) = read(&query) {
                let _ = FIELDS.map(|field| params.value(&field, 5).is_ok());
            }
        }
    }
}
