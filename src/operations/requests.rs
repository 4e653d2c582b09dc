//! Idempotent requests: the effect of a request and its stored answer commit in one transaction
//! (docs/design.md, "The way of a message").

use serde::de::DeserializeOwned;

use crate::mail::with_nearest;
use crate::prelude::*;

/// Runs `work` once for `key`. A repeated request gets the first answer and runs nothing. The same
/// request id with another method or other content is a conflict. Refusals are not stored, so a
/// refused request can be tried again.
pub async fn once<T, F>(store: &Store, ctx: &Context, key: RequestKey, work: F) -> Result<T>
where
    T: Serialize + DeserializeOwned + Send + 'static,
    F: FnOnce(&mut Tx) -> Result<T> + Send + 'static,
{
    let at = ctx.now();
    let done = ctx
        .write(store, move |w| {
            if let Some(stored) = w.request_get(&key.principal, &key.request_id)? {
                return replay(&key, &stored);
            }
            let value = work(w)?;
            let answer = serde_json::to_string(&value)
                .map_err(|error| refusal!(Internal, "the answer cannot be stored: {error}"))?;
            w.request_put(&StoredAnswer { key, answer, at })?;
            Ok(value)
        })
        .await;
    match done {
        Err(refusal) => Err(with_nearest(store, refusal).await),
        done => done,
    }
}

fn replay<T: DeserializeOwned>(key: &RequestKey, stored: &StoredAnswer) -> Result<T> {
    if stored.key.method != key.method || stored.key.digest != key.digest {
        let (id, method) = (key.request_id.as_str(), &stored.key.method);
        return Err(refusal!(Conflict, "request_id {id} was used for another request ({method})")
            .hint("use a fresh request_id for each request, and the same one only to repeat it")
            .details(json!({ "field": "request_id" })));
    }
    serde_json::from_str(&stored.answer)
        .map_err(|error| refusal!(Internal, "the stored answer cannot be read: {error}"))
}
