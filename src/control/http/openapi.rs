//! The OpenAPI 3.1 document of the HTTP side, generated from the table of routes and the proto
//! descriptors.
//!
//! The document must never describe a route that is not served, or differ from the comments of the
//! gRPC contract.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::rest::Shared;
use super::route::{Access, Answer, Param, ParamType, Route};
use super::shapes::Shapes;

/// `GET /api/openapi.json`
pub(super) async fn serve(State(rest): Shared) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], rest.description.text().to_owned()).into_response()
}

/// The whole document.
pub(super) fn document(routes: &[Route]) -> Value {
    let shapes = Shapes::read();
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
    parameters.extend(route.params.iter().map(parameter));
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
    if let Some(body) = route.body {
        parameters.push(json!({
            "name": "Idempotency-Key", "in": "header", "required": true,
            "description": "The `request_id`. A repetition with the same body gets the same answer and has no second effect.",
            "schema": { "type": "string", "minLength": 1, "maxLength": 128 },
        }));
        let schema = shapes.body(body.message, body.fields);
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

fn parameter(param: &Param) -> Value {
    let schema = match param.kind {
        ParamType::Text => json!({ "type": "string" }),
        ParamType::Number => json!({ "type": "integer" }),
        ParamType::Flag => json!({ "type": "boolean" }),
        ParamType::Texts => json!({ "type": "array", "items": { "type": "string" } }),
    };
    json!({ "name": param.name, "in": "query", "description": param.about, "schema": schema })
}

fn content(answer: Answer, shapes: &Shapes) -> Value {
    let json_of = |schema: Value| json!({ "application/json": { "schema": schema } });
    match answer {
        Answer::Text(kind) => json!({ kind: { "schema": { "type": "string" } } }),
        Answer::Json(about) => json_of(json!({ "description": about })),
        Answer::One(record) => json_of(shapes.record(record)),
        Answer::Page { name, record, truncated } => {
            let mut properties = json!({
                name: { "type": "array", "items": shapes.record(record) },
                "next_cursor": {
                    "type": ["string", "null"], "description": "Cursor of the next page; null on the last page.",
                },
            });
            if truncated {
                let about = "Always false: the pages continue to the end of the list.";
                properties["truncated"] = json!({ "type": "boolean", "description": about });
            }
            json_of(json!({ "type": "object", "required": [name, "next_cursor"], "properties": properties }))
        }
    }
}
