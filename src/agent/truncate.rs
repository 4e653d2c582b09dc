//! Shortens a conversation to a number of bytes. The session's log goes first, then old content of the turn is shortened,
//! the last round last.
//!
//! Truncation must never change the briefing or the mail, or remove the result of a call.

use ghost_domain::image::IMAGE_TOKENS;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_provider::SharedMessage;
use serde_json::Value;

use crate::images::leave_out;

/// Stands where the older part of a log was left out.
pub const CUT_MARK: &str =
    "[The older part of this session is left out here. To read it, call syscall.session.history.]";

/// Minimum bytes that each result of the last round keeps, and bytes of the mark that replaces
/// truncated text.
const RESULT_LEAST: usize = 400;
const MARK_BYTES: usize = 64;

/// Bytes of text that take as many tokens as an image.
const IMAGE_BYTES: usize = 3 * IMAGE_TOKENS;

/// Size of a conversation in bytes.
pub fn bytes_of(messages: &[SharedMessage]) -> usize {
    messages.iter().map(|message| message_bytes(message)).sum()
}

/// Shortens a conversation to `limit` bytes, as far as possible. `past` is the number of messages before the turn's
/// mail: the briefing and the session's log. The log loses its older half first, then the rest. The briefing and the
/// mail stay unchanged. Then, from the turn's oldest round on, images and results are replaced with a note, and long texts and
/// arguments are truncated. If that is not enough, opaque blocks of old answers are dropped; then images of the last
/// round are replaced, and its results are truncated, each in proportion to its size; then its arguments. No call loses its result.
///
/// Returns the number of messages that are now before the mail.
pub fn truncate(messages: &mut Vec<SharedMessage>, past: usize, limit: usize) -> usize {
    let mut past = past;
    for part in [2, 1] {
        if bytes_of(messages) > limit {
            past = drop_log(messages, past, part);
        }
    }
    truncate_turn(messages, past + 1, limit);
    past
}

/// Whether [`shorten_seen`] and [`truncate`] would leave a conversation as it is.
pub fn is_short(messages: &[SharedMessage], past: usize, once: usize, limit: usize) -> bool {
    let is_long = |block: &Block| matches!(block, Block::ToolResult { content, .. } if content.len() > once);
    let turn = messages.iter().skip(past + 1).filter(|message| message.role == Role::Tool);
    !turn.flat_map(|message| &message.blocks).any(is_long) && bytes_of(messages) <= limit
}

/// Replaces each result of more than `once` bytes with a note, if the model has made calls since it saw the result. The
/// results of the last calls stay, so a model that has to correct its answer still has them. `past` is as in [`truncate`].
pub fn shorten_seen(messages: &mut [SharedMessage], past: usize, once: usize) {
    let Some(last) = messages.iter().rposition(|message| message.role == Role::Tool) else { return };
    for block in messages[..last].iter_mut().skip(past + 1).flat_map(|message| &mut message.blocks) {
        if let Block::ToolResult { content, .. } = block
            && content.len() > once
        {
            *content = format!("[a result of {} bytes was here; call again to see it]", content.len());
        }
    }
}

/// Removes the oldest `1 / part` of the log, up to a round's edge, and leaves a mark. Returns the number of messages
/// that are now before the mail.
fn drop_log(messages: &mut Vec<SharedMessage>, past: usize, part: usize) -> usize {
    let log = messages.get(1..past).unwrap_or_default();
    let mark = SharedMessage::from(Message::text(Role::User, CUT_MARK));
    if log.is_empty() || *log == [mark.clone()] {
        return past;
    }
    let (all, mut gone) = (bytes_of(log), 0);
    let end = log.iter().position(|message| {
        let is_edge = gone * part >= all && message.role != Role::Tool;
        gone += message_bytes(message);
        is_edge
    });
    let end = end.map_or(past, |end| end + 1);
    messages.splice(1..end, [mark]);
    past + 2 - end
}

