//! What comes back in place of an answer when a gateway, a login page or a wrong address answers, and how a provider itself
//! refuses.

use super::server::{FakeEnd, FakeReply};
use super::strict::Wire;

const PAGE: &str = "<html><body><h1>We will be back soon</h1></body></html>";

const LOGIN: &str =
    "<!doctype html><form action=/login>Your session has expired. Sign in to continue to the model.</form>";

const CHAT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n\
                    data: [DONE]\n\n";

const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":\
                         {\"input_tokens\":9}}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

/// The name of the one reply that is the provider's own: a refusal in its shape.
pub const OWN: &str = "its own refusal";

/// Replies with `status` that are no answer in the protocol `wire`, by name.
#[must_use]
pub fn wrong_replies(status: u16, wire: Wire) -> Vec<(&'static str, FakeReply)> {
    let other = if wire == Wire::Anthropic { CHAT } else { ANTHROPIC };
    let own = "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no\"}}";
    let reply = |kind, body: &'static str| FakeReply::new(status, kind, body);
    vec![
        ("a page", reply("text/html", PAGE)),
        ("a page as a stream", reply("text/event-stream", PAGE)),
        ("a page as JSON", reply("application/json", PAGE)),
        ("nothing", reply("text/event-stream", "")),
        ("a cut body", reply("application/json", "{\"err").ending(FakeEnd::Cut)),
        ("another protocol", reply("text/event-stream", other)),
        ("a login page", reply("text/html; charset=utf-8", LOGIN)),
        ("JSON without the fields", reply("application/json", "{\"status\":\"ok\"}")),
        (OWN, reply("application/json", own)),
    ]
}
