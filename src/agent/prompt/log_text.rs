//! Shows the log of a session as text, for people.

use ghost_domain::transcript::{Block, Role};
use ghost_provider::SharedMessage;

/// The messages as text, each with its author.
#[must_use]
pub fn log_text(messages: &[SharedMessage]) -> String {
    let mut lines = Vec::new();
    for message in messages {
        let author = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        for block in &message.blocks {
            match block {
                Block::Text { text } => lines.push(format!("{author}: {text}")),
                Block::ToolCall { name, arguments, .. } => lines.push(format!("{author}: calls {name} {arguments}")),
                Block::ToolResult { name, content, .. } => lines.push(format!("{author}: {name}: {content}")),
                Block::ImageFile(image) => lines.push(format!("{author}: {}", image.note(None))),
                Block::Image { media_type, .. } => lines.push(format!("{author}: an image ({media_type})")),
                Block::Thinking { .. } | Block::Opaque(_) => {}
            }
        }
    }
    lines.join("\n")
}