fn truncate_turn(messages: &mut [SharedMessage], keep_first: usize, limit: usize) {
    let mut total = bytes_of(messages);
    let last = messages.len().saturating_sub(2);
    for message in messages.iter_mut().take(last).skip(keep_first) {
        if total <= limit {
            return;
        }
        let with_images = message_bytes(message);
        leave_out(std::slice::from_mut(message), Some("left out to save space"));
        total = total.saturating_sub(with_images.saturating_sub(message_bytes(message)));
        for block in &mut message.blocks {
            let before = block_bytes(block);
            match block {
                Block::ToolResult { content, .. } if content.len() > 120 => {
                    *content = format!("[an older result of {} bytes, dropped to save space]", content.len());
                }
                Block::ToolCall { arguments, .. } => shorten(arguments),
                Block::Text { text } if text.len() > 400 => {
                    *text = format!("{}\n[truncated to save space]", ghost_domain::text::prefix_bytes(text, 300));
                }
                _ => {}
            }
            total = total.saturating_sub(before.saturating_sub(block_bytes(block)));
        }
    }
    // Opaque blocks of providers cannot be truncated. All of one answer are dropped together.
    for message in messages.iter_mut().take(last).skip(keep_first) {
        if total <= limit {
            return;
        }
        let before = message_bytes(message);
        message.blocks.retain(|block| !matches!(block, Block::Opaque(_)));
        total = total.saturating_sub(before.saturating_sub(message_bytes(message)));
    }
    let round = messages.get_mut(last.max(keep_first)..).unwrap_or_default();
    if total > limit {
        let with_images = bytes_of(round);
        leave_out(round, Some("left out to save space"));
        total = total.saturating_sub(with_images.saturating_sub(bytes_of(round)));
    }
    if let Some(over) = total.checked_sub(limit).filter(|over| *over > 0) {
        shorten_round(round, over);
    }
}

/// Removes `over` bytes from a round, as far as possible.
fn shorten_round(round: &mut [SharedMessage], over: usize) {
    let blocks = || round.iter().flat_map(|message| &message.blocks);
    let whole: usize = blocks().filter(|block| matches!(block, Block::ToolResult { .. })).map(block_bytes).sum();
    let all: usize = blocks().map(block_bytes).sum();
    let left = whole.saturating_sub(over);
    for block in round.iter_mut().flat_map(|message| &mut message.blocks) {
        if let Block::ToolResult { content, .. } = block {
            // 128 bits, because the product of two sizes may overflow.
            let share = content.len() as u128 * left as u128 / whole.max(1) as u128;
            let share = usize::try_from(share).unwrap_or(usize::MAX).saturating_sub(MARK_BYTES).max(RESULT_LEAST);
            if content.len() > share {
                *content = ghost_domain::text::cut_marked(content, share).0;
            }
        }
    }
    if all.saturating_sub(bytes_of(round)) < over {
        for block in round.iter_mut().flat_map(|message| &mut message.blocks) {
            if let Block::ToolCall { arguments, .. } = block {
                shorten(arguments);
            }
        }
    }
}

/// Truncates long strings in arguments of past calls, such as a file's content.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > 400 => {
            *text = format!("{}[truncated to save space]", ghost_domain::text::prefix_bytes(text, 300));
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(map) => map.values_mut().for_each(shorten),
        _ => {}
    }
}

fn block_bytes(block: &Block) -> usize {
    match block {
        Block::Text { text } => text.len(),
        Block::Thinking { text } => text.len(),
        Block::Opaque(opaque) => opaque.json.len(),
        Block::Image { .. } | Block::ImageFile(_) => IMAGE_BYTES,
        Block::ToolCall { name, arguments, .. } => name.len() + json_bytes(arguments),
        Block::ToolResult { content, .. } => content.len(),
    }
}

fn message_bytes(message: &Message) -> usize {
    let mut proven = false;
    let mut sent_bytes = |block: &Block| {
        // Reasoning without a proof from its provider is not sent back.
        let sent = proven || !matches!(block, Block::Thinking { .. });
        proven = matches!(block, Block::Opaque(opaque) if opaque.attached);
        if sent { block_bytes(block) } else { 0 }
    };
    message.blocks.iter().map(&mut sent_bytes).sum()
}

