//! Explains why an ask has no answer. The ask's row holds only a message. The code and the hint
//! come from the turn that took its message.
//!
//! An explanation must never contain more than was recorded when the ask ended.

use ghost_domain::{Ask, AskStatus, Code, Refusal, Turn, TurnStatus};
use ghost_operations::mail::deleted_words;
use ghost_world::World;

use super::outcome::Result;
use super::turns::why_ended;

/// The refusal that an ask ended with, redacted. `None` if it is open or was answered.
pub async fn why_unanswered(world: &World, ask: &Ask) -> Result<Option<Refusal>> {
    let text = world.ctx().redactor.redact(ask.error.as_deref().unwrap_or("it ended without an answer"));
    match ask.status {
        AskStatus::Open | AskStatus::Answered => Ok(None),
        AskStatus::TimedOut => Ok(Some(Refusal::new(Code::Timeout, text).hint(
            "the question stays in the agent's inbox, and a late reply is kept: see `ghostctl events --kind \
                     ask.late`; a longer timeout waits for it",
        ))),
        AskStatus::Failed if text == deleted_words(&ask.target) => {
            Ok(Some(Refusal::new(Code::NotFound, text).hint("ask someone else")))
        }
        AskStatus::Failed => {
            let message_id = ask.message_id;
            let turn: Option<Turn> = world
                .store()
                .read(move |r| {
                    Box::pin(async move {
                        match r.message_get(message_id).await?.and_then(|mail| mail.turn_id) {
                            Some(turn_id) => Ok::<_, Refusal>(r.turn_get(turn_id).await?),
                            None => Ok(None),
                        }
                    })
                })
                .await?;
            // If no turn caused the failure of the ask, its target was deleted or its message
            // became a dead letter.
            let ended = turn.and_then(|turn| refusal_of_turn(turn.status, turn.reason.as_deref()?, &text));
            Ok(Some(ended.unwrap_or_else(|| Refusal::new(Code::Unavailable, text))))
        }
    }
}

/// The refusal that the turn ended with, if `text` comes from it. A turn may go on after its ask has
/// failed, and end for another reason.
fn refusal_of_turn(status: TurnStatus, reason: &str, text: &str) -> Option<Refusal> {
    let (code, rest) = why_ended(status, Some(reason))?;
    match status {
        TurnStatus::Failed | TurnStatus::TimedOut => {
            if let Some(hint) = rest.strip_prefix(text) {
                let hint = hint.strip_prefix(" (").and_then(|hint| hint.strip_suffix(')'));
                let refusal = Refusal::new(code, text);
                return Some(match hint {
                    Some(hint) => refusal.hint(hint),
                    None => refusal,
                });
            }
            text.starts_with(rest.trim_end_matches('…')).then(|| Refusal::new(code, text))
        }
        TurnStatus::Cancelled => {
            // For example `ada's turn was cancelled: by operator:uid-0`; the turn's reason may also
            // contain the operator's own text.
            let (_, why) = text.split_once(": ")?;
            rest.starts_with(why).then(|| Refusal::new(code, text))
        }
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split | TurnStatus::Dead => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_comes_from_the_turn_that_failed_the_ask() {
        let failed = |reason: &str, text: &str| refusal_of_turn(TurnStatus::Failed, reason, text);
        let spent = Refusal::new(Code::BudgetExhausted, "agent:ada has 0 tokens left: 10 are needed").hint("raise it");
        assert_eq!(failed(&spent.to_string(), &spent.message), Some(spent.clone()));
        // A later reason of the turn is not the reason that the asker got.
        assert_eq!(failed(&spent.to_string(), "ada was stopped"), None);
        let plain = Refusal::new(Code::Internal, "a (b)");
        assert_eq!(failed(&plain.to_string(), "a (b)"), Some(plain));
        let long = Refusal::new(Code::TooLarge, "x".repeat(3_000));
        assert_eq!(failed(&format!("{}…", &long.to_string()[..2_000]), &long.message), Some(long));
        assert_eq!(failed("no code here", "no code here"), None);
    }

    #[test]
    fn a_cancelled_turn_is_recognized_by_who_cancelled_it() {
        let text = "ada's turn was cancelled: by operator:uid-0";
        let cancelled = |text: &str| refusal_of_turn(TurnStatus::Cancelled, "by operator:uid-0: too long", text);
        assert_eq!(cancelled(text).unwrap().code, Code::Cancelled);
        assert_eq!(cancelled("ada was stopped"), None);
        assert_eq!(refusal_of_turn(TurnStatus::Open, text, text), None);
    }
}
