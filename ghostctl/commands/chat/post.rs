//! One chat message, as text and as a line of JSON.

use ghost_proto::json;
use ghost_proto::v1::ChatMessage;

use crate::text::escaped_json;
use crate::view::View;

/// A chat message as text: a line with sequence number, author and time, then the content,
/// indented.
pub fn post_text(message: &ChatMessage, view: &View) -> String {
    let reply = message.reply_to.map(|seq| format!("  reply to #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {}  {}{reply}\n", message.seq, message.from, view.moment(message.ts_ms));
    for line in message.content.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// A chat message as one line of JSON.
pub fn post_json(message: &ChatMessage) -> String {
    format!("{}\n", escaped_json(&json::value(message).to_string()))
}