/// An estimate of a JSON value's size, which is cheap and close enough for a limit.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(json_bytes).sum::<usize>() + items.len(),
        Value::Object(map) => map.iter().map(|(key, item)| key.len() + 4 + json_bytes(item)).sum(),
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::transcript::Opaque;
    use ghost_domain::{ImageFile, MediaType};
    use serde_json::json;

    use super::*;

    fn message(role: Role, blocks: Vec<Block>) -> SharedMessage {
        Message { role, blocks }.into()
    }

    fn words(role: Role, text: impl Into<String>) -> SharedMessage {
        Message::text(role, text).into()
    }

    #[test]
    fn the_log_goes_first_at_a_rounds_edge() {
        let text = |role, bytes| words(role, "x".repeat(bytes));
        let result = Block::ToolResult { id: "1".into(), name: "t".into(), content: "z".repeat(300), is_error: false };
        let round = [
            text(Role::User, 100),
            text(Role::Assistant, 10),
            message(Role::Tool, vec![result]),
            text(Role::Assistant, 50),
        ];
        let turn = [text(Role::User, 500), text(Role::Assistant, 500)];
        let whole: Vec<SharedMessage> =
            [vec![text(Role::User, 500)], [round.clone(), round].concat(), turn.to_vec()].concat();
        let cut = |limit| {
            let mut messages = whole.clone();
            let past = truncate(&mut messages, 9, limit);
            let sizes: Vec<usize> = messages.iter().map(|message| message_bytes(message)).collect();
            (past, sizes)
        };
        let mark = CUT_MARK.len();
        assert_eq!(cut(2_420), (9, vec![500, 100, 10, 300, 50, 100, 10, 300, 50, 500, 500]));
        assert_eq!(cut(2_419), (6, vec![500, mark, 100, 10, 300, 50, 500, 500]));
        assert_eq!(cut(1_900), (2, vec![500, mark, 500, 500]));
    }

    #[test]
    fn reasoning_without_proof_does_not_count() {
        let thought = || Block::Thinking { text: "y".repeat(900) };
        let proof = Block::Opaque(Opaque { author: "p/m".into(), json: "{}".into(), attached: true });
        let result = Block::ToolResult { id: "1".into(), name: "t".into(), content: "z".repeat(500), is_error: false };
        let answer = message(Role::Assistant, vec![thought(), proof, thought()]);
        let mut messages = vec![answer, message(Role::Tool, vec![result]), words(Role::User, "")];
        assert_eq!(bytes_of(&messages), 1_402);
        let before = messages.clone();
        truncate(&mut messages, 0, 1_402);
        assert_eq!(messages, before);
    }

    #[test]
    fn opaque_blocks_of_old_answers_are_dropped_when_cutting_is_not_enough() {
        let attached = || Block::Opaque(Opaque { author: "p/m".into(), json: "x".repeat(5_000), attached: true });
        let answer = || message(Role::Assistant, vec![attached(), Block::Thinking { text: "t".repeat(90) }]);
        let mut messages = vec![answer(), answer(), answer(), answer()];
        truncate(&mut messages, 0, 16_000);
        let kept: Vec<bool> =
            messages.iter().map(|message| matches!(message.blocks.first(), Some(Block::Opaque(_)))).collect();
        assert_eq!(kept, [true, false, true, true], "the opening and the last round keep theirs");
    }

    #[test]
    fn a_short_conversation_is_what_nothing_shortens() {
        let result =
            |bytes| Block::ToolResult { id: "1".into(), name: "t".into(), content: "z".repeat(bytes), is_error: false };
        let text = |role| words(role, "x".repeat(500));
        let of = |bytes| {
            vec![text(Role::User), text(Role::User), text(Role::Assistant), message(Role::Tool, vec![result(bytes)])]
        };
        for (bytes, rounds) in [(0, 1), (99, 1), (100, 2), (101, 1), (101, 2), (900, 3)] {
            let whole: Vec<SharedMessage> = (0..rounds).flat_map(|_| of(bytes)).collect();
            for limit in [bytes_of(&whole) - 1, bytes_of(&whole), bytes_of(&whole) + 1] {
                let mut cut = whole.clone();
                shorten_seen(&mut cut, 1, 100);
                let past = truncate(&mut cut, 1, limit);
                let is_same = (&cut, past) == (&whole, 1);
                let short = is_short(&whole, 1, 100, limit);
                assert!(!short || is_same, "{bytes} {rounds} {limit}");
                // A copy is allowed where it is not needed, but not for what is short in every respect.
                assert_eq!(short, bytes <= 100 && limit >= bytes_of(&whole), "{bytes} {rounds} {limit}");
            }
        }
    }

    #[test]
    fn old_arguments_are_shortened() {
        let arguments = json!({ "path": "a.md", "content": "y".repeat(5_000) });
        let big = Block::ToolCall { id: "x".into(), name: "t".into(), arguments };
        let mut messages = vec![message(Role::Assistant, vec![big]); 4];
        truncate(&mut messages, 0, 15_500);
        let sizes: Vec<usize> = messages.iter().map(|message| message_bytes(message)).collect();
        assert!(sizes[0] > 5_000 && sizes[1] < 400 && sizes[3] > 5_000, "{sizes:?}");
        assert_eq!(messages[1].calls().next().unwrap().2["path"], "a.md");
    }

    #[test]
    fn the_last_round_is_cut_only_when_old_rounds_are_not_enough() {
        let result = |bytes: usize| Block::ToolResult {
            id: "1".into(),
            name: "t".into(),
            content: "z".repeat(bytes),
            is_error: false,
        };
        let big = json!({ "path": "a.md", "content": "y".repeat(5_000) });
        let call = Block::ToolCall { id: "1".into(), name: "t".into(), arguments: big };
        let messages = || {
            vec![
                words(Role::User, "x".repeat(2_000)),
                message(Role::Assistant, vec![call.clone()]),
                message(Role::Tool, vec![result(8_000), result(2_000)]),
            ]
        };
        let sizes = |limit| {
            let mut messages = messages();
            truncate(&mut messages, 0, limit);
            messages.iter().map(|message| message_bytes(message)).collect::<Vec<_>>()
        };
        let results = sizes(12_100);
        assert!(results[0] == 2_000 && results[1] > 5_000 && (5_000..5_300).contains(&results[2]), "{results:?}");
        let arguments = sizes(4_000);
        assert!(arguments[0] == 2_000 && arguments[1] < 400 && arguments[2] < 1_000, "{arguments:?}");
    }

    #[test]
    fn images_give_way_the_oldest_rounds_first() {
        let image = || ImageFile {
            path: "p".into(),
            media_type: MediaType::Png,
            sha256: "s".into(),
            bytes: 1,
            width: 1,
            height: 1,
        };
        let result = || Block::ToolResult { id: "1".into(), name: "t".into(), content: "{}".into(), is_error: false };
        let round = || {
            let call = Block::ToolCall { id: "1".into(), name: "t".into(), arguments: json!({}) };
            let results = message(Role::Tool, vec![result(), Block::ImageFile(image())]);
            [message(Role::Assistant, vec![call]), results]
        };
        let whole = [vec![words(Role::User, "mail")], round().to_vec(), round().to_vec()].concat();
        let left = |limit| {
            let mut messages = whole.clone();
            truncate(&mut messages, 0, limit);
            let has = |at: usize| messages[at].blocks.iter().any(|block| matches!(block, Block::ImageFile(_)));
            (has(2), has(4), bytes_of(&messages) <= limit)
        };
        assert_eq!(left(31_000), (true, true, true));
        assert_eq!(left(30_000), (false, true, true));
        assert_eq!(left(15_000), (false, false, true));
    }

    #[test]
    fn a_long_result_is_seen_once_and_stays_for_a_correction() {
        let result = |bytes: usize| {
            message(
                Role::Tool,
                vec![Block::ToolResult {
                    id: "1".into(),
                    name: "t".into(),
                    content: "y".repeat(bytes),
                    is_error: false,
                }],
            )
        };
        let answer = || words(Role::Assistant, "so");
        let log = [words(Role::User, "briefing"), result(900)];
        let turn = [words(Role::User, "mail"), answer(), result(501), answer(), result(500), answer()];
        let sizes = |more: &[SharedMessage]| {
            let mut messages = [&log[..], &turn, more].concat();
            shorten_seen(&mut messages, log.len(), 500);
            messages
                .iter()
                .filter(|message| message.role == Role::Tool)
                .map(|message| message_bytes(message))
                .collect::<Vec<_>>()
        };
        assert!(matches!(sizes(&[])[..], [900, ..100, 500]), "the log is not of this turn");
        assert!(matches!(sizes(&[result(800), answer(), words(Role::User, "not so")])[..], [900, ..100, 500, 800]));
        assert!(matches!(sizes(&[result(800), answer(), result(9)])[..], [900, ..100, 500, ..100, 9]));
    }

    // covers: TOOL-14
    #[test]
    fn old_results_are_replaced_and_the_opening_and_the_last_round_stay() {
        let long = "y".repeat(1_000);
        let result = |id: &str| {
            message(
                Role::Tool,
                vec![Block::ToolResult { id: id.into(), name: "t".into(), content: long.clone(), is_error: false }],
            )
        };
        let mut messages = vec![words(Role::User, long.clone()), result("1"), result("2"), result("3")];
        truncate(&mut messages, 0, 3_100);
        assert_eq!(messages[0].visible_text().len(), 1_000);
        let sizes: Vec<usize> = messages.iter().map(|message| message_bytes(message)).collect();
        assert!(sizes[1] < 100 && sizes[3] == 1_000, "{sizes:?}");
    }
}
