//! Settles calls of toolboxes that the daemon's death cut off, if their manifest says how: the same call again under the
//! same id, or a question to the toolbox whether it happened (promise 2).
//!
//! A call must never be made again unless its manifest declares that as harmless, or the toolbox says that it did not
//! happen.

use ghost_config::plan::toolbox::Idempotency;
use ghost_domain::refusal;
use ghost_operations::Result;
use serde_json::{Value, json};

use crate::context::CallContext;
use crate::effect::{AfterCrash, Output};

/// The variable in which a command gets the id of its call.
pub(super) const CALL_ID: &str = "GHOST_CALL_ID";
/// The entry of `_meta` in which an MCP server gets it.
pub(super) const CALL_ID_META: &str = "ghost/call_id";

/// What becomes of a call of a tool with this declaration.
pub(super) fn after_crash(idempotency: &Idempotency) -> AfterCrash {
    match idempotency {
        Idempotency::None => AfterCrash::Unknown,
        Idempotency::Key | Idempotency::Ask(_) => AfterCrash::Settled,
        Idempotency::Person => AfterCrash::WaitsForPerson,
    }
}

/// The arguments of the question what became of `call`.
pub(super) fn question(call: &CallContext) -> Value {
    json!({ "call_id": call.call_id })
}

/// Settles a call of the tool `full`. `asked` is what the toolbox says of it, if it was asked; `again` makes the call.
///
/// # Errors
/// `OutcomeUnknown` if it is not clear whether the call happened.
pub(super) async fn settle<F>(full: &str, asked: Option<Result<Output>>, again: impl FnOnce() -> F) -> Result<Output>
where
    F: Future<Output = Result<Output>>,
{
    let unknown = |why: String| {
        refusal!(OutcomeUnknown, "{full} was running when the daemon stopped: it may or may not have happened: {why}")
            .hint("check which effects it had before you do it again")
    };
    match asked {
        None => again().await.map_err(|refusal| unknown(refusal.message)),
        Some(Err(refusal)) => Err(unknown(format!("it could not be asked: {}", refusal.message))),
        Some(Ok(answer)) => match happened(&answer.content) {
            Some((true, result)) => Ok(Output { content: result, ..answer }),
            // Nothing has happened yet, so a failure now is one of this call alone.
            Some((false, _)) => again().await,
            None => Err(unknown("its toolbox does not say whether it happened".to_owned())),
        },
    }
}

/// Whether a call happened, and its result, as `{ "happened": ..., "result": ... }` says. A server may answer with this as
/// structured content or as text.
fn happened(content: &Value) -> Option<(bool, Value)> {
    let content = content.get("structured").unwrap_or(content);
    let parsed;
    let content = match content {
        Value::String(text) => {
            parsed = serde_json::from_str::<Value>(text).ok()?;
            &parsed
        }
        other => other,
    };
    let result = content.get("result").cloned().unwrap_or_else(|| json!("it happened before the daemon stopped"));
    Some((content.get("happened")?.as_bool()?, result))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Code, Refusal};

    use super::*;

    async fn settled(asked: Option<Result<Value, Code>>, again: Result<Value, Code>) -> (Result<Value, Code>, bool) {
        let output = |result: Result<Value, Code>| match result {
            Ok(value) => Ok(Output::from(value)),
            Err(code) => Err(Refusal::new(code, "no")),
        };
        let mut made = false;
        let done = settle("box.pay", asked.map(output), || {
            made = true;
            std::future::ready(output(again))
        })
        .await;
        (done.map(|output| output.content).map_err(|refusal| refusal.code), made)
    }

    #[tokio::test]
    async fn a_call_is_made_again_only_if_that_is_harmless() {
        let (paid, unknown) = (json!("paid"), Err(Code::OutcomeUnknown));
        assert_eq!(settled(None, Ok(paid.clone())).await, (Ok(paid.clone()), true));
        assert_eq!(settled(None, Err(Code::Unavailable)).await, (unknown.clone(), true), "the first may have happened");
        let yes = json!({ "happened": true, "result": "paid" });
        assert_eq!(settled(Some(Ok(yes.clone())), Ok(json!("twice"))).await, (Ok(paid.clone()), false));
        let no = json!({ "happened": false });
        assert_eq!(settled(Some(Ok(no.clone())), Ok(paid.clone())).await, (Ok(paid), true));
        assert_eq!(settled(Some(Ok(no)), Err(Code::ExecFailed)).await, (Err(Code::ExecFailed), true));
        for unclear in [json!({}), json!("perhaps"), json!({ "happened": "yes" }), Value::Null] {
            assert_eq!(settled(Some(Ok(unclear)), Ok(json!("twice"))).await, (unknown.clone(), false));
        }
        assert_eq!(settled(Some(Err(Code::Timeout)), Ok(json!("twice"))).await, (unknown, false));
        for content in [json!(yes.to_string()), json!({ "structured": yes, "text": "x" })] {
            assert_eq!(happened(&content), Some((true, json!("paid"))));
        }
    }
}
