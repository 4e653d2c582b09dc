//! The actions of the simulated model: random tool calls and texts for one conversation.
//!
//! The actions must never depend on anything but the conversation and the random numbers.

use ghost_domain::transcript::Block;
use ghost_provider::{ModelRequest, Stop};
use serde_json::{Value, json};

use super::chance::Dice;
use super::tools::{MARK, OUTSIDE, POISON};

/// A message with this word makes the model call the poisoned tool.
pub(crate) const POISON_WORD: &str = "POISONED-MAIL";

/// A random answer to `request` that may name these agents. Some of them may be stopped, deleted or not created yet.
/// `mark` makes its content unique.
pub(crate) fn answer(
    names: &[String],
    request: &ModelRequest,
    round: usize,
    mark: u64,
    dice: &mut Dice,
) -> (Vec<Block>, Stop) {
    let mail = mail_of(request);
    if mail.contains(POISON_WORD) {
        return (vec![call(mark, 0, POISON, json!({}))], Stop::ToolUse);
    }
    // The probability of the last answer grows with each round.
    let last = (round as u64) * 30 + 22;
    if dice.chance(last) {
        return final_answer(mark, dice);
    }
    let mut blocks = vec![Block::Text { text: format!("On with it, {mark}.") }];
    for index in 0..dice.between(1, 4) {
        let (name, arguments) = random_call(names, request, &mail, mark, index, dice);
        blocks.push(call(mark, index, &name, arguments));
    }
    let stop = stop_of(&blocks);
    (blocks, stop)
}

fn final_answer(mark: u64, dice: &mut Dice) -> (Vec<Block>, Stop) {
    match dice.below(20) {
        // A call written as text, an answer without content, a refusal.
        0 => {
            let text =
                format!("<tool_call>{{\"name\":\"{MARK}\",\"arguments\":{{\"token\":\"w{mark}\"}}}}</tool_call>");
            (vec![Block::Text { text }], Stop::EndTurn)
        }
        1 => (Vec::new(), Stop::MaxTokens),
        2 => (Vec::new(), Stop::Refused(None)),
        _ => (vec![Block::Text { text: format!("That is done, {mark}.") }], Stop::EndTurn),
    }
}

fn call(mark: u64, index: u64, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: format!("c{mark}-{index}"), name: name.to_owned(), arguments }
}

fn random_call(
    names: &[String],
    request: &ModelRequest,
    mail: &str,
    mark: u64,
    index: u64,
    dice: &mut Dice,
) -> (String, Value) {
    let token = format!("t{mark}-{index}");
    let other = dice.pick(names).cloned().unwrap_or_default();
    let (name, arguments) = match dice.below(100) {
        0..16 => ("syscall.message.send", json!({ "to": other, "content": format!("word {token}") })),
        16..18 => ("syscall.broadcast", json!({ "message": format!("to all {token}") })),
        18..20 => ("syscall.message.send", json!({ "to": other, "content": format!("quiet {token}"), "wake": false })),
        20..22 => {
            let file = format!("{token}.md");
            ("syscall.message.send", json!({ "to": other, "content": format!("file {token}"), "filename": file }))
        }
        22..30 => ("syscall.task.create", json!({ "title": format!("work {token}"), "owner": other })),
        30..40 => match task_in(mail) {
            Some(task_id) => {
                let status = *dice.pick(&["in_progress", "done", "failed"]).unwrap_or(&"done");
                ("syscall.task.update", json!({ "task_id": task_id, "status": status, "note": token }))
            }
            None => ("syscall.task.list", json!({ "owner": request.agent_id })),
        },
        40..50 => {
            let seconds = dice.between(3, 25);
            ("syscall.ask", json!({ "agent_id": other, "message": format!("why {token}"), "timeout_seconds": seconds }))
        }
        50..58 => {
            ("workspace.write", json!({ "path": format!("notes/{token}.md"), "content": format!("note {token}") }))
        }
        58..62 => ("workspace.write", json!({ "path": "diary.md", "content": format!("{token}\n"), "append": true })),
        62..65 => ("workspace.read", json!({ "path": "diary.md" })),
        65..70 => ("syscall.inbox.read", json!({ "limit": dice.between(1, 5) })),
        70..73 => ("syscall.agent.list", json!({})),
        73..75 => ("syscall.session.status", json!({})),
        75..86 => (MARK, json!({ "token": token })),
        86..97 => (OUTSIDE, json!({ "token": token, "manner": manner(dice) })),
        97 => (MARK, json!({ "tokn": token })),
        98 => ("sim.nothing", json!({})),
        _ => ("syscall.agent.create", json!({ "archetype": "worker", "goal": format!("help {token}") })),
    };
    (name.to_owned(), arguments)
}

fn manner(dice: &mut Dice) -> &'static str {
    match dice.below(20) {
        0..13 => "plain",
        13..16 => "slow",
        16..18 => "refuse",
        18 => "hang",
        _ => "panic",
    }
}

/// The mail of the turn.
fn mail_of(request: &ModelRequest) -> String {
    request.messages.get(request.past).map(|message| message.visible_text()).unwrap_or_default()
}

/// The id of a task that the mail names.
fn task_in(mail: &str) -> Option<&str> {
    let at = mail.find("task_id: ")? + "task_id: ".len();
    mail.get(at..at + 36)
}

/// The stop reason that fits the blocks.
pub(crate) fn stop_of(blocks: &[Block]) -> Stop {
    if blocks.iter().any(|block| matches!(block, Block::ToolCall { .. })) { Stop::ToolUse } else { Stop::EndTurn }
}
