//! The OpenAPI 3.1 document of the HTTP side, generated from the table of routes and the proto
//! descriptors.
//!
//! The document must never describe a route that is not served, or differ from the comments of the
//! gRPC contract.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ghost_proto::FILE_DESCRIPTOR_SET;
use ghost_proto::http::{self, Field, Kind, Place};
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{FieldDescriptorProto, FileDescriptorSet};
use serde_json::{Map, Value, json};

use super::rest::{Access, Answer, Route, Shared};
use super::transcode::{Given, encode_bytes, shaped};
use crate::dispatch::Methods;

/// `GET /api/openapi.json`
pub(super) async fn serve(State(rest): Shared) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], rest.description.clone()).into_response()
}

/// The whole document.
pub(super) fn document(routes: &[Route], methods: &Methods) -> Value {
    let shapes = Shapes::read(methods);
    let mut paths: Map<String, Value> = Map::new();
    for route in routes {
        let of_path = paths.entry(route.path).or_insert_with(|| json!({}));
        of_path[route.verb.as_str().to_ascii_lowercase()] = operation(route, &shapes);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ghostd",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The world over HTTP. A refused request gets {\"error\": {code, message, hint?, details?}} with a matching HTTP status.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": "ghost_session",
                    "description": "Issued by POST /api/session. A change also needs a matching Origin header." },
                "ticket": { "type": "apiKey", "in": "query", "name": "ticket" },
                "signature": { "type": "apiKey", "in": "header", "name": crate::adapters::SIGNATURE },
            },
            "schemas": {
                "Refusal": {
                    "type": "object",
                    "required": ["error"],
                    "properties": { "error": {
                        "type": "object",
                        "required": ["code", "message"],
                        "properties": {
                            "code": { "type": "string", "description": "Such as `not_found`." },
                            "message": { "type": "string", "description": "What was wrong, and where." },
                            "hint": { "type": "string", "description": "What to do about it." },
                            "details": { "description": "More about it, such as `field`, the parameter in question." },
                        },
                    } },
                },
            },
        },
    })
}

fn operation(route: &Route, shapes: &Shapes) -> Value {
    let mut parameters: Vec<Value> = names_in(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(route.fields.iter().filter(|field| field.place == Place::Query).map(parameter));
    let answers = json!({
        "200": { "description": route.about, "content": content(route.answer, shapes) },
        "default": {
            "description": "A refusal.",
            "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refusal" } } },
        },
    });
    let mut operation = json!({
        "summary": route.about,
        "operationId": id(route),
        "security": security(route.access),
        "responses": answers,
    });
    if route.fields.iter().any(|field| field.place == Place::Key) {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": true,
            "description": "The `request_id`. A repetition with the same body gets the same answer and has no second effect.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128 },
        }));
        let schema = match route.answer {
            Answer::Method(method) => shapes.body(method),
            Answer::Text(_) | Answer::Json(_) => json!({ "type": "object" }),
        };
        operation["requestBody"] = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    operation["parameters"] = parameters.into();
    operation
}

/// The names of the path parameters.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// The operation id: `GET /api/agents/{id}/tools` becomes `getApiAgentsIdTools`.
fn id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words = words.map(|word| {
        let (first, rest) = word.split_at(1);
        first.to_ascii_uppercase() + rest
    });
    route.verb.as_str().to_ascii_lowercase() + &words.collect::<String>()
}

fn security(access: Access) -> Value {
    match access {
        Access::Open => json!([]),
        Access::Setting => json!([{}, { "token": [] }, { "cookie": [] }]),
        Access::Bearer => json!([{ "token": [] }]),
        Access::Token => json!([{ "token": [] }, { "cookie": [] }]),
        Access::Ticket => json!([{ "token": [] }, { "cookie": [] }, { "ticket": [] }]),
        Access::Signed => json!([{ "signature": [] }]),
    }
}

