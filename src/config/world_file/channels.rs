//! `channels`: webhooks to the outside, and how readily agents react there. `chat_channels`: the channels between agents.

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_domain::chat::check_topic;
use ghost_domain::conversation::WEBHOOK_ACTIONS;
use ghost_domain::{ActionKind, AgentId, ChannelName, Reactions};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::kinds::{Count, Name, Parsed, Url, Variable, refused, text_kind};
use crate::typed::Spanned;

/// The largest number of webhooks in a world.
pub const WEBHOOKS_MAX: usize = 64;

/// Seconds that the time stamp of a request may be off if a webhook does not say so.
const TOLERANCE_S: u64 = 300;

/// `channels`: webhooks and reactions.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelsSection {
    /// How often agents may react with an emoji: once in `limits.reaction_gap` messages from outside, or as they
    /// like. `## Channels` of a `config.md` can override it.
    pub reactions: Reactions,
    /// Webhooks by name, at most 64.
    pub webhooks: BTreeMap<Name, Spanned<WebhookSection>>,
}

impl Default for ChannelsSection {
    fn default() -> Self {
        Self { reactions: Reactions::Minimal, webhooks: BTreeMap::new() }
    }
}

/// One entry of `channels.webhooks`. It needs the first three keys.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookSection {
    /// Where Ghost posts what agents say.
    pub url: Option<Url>,
    /// The variable with the secret that signs both directions.
    pub secret_env: Option<Variable>,
    /// The agent that answers new threads.
    pub agent: Option<Spanned<Parsed<AgentId>>>,
    /// Seconds that an incoming timestamp may be off.
    #[schemars(extend("default" = TOLERANCE_S))]
    timestamp_tolerance_s: Option<Count<1, 86_400>>,
    /// What the other side supports besides messages, which it always gets. The tool `message` refuses other actions
    /// with `unsupported`. The default is `[delete, react]`.
    actions: Option<Vec<ActionKind>>,
}

impl WebhookSection {
    /// The accepted deviation of a time stamp.
    pub fn tolerance(&self) -> Duration {
        Duration::from_secs(self.timestamp_tolerance_s.map_or(TOLERANCE_S, |seconds| seconds.0))
    }

    /// The supported actions, sorted.
    pub fn actions(&self) -> Vec<ActionKind> {
        let mut found = self.actions.clone().unwrap_or_else(|| WEBHOOK_ACTIONS.to_vec());
        found.push(ActionKind::Send);
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// The hint for an unknown key of `channels`: people look there for the chat channels between agents.
pub fn chat_channel(key: &str) -> Option<String> {
    let shown = key.parse::<ChannelName>().ok()?;
    Some(format!(
        "webhooks are written under `webhooks`; a chat channel at the top of the file: `chat_channels: {{ {shown}: {{ members: \
         [lead] }} }}`"
    ))
}

/// One entry of `chat_channels`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChannelSection {
    /// The agents in the channel, at least one.
    pub members: Vec<Spanned<Parsed<AgentId>>>,
    /// Whether posts wake nobody.
    pub gated: bool,
    /// What the channel is about.
    pub topic: Option<Topic>,
}

text_kind!(pub Topic(String), 1_024, "one line, 200 characters", |text| {
    check_topic(text).map_err(|refusal| refused(refusal, "say in one line what the channel is about"))
});
