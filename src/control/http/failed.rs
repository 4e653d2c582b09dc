//! Refusals as HTTP responses.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ghost_domain::{Code, Refusal};
use ghost_proto::http::{Place, ROUTES};
use ghost_proto::names::renamed;
use serde_json::{Value, json};

/// A refusal that becomes a response.
pub(super) struct Failed(pub(super) Refusal);

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        (http_status(self.0.code), Json(body(&self.0))).into_response()
    }
}

/// Text with the wire names of fields replaced by the names of query parameters.
pub(super) fn with_parameter_names(text: &str) -> String {
    renamed(text, |word| match word {
        // The event streams are no methods over HTTP.
        "kinds" => Some("kind".to_owned()),
        _ => {
            let mut fields = ROUTES.iter().flat_map(|route| route.fields_in(Place::Query));
            fields.find(|field| field.field == word && field.name != word).map(|field| field.name.to_owned())
        }
    })
}

/// The JSON body of a refusal: `{error: {code, message, hint?, details?}}`.
pub(super) fn body(refusal: &Refusal) -> Value {
    let mut error = json!({ "code": refusal.code, "message": with_parameter_names(&refusal.message) });
    if let Some(hint) = refusal.hint.as_deref().map(with_parameter_names) {
        error["hint"] = json!(hint);
    }
    if let Some(details) = &refusal.details {
        error["details"] = details.clone();
        if let Some(field) = details.get("field").and_then(Value::as_str) {
            error["details"]["field"] = with_parameter_names(field).into();
        }
    }
    json!({ "error": error })
}

/// The HTTP status of a refusal.
pub(super) fn http_status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArguments | Code::PayloadMismatch => StatusCode::BAD_REQUEST,
        Code::CursorAhead => StatusCode::RANGE_NOT_SATISFIABLE,
        Code::CursorExpired => StatusCode::GONE,
        Code::NotFound | Code::UnknownTool => StatusCode::NOT_FOUND,
        Code::AccessDenied | Code::PathDenied | Code::PolicyDenied | Code::ApprovalDenied => StatusCode::FORBIDDEN,
        Code::Conflict | Code::ApprovalPending | Code::OutcomeUnknown => StatusCode::CONFLICT,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::RateLimited | Code::InboxFull | Code::HopLimit | Code::BudgetExhausted | Code::LoopGuard => {
            StatusCode::TOO_MANY_REQUESTS
        }
        Code::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable | Code::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
        Code::Internal | Code::ExecFailed => StatusCode::INTERNAL_SERVER_ERROR,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
    }
}