fn parameter(field: &Field) -> Value {
    let schema = match field.kind {
        Kind::Text | Kind::Since | Kind::Object => json!({ "type": "string" }),
        Kind::Number(..) => json!({ "type": "integer" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Texts | Kind::OptionalTexts => json!({ "type": "array", "items": { "type": "string" } }),
    };
    json!({ "name": field.name, "in": "query", "description": field.about, "schema": schema })
}

fn content(answer: Answer, shapes: &Shapes) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    match answer {
        Answer::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        Answer::Json(about) => json_of(json!({ "description": about })),
        Answer::Method(route) => json_of(shapes.answer(route)),
    }
}

/// Field numbers of messages in a file, and of fields in a message, as `descriptor.proto` defines them.
const MESSAGES: i32 = 4;
const FIELDS: i32 = 2;

/// One message of the contract: its comment, and its fields with their comments.
#[derive(Default)]
struct Shape {
    comment: String,
    fields: Vec<(FieldDescriptorProto, String)>,
}

/// JSON schemas of bodies and records, from the types and comments of the proto descriptors.
struct Shapes<'m> {
    by_message: BTreeMap<String, Shape>,
    methods: &'m Methods,
}

impl<'m> Shapes<'m> {
    /// Reads the descriptors. A test checks that they can be decoded.
    fn read(methods: &'m Methods) -> Self {
        let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap_or_default();
        let mut by_message = BTreeMap::new();
        for file in set.file {
            let info = file.source_code_info.unwrap_or_default();
            let comments: BTreeMap<Vec<i32>, String> = info
                .location
                .into_iter()
                .filter_map(|location| {
                    Some((location.path, location.leading_comments.filter(|comments| !comments.is_empty())?))
                })
                .collect();
            let comment = |path: &[i32]| {
                comments
                    .get(path)
                    .map(|comments| comments.split_whitespace().collect::<Vec<_>>().join(" "))
                    .unwrap_or_default()
            };
            for (at, message) in (0_i32..).zip(file.message_type) {
                let name = message.name().to_owned();
                let fields = (0_i32..).zip(message.field);
                let fields =
                    fields.map(|(field_at, field)| (field, comment(&[MESSAGES, at, FIELDS, field_at]))).collect();
                by_message.insert(name, Shape { comment: comment(&[MESSAGES, at]), fields });
            }
        }
        Self { by_message, methods }
    }

    fn of(&self, message: &str) -> &[(FieldDescriptorProto, String)] {
        self.by_message.get(message).map(|shape| shape.fields.as_slice()).unwrap_or_default()
    }

    /// The schema of the body of a method.
    fn body(&self, route: &http::Route) -> Value {
        let mut properties = Map::new();
        for (descriptor, comment) in self.of(route.request) {
            let in_body = |field: &&Field| field.place == Place::Body && field.field == descriptor.name();
            if let Some(field) = route.fields.iter().find(in_body) {
                let schema = match field.kind {
                    // What the contract has as JSON text is an object here.
                    Kind::Object => json!({ "type": "object" }),
                    _ => schema_of(descriptor),
                };
                properties.insert(field.name.to_owned(), with_description(schema, comment));
            }
        }
        json!({ "type": "object", "properties": properties, "additionalProperties": false })
    }

