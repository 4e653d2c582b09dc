//! Chat channels.

mod create;
mod history;
mod list;
mod member;
mod send;
mod watch;

use ghost_proto::v1::{Channel, ChatMessage};

use crate::connection::Client;
use crate::failure::Failure;
use crate::output::{Answer, Output};
use crate::record;
use crate::text::moment;

/// What can be done in channels.
#[derive(Debug, clap::Subcommand)]
pub enum Chat {
    Create(create::Create),
    Send(send::Send),
    Invite(member::Invite),
    Remove(member::Remove),
    List(list::List),
    History(history::History),
    Watch(watch::Watch),
}

impl Chat {
    pub async fn run(self, client: &Client, as_json: bool, out: &mut Output) -> Result<Answer, Failure> {
        match self {
            Self::Create(verb) => verb.run(client).await,
            Self::Send(verb) => verb.run(client).await,
            Self::Invite(verb) => verb.run(client).await,
            Self::Remove(verb) => verb.run(client).await,
            Self::List(verb) => verb.run(client).await,
            Self::History(verb) => verb.run(client).await,
            Self::Watch(verb) => verb.run(client, as_json, out).await,
        }
    }
}

/// Members as one line, and how many more there are.
fn members(channel: &Channel) -> String {
    let shown = channel.members.join(", ");
    match usize::try_from(channel.member_count).unwrap_or_default().saturating_sub(channel.members.len()) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A post for people: its head, and its lines below.
fn told(message: &ChatMessage) -> String {
    let reply = message.reply_to.map(|seq| format!("  answers #{seq}")).unwrap_or_default();
    let mut text = format!("#{} {}  {}{reply}\n", message.seq, message.from, moment(message.ts_ms));
    for line in message.content.lines() {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// A post as one line for programs.
fn line(message: &ChatMessage) -> String {
    format!("{}\n", record::chat_message(message))
}
