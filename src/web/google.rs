//! Gemini with Google's search: `POST /v1beta/models/MODEL:generateContent` with the tool `google_search`. It answers in
//! words and names its sources. Google bills each query that the model makes.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::web::GooglePlan;
use ghost_domain::text::{clip, shown};
use ghost_domain::{Clock, Code, Money, Refusal};
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::html;
use crate::search::{Api, TITLE_MAX, check_query, key, wrong};

/// The longest time of a call: the model searches and reads before it answers.
const LIMIT: Duration = Duration::from_secs(60);
/// Sources and queries that are kept.
const KEPT_MAX: usize = 50;

/// A source of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Citation {
    /// Its title, often the name of the site.
    pub title: String,
    /// Its address. Google gives one of its own that redirects to the page.
    pub url: String,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The model that answered.
    pub model: String,
    /// The text.
    pub answer: String,
    /// Its sources.
    pub citations: Vec<Citation>,
    /// The queries that the model made. Google bills each.
    pub queries: Vec<String>,
    /// Input and output tokens of the model.
    pub tokens: (u64, u64),
    /// The price of the queries. The tokens of the model are not in it.
    pub cost: Money,
}

/// The service of `tool.google_search`.
pub struct Google {
    api: Api,
    plan: GooglePlan,
}

impl Google {
    /// The service of a plan.
    ///
    /// # Errors
    /// Why there is none, for example because its key is not set.
    pub fn new(
        plan: &GooglePlan,
        env: &dyn Fn(&str) -> Option<String>,
        client: Client,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let key = key(&plan.api_key_env, env)?;
        Ok(Self { api: Api::new("gemini", &plan.base_url, Some(key), client, clock)?, plan: plan.clone() })
    }

    /// Asks. `model` is one of those that the world file names, its default if absent.
    ///
    /// # Errors
    /// `InvalidArguments` for another model; `PolicyDenied` if the model refuses to answer; `RateLimited`, `Unavailable`,
    /// `Timeout` and `ExecFailed` if the service fails. A call that fails may have been billed.
    pub async fn ask(&self, query: &str, model: Option<&str>) -> Result<Answer, Refusal> {
        check_query(query)?;
        let model = model.unwrap_or(&self.plan.model);
        if model != self.plan.model && !self.plan.models.iter().any(|known| known == model) {
            let known: Vec<&str> =
                std::iter::once(&self.plan.model).chain(&self.plan.models).map(String::as_str).collect();
            return Err(wrong("model", model, &format!("leave it out, or use one of {}", known.join(", "))));
        }
        let url = self.api.url(&format!("v1beta/models/{model}:generateContent"))?;
        let body = json!({
            "contents": [{ "role": "user", "parts": [{ "text": query }] }],
            "tools": [{ "google_search": {} }],
        });
        let answer =
            self.api.call(&url, Some(&body), "x-goog-api-key", LIMIT).await.map_err(|refusal| match refusal.code {
                // Nothing was changed anywhere; at worst it was paid for.
                Code::OutcomeUnknown => Refusal { code: Code::Unavailable, ..refusal }
                    .hint("the search may have been billed; try again later, or do it without a search"),
                _ => refusal,
            })?;
        self.read(model, &answer)
    }

    fn read(&self, model: &str, answer: &Value) -> Result<Answer, Refusal> {
        let candidate = answer.pointer("/candidates/0").unwrap_or(&Value::Null);
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        let said = parts.into_iter().flatten().filter(|part| part.get("thought") != Some(&Value::Bool(true)));
        let text: String = said.filter_map(|part| part.get("text").and_then(Value::as_str)).collect();
        let metadata = candidate.get("groundingMetadata").unwrap_or(&Value::Null);
        let list = |field: &str| metadata.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let queries: Vec<String> =
            list("webSearchQueries").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        let citations = list("groundingChunks").iter().filter_map(|chunk| {
            let web = chunk.get("web")?;
            let url = web
                .get("uri")
                .and_then(Value::as_str)
                .filter(|url| url.starts_with("https://") || url.starts_with("http://"))?;
            let title = html::line(web.get("title").and_then(Value::as_str).unwrap_or_default());
            Some(Citation { title: clip(&title, TITLE_MAX), url: url.to_owned() })
        });
        let tokens =
            |field: &str| answer.pointer(&format!("/usageMetadata/{field}")).and_then(Value::as_u64).unwrap_or(0);
        let count = u64::try_from(queries.len()).unwrap_or(u64::MAX);
        let cost = Money(self.plan.usd_per_query.0.saturating_mul(count));
        if text.trim().is_empty() {
            let reason = answer.pointer("/promptFeedback/blockReason").or_else(|| candidate.get("finishReason"));
            let reason = reason.and_then(Value::as_str).unwrap_or("no reason given");
            let refused = answer.pointer("/promptFeedback/blockReason").is_some()
                || matches!(reason, "SAFETY" | "PROHIBITED_CONTENT" | "BLOCKLIST" | "SPII" | "RECITATION");
            let code = if refused { Code::PolicyDenied } else { Code::ExecFailed };
            let shown = shown(reason, 60);
            return Err(Refusal::new(code, format!("gemini gave no answer: {shown}"))
                .hint("ask in other words")
                .details(json!({ "queries": count, "cost_usd": cost.usd() })));
        }
        Ok(Answer {
            model: model.to_owned(),
            answer: text,
            citations: citations.take(KEPT_MAX).collect(),
            queries: queries.into_iter().take(KEPT_MAX).collect(),
            tokens: (
                tokens("promptTokenCount"),
                tokens("candidatesTokenCount").saturating_add(tokens("thoughtsTokenCount")),
            ),
            cost,
        })
    }
}