    /// The schema of the answer of a method: a page of records, or one record.
    fn answer(&self, route: &http::Route) -> Value {
        // The answer with every message that it may have: a record may flatten them.
        let mut example = Vec::new();
        for (field, _) in self.of(route.answer) {
            if field.r#type() == Type::Message {
                encode_bytes(field.number().unsigned_abs(), &[], &mut example);
            }
        }
        let example = self.methods.json(route.method, example.into()).unwrap_or_default();
        let example = shaped(route, &Given::default(), example);
        let is_list = |field: &&(FieldDescriptorProto, String)| field.0.label() == Label::Repeated;
        let row =
            self.of(route.answer).iter().find(is_list).and_then(|(field, _)| field.type_name().rsplit('.').next());
        let rows = example.as_object().and_then(|fields| fields.iter().find(|(_, value)| value.is_array()));
        let (Some(row), Some((name, rows)), Some(_)) = (row, rows, example.get("next_cursor")) else {
            return self.record(route.answer, &example);
        };
        let mut properties = json!({
            name: { "type": "array", "items": self.record(row, &rows[0]) },
            "next_cursor": {
                "type": ["string", "null"], "description": "Cursor of the next page; null on the last page.",
            },
        });
        if example.get("truncated").is_some() {
            let about = "Always false: the pages continue to the end of the list.";
            properties["truncated"] = json!({ "type": "boolean", "description": about });
        }
        json!({ "type": "object", "required": [name, "next_cursor"], "properties": properties })
    }

    /// The schema of a record: its keys, with the contract's comments on the fields behind them.
    fn record(&self, message: &str, example: &Value) -> Value {
        let mut properties = Map::new();
        for (key, value) in example.as_object().into_iter().flatten() {
            properties.insert(key.clone(), self.key(message, key, value));
        }
        let comment = self.by_message.get(message).map(|shape| shape.comment.as_str()).unwrap_or_default();
        json!({ "type": "object", "description": comment, "properties": properties })
    }

    fn key(&self, message: &str, key: &str, example: &Value) -> Value {
        for (field, comment) in self.fields_and_nested(message) {
            let name = field.name();
            if name == key {
                return with_description(schema_of(field), comment);
            }
            if name.strip_suffix("_ms") == Some(key) {
                let schema = json!({ "type": nullable("string", field), "format": "date-time" });
                // The contract has milliseconds where the record has an RFC 3339 time.
                return with_description(schema, &comment.replace(", in milliseconds since the Unix epoch", ""));
            }
            if name.strip_suffix("_json") == Some(key) {
                return with_description(json!({}), comment);
            }
            if name.strip_suffix("_micros").is_some_and(|stem| key.strip_suffix("_usd") == Some(stem)) {
                return json!({ "type": nullable("number", field), "description": "In US dollars." });
            }
        }
        match example {
            Value::Bool(_) => json!({ "type": "boolean" }),
            Value::Number(_) => json!({ "type": "number" }),
            Value::String(_) => json!({ "type": "string" }),
            Value::Array(_) => json!({ "type": "array" }),
            Value::Null | Value::Object(_) => json!({}),
        }
    }

    /// The fields of a message, then those of the messages in it, because a record may flatten them.
    fn fields_and_nested<'s>(&'s self, message: &str) -> impl Iterator<Item = &'s (FieldDescriptorProto, String)> {
        let own = self.of(message);
        let is_single_message = |field: &&(FieldDescriptorProto, String)| {
            field.0.r#type() == Type::Message && field.0.label() != Label::Repeated
        };
        let inner = own.iter().filter(is_single_message).filter_map(|(field, _)| field.type_name().rsplit('.').next());
        own.iter().chain(inner.flat_map(|message| self.of(message)))
    }
}

/// The JSON type of a field. An optional field may be null.
fn schema_of(field: &FieldDescriptorProto) -> Value {
    // A list that may be absent as well as empty.
    if field.type_name().ends_with(".TaskIds") {
        return json!({ "type": ["array", "null"], "items": { "type": "string" } });
    }
    let name = match field.r#type() {
        Type::String | Type::Bytes | Type::Enum => "string",
        Type::Bool => "boolean",
        Type::Double | Type::Float => "number",
        Type::Message | Type::Group => "object",
        _ => "integer",
    };
    match field.label() {
        Label::Repeated => json!({ "type": "array", "items": { "type": name } }),
        _ => json!({ "type": nullable(name, field) }),
    }
}

fn nullable(name: &str, field: &FieldDescriptorProto) -> Value {
    if field.proto3_optional() { json!([name, "null"]) } else { json!(name) }
}

fn with_description(mut schema: Value, comment: &str) -> Value {
    if let Value::Object(schema) = &mut schema
        && !comment.is_empty()
    {
        schema.insert("description".into(), comment.into());
    }
    schema
}
