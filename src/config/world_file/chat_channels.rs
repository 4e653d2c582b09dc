//! Reads `chat_channels`: the channels that `world-config.yaml` declares.
//!
//! A member must never be resolved here; that needs all of `agents`.

use ghost_domain::chat::check_topic;
use ghost_domain::{AgentId, ChannelName, Refusal};

use crate::problem::Hint;
use crate::reader::{Field, Map};

/// One entry of `chat_channels`. The comment of each field is its key in the file.
pub struct ChannelEntry<'n> {
    /// The position of the entry.
    pub field: Field<'n>,
    /// The key of the entry: the channel's name.
    pub channel: ChannelName,
    /// `members`.
    pub members: Vec<(Field<'n>, AgentId)>,
    /// `gated`.
    pub gated: bool,
    /// `topic`.
    pub topic: Option<String>,
}

/// An example of an entry, for hints.
const SUCH_AS: &str = "{ members: [lead, writer], gated: true }";

/// Reads `chat_channels`.
pub fn chat_channels<'n>(map: &Map<'n>) -> Vec<ChannelEntry<'n>> {
    let entries = map.get("chat_channels").map(|field| field.entries()).unwrap_or_default();
    entries.into_iter().filter_map(|(key, field)| channel(&key.text, &field)).collect()
}

fn channel<'n>(name: &str, field: &Field<'n>) -> Option<ChannelEntry<'n>> {
    let channel = match name.parse() {
        Ok(channel) => Some(channel),
        Err(refusal) => {
            let refusal: Refusal = refusal;
            field.error(refusal.message, Hint::of(refusal.hint, "write a name such as briefings, without `#`"));
            None
        }
    };
    let map = field.map_of(SUCH_AS)?;
    let list = map.need("members", "[lead, writer]").map(|field| field.list()).unwrap_or_default();
    let members = list.into_iter().filter_map(|field| field.parsed("an agent id").map(|id| (field.clone(), id)));
    let members: Vec<(Field<'n>, AgentId)> = members.collect();
    let gated = map.get("gated").and_then(|field| field.flag()).unwrap_or(false);
    let topic = map.get("topic").and_then(|field| match check_topic(field.text(1_024)?) {
        Ok(topic) => Some(topic),
        Err(refusal) => {
            field.refused(refusal, "say in one line what the channel is about");
            None
        }
    });
    map.finish(&[
        ("agents", "name them under `members`"),
        ("name", "the key of the entry is the channel's name"),
        ("wake", "set it for all ungated channels: `chat: { wake: … }`"),
    ]);
    Some(ChannelEntry { field: field.clone(), channel: channel?, members, gated, topic })
}
