//! Requests that may be sent twice: the effect and its answer are one transaction (DESIGN.md section 2, "Arrive").

use ghost_domain::time::BoxFuture;
use ghost_domain::{Code, Refusal, RequestKey, StoredAnswer};
use ghost_store::{Store, Writes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::mail::with_nearest;
use crate::{Result, RuleContext};

/// Runs `work` once for `key`: a repetition gives the first answer again without running anything. The same id with
/// another method or other content is a conflict. Refusals are not kept: what was refused may be tried again.
pub async fn once<T, F>(store: &Store, ctx: &RuleContext, key: RequestKey, work: F) -> Result<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<T>> + Send + 'static,
{
    let at = ctx.now();
    let done = store
        .write(move |w| {
            Box::pin(async move {
                if let Some(stored) = w.request_get(&key.principal, &key.request_id).await? {
                    return replay(&key, &stored);
                }
                let value = work(w).await?;
                let answer = serde_json::to_string(&value)
                    .map_err(|error| Refusal::new(Code::Internal, format!("the answer cannot be kept: {error}")))?;
                w.request_put(&StoredAnswer { key, answer, at }).await?;
                Ok(value)
            })
        })
        .await;
    match done {
        Err(refusal) => Err(with_nearest(store, refusal).await),
        done => done,
    }
}

fn replay<T: DeserializeOwned>(key: &RequestKey, stored: &StoredAnswer) -> Result<T> {
    if stored.key.method != key.method || stored.key.digest != key.digest {
        return Err(Refusal::new(
            Code::Conflict,
            format!("request_id {} was used for another request ({})", key.request_id.as_str(), stored.key.method),
        )
        .hint("use a fresh request_id for each request, and the same one only to repeat it")
        .details(json!({ "field": "request_id" })));
    }
    serde_json::from_str(&stored.answer)
        .map_err(|error| Refusal::new(Code::Internal, format!("the stored answer does not read back: {error}")))
}
