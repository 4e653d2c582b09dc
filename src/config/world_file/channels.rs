//! Reads `channels`: webhooks to the outside, and how readily agents react there.
//!
//! The value of a secret must never be accepted. The file names the environment variable instead.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::conversation::WEBHOOK_ACTIONS;
use ghost_domain::{ActionKind, AgentId, ChannelName, Reactions};

use super::parts::variable;
use crate::models::check_base_url;
use crate::reader::{Field, Map, is_name};

/// The largest number of webhooks in a world.
const WEBHOOKS_MAX: usize = 64;
/// The default for `timestamp_tolerance_s`.
const TOLERANCE: Duration = Duration::from_secs(300);

/// One entry of `channels.webhooks`. The comment of each field is its key in the file.
pub struct WebhookEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// `url`. This and the fields below are `None` if they are missing or wrong, which was
    /// reported.
    pub url: Option<String>,
    /// `secret_env`.
    pub secret_env: Option<String>,
    /// `agent`.
    pub agent: Option<(Field<'n>, AgentId)>,
    /// `timestamp_tolerance_s`.
    pub tolerance: Duration,
    /// `actions`.
    pub actions: Vec<ActionKind>,
}

/// The content of `channels`. The comment of each field is its key in the file.
pub struct Channels<'n> {
    /// `webhooks`.
    pub webhooks: BTreeMap<String, WebhookEntry<'n>>,
    /// `reactions`.
    pub reactions: Reactions,
}

/// Reads `channels`.
pub fn channels<'n>(map: &Map<'n>) -> Channels<'n> {
    let mut reactions = Reactions::Minimal;
    let mut read = |channels: &Map<'n>| {
        reactions = channels.get("reactions").and_then(|field| level(&field)).unwrap_or(reactions);
        let mut found = BTreeMap::new();
        let list = channels.get("webhooks").map(|list| list.entries()).unwrap_or_default();
        for (at, (key, field)) in list.into_iter().enumerate() {
            if at == WEBHOOKS_MAX {
                let message = format!("there are more than {WEBHOOKS_MAX} webhooks");
                field.error(message, "let one webhook serve several threads");
                break;
            }
            if !is_name(&key.text) {
                let hint = "use 1 to 64 letters, digits, `.`, `_` and `-`";
                field.error("the webhook's name is not a name", hint);
            } else if let Some(entry) = webhook(&field) {
                found.insert(key.text.clone(), entry);
            }
        }
        found
    };
    let webhooks = map.get("channels").and_then(|field| field.map()).map(|inner| {
        let found = read(&inner);
        // People look here for the chat channels between agents.
        inner.finish_or(&[], |key| {
            let shown = key.parse::<ChannelName>().ok()?;
            Some(format!(
                "webhooks are written under `webhooks`; a chat channel at the top of the file: `chat_channels: {{ {shown}: \
                 {{ members: [lead] }} }}`"
            ))
        });
        found
    });
    let webhooks = webhooks.unwrap_or_default();
    Channels { webhooks, reactions }
}

/// Reads a level of reactions.
pub fn level(field: &Field<'_>) -> Option<Reactions> {
    let word = field.choice(&["minimal", "extensive"])?;
    Some(if word == "extensive" { Reactions::Extensive } else { Reactions::Minimal })
}

/// Reads the supported actions. Sending is always included.
fn actions(field: &Field<'_>) -> Vec<ActionKind> {
    let mut found = vec![ActionKind::Send];
    for entry in field.list() {
        let word = entry.choice(&["send", "delete", "react", "poll", "pin", "thread"]);
        found.extend(word.and_then(|word| word.parse::<ActionKind>().ok()));
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn webhook<'n>(field: &Field<'n>) -> Option<WebhookEntry<'n>> {
    let map = field.map_of("{ url: 'https://HOST/PATH', secret_env: SHOP_SECRET, agent: lead }")?;
    let url = map.need("url", "https://HOST/PATH").and_then(|field| {
        let url = field.text(2_000)?;
        match check_base_url(url) {
            Ok(()) => Some(url.to_owned()),
            Err(_) => {
                let hint = "write it as https://HOST/PATH or http://HOST:PORT/PATH";
                field.error("the URL is not an address of a server", hint);
                None
            }
        }
    });
    let secret_env = map.need("secret_env", "SHOP_SECRET").and_then(|field| variable(&field));
    let agent = map.need("agent", "lead").and_then(|field| field.parsed("an agent id").map(|id| (field, id)));
    let tolerance = map
        .get("timestamp_tolerance_s")
        .and_then(|field| field.count(1..=86_400))
        .map_or(TOLERANCE, Duration::from_secs);
    let actions = map.get("actions").map_or_else(|| WEBHOOK_ACTIONS.to_vec(), |field| actions(&field));
    map.finish(&[("secret", "secrets are never written here: name the variable that holds it with `secret_env`")]);
    Some(WebhookEntry { field: field.clone(), url, secret_env, agent, tolerance, actions })
}
