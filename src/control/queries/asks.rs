//! Why an ask has no answer. Its record keeps the words alone; the code and the hint are those of what became of its mail.
//!
//! Must never: say more of an ask than was recorded when it ended.

use ghost_domain::{Ask, AskStatus, Code, Refusal, Turn, TurnStatus};
use ghost_rules::mail::deleted_words;
use ghost_world::World;

use super::outcome::Result;
use super::turns::why_ended;

/// The refusal that an ask ended with; nothing if it is open or was answered. Its words are redacted.
pub async fn why_unanswered(world: &World, ask: &Ask) -> Result<Option<Refusal>> {
    let words = world.ctx().redactor.redact(ask.error.as_deref().unwrap_or("it ended without an answer"));
    match ask.status {
        AskStatus::Open | AskStatus::Answered => Ok(None),
        AskStatus::TimedOut => Ok(Some(
            Refusal::new(Code::Timeout, words)
                .hint("a late reply is kept, see `ghostctl events --kind ask.late`; a longer timeout waits for it"),
        )),
        AskStatus::Failed if words == deleted_words(&ask.target) => {
            Ok(Some(Refusal::new(Code::NotFound, words).hint("ask someone else")))
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
            // An ask that no end of a turn failed was failed because its target is gone or has set the mail aside.
            let ended = turn.and_then(|turn| of_its_turn(turn.status, turn.reason.as_deref()?, &words));
            Ok(Some(ended.unwrap_or_else(|| Refusal::new(Code::Unavailable, words))))
        }
    }
}

/// The refusal that a turn ended with, if that is what these words are about. A turn may go on after its ask has failed and
/// end for another reason.
fn of_its_turn(status: TurnStatus, reason: &str, words: &str) -> Option<Refusal> {
    let (code, rest) = why_ended(status, Some(reason))?;
    match status {
        TurnStatus::Failed => {
            if let Some(hint) = rest.strip_prefix(words) {
                let hint = hint.strip_prefix(" (").and_then(|hint| hint.strip_suffix(')'));
                let refusal = Refusal::new(code, words);
                return Some(match hint {
                    Some(hint) => refusal.hint(hint),
                    None => refusal,
                });
            }
            words.starts_with(rest.trim_end_matches('…')).then(|| Refusal::new(code, words))
        }
        TurnStatus::Cancelled => {
            // `ada's turn was cancelled: by operator:uid-0`, where the turn may have the operator's own words beside it.
            let (_, why) = words.split_once(": ")?;
            rest.starts_with(why).then(|| Refusal::new(code, words))
        }
        TurnStatus::Open | TurnStatus::Finished | TurnStatus::Split | TurnStatus::Dead => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_that_failed_an_ask_says_how() {
        let failed = |reason: &str, words: &str| of_its_turn(TurnStatus::Failed, reason, words);
        let spent = Refusal::new(Code::BudgetExhausted, "agent:ada has 0 tokens left: 10 are needed").hint("raise it");
        assert_eq!(failed(&spent.to_string(), &spent.message), Some(spent.clone()));
        // What it ended with later is not what the asker was told.
        assert_eq!(failed(&spent.to_string(), "ada was stopped"), None);
        let plain = Refusal::new(Code::Internal, "a (b)");
        assert_eq!(failed(&plain.to_string(), "a (b)"), Some(plain));
        let long = Refusal::new(Code::TooLarge, "x".repeat(3_000));
        assert_eq!(failed(&format!("{}…", &long.to_string()[..2_000]), &long.message), Some(long));
        assert_eq!(failed("no code here", "no code here"), None);
    }

    #[test]
    fn a_cancelled_turn_is_known_by_who_cancelled_it() {
        let words = "ada's turn was cancelled: by operator:uid-0";
        let cancelled = |words: &str| of_its_turn(TurnStatus::Cancelled, "by operator:uid-0: too long", words);
        assert_eq!(cancelled(words).unwrap().code, Code::Cancelled);
        assert_eq!(cancelled("ada was stopped"), None);
        assert_eq!(of_its_turn(TurnStatus::Open, words, words), None);
    }
}
