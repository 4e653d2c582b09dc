//! One post of a channel, for people and for programs.

use ghost_proto::v1::ChatMessage;

use crate::record;
use crate::view::View;

/// A post for people: its head, and its lines below.
pub fn told(message: &ChatMessage, view: &View) -> String {
    let reply = message.reply_to.map(|seq| format!("  answers #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {}  {}{reply}\n", message.seq, message.from, view.moment(message.ts_ms));
    for line in message.content.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// A post as one line for programs.
pub fn line(message: &ChatMessage) -> String {
    format!("{}\n", record::chat_message(message))
}
