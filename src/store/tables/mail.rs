//! The rows of messages in inboxes.

use ghost_domain::{AskId, ConversationId, Envelope, MessageId, RootId, Timestamp, TurnId};

use super::prelude::*;

/// The columns of a message, in the order of its [`Row::WRITE`].
macro_rules! columns {
    () => {
        "seq, message_id, to_agent, from_party, kind, subject, body, attachments, ask_id, conversation_id, root_id, \
         hop, wake, created_at, state, turn_id, crashes, read_at"
    };
}
pub(super) use columns;

macro_rules! select {
    () => {
        concat!("SELECT ", columns!(), " FROM messages")
    };
}
pub(super) use select;

insert! {
    mail: Envelope, "messages";
    seq, message_id, to_agent = &mail.to, from_party = &mail.from, kind, subject, body,
    attachments = match mail.attachments.is_empty() {
        true => None,
        false => Some(to_json(Self::TABLE, mail.message_id, &mail.attachments)?),
    },
    ask_id, conversation_id = mail.conversation_id.map(|id| id.to_string()), root_id, hop, wake, created_at, state, turn_id,
    crashes, read_at
}

impl Keyed for Envelope {
    type Key = MessageId;
    const SELECT: Sql = sql!(select!(), " WHERE message_id = $1");

    fn bind_key(key: &MessageId, args: &mut Args) {
        args.push(key);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        const TABLE: &str = Envelope::TABLE;
        let attachments: Option<&str> = get(TABLE, row, 7)?;
        let attachments = match attachments {
            Some(text) => serde_json::from_str(text).map_err(|error| unreadable(TABLE, text, error))?,
            None => Vec::new(),
        };
        Ok(Self {
            seq: get(TABLE, row, 0)?,
            message_id: MessageId(get_id(TABLE, row, 1)?),
            to: get_parsed(TABLE, row, 2)?,
            from: get_parsed(TABLE, row, 3)?,
            kind: get_parsed(TABLE, row, 4)?,
            subject: get(TABLE, row, 5)?,
            body: get(TABLE, row, 6)?,
            attachments,
            ask_id: get_maybe_id(TABLE, row, 8)?.map(AskId),
            conversation_id: conversation(row)?,
            root_id: RootId(get_id(TABLE, row, 10)?),
            hop: get_count(TABLE, row, 11)?,
            wake: get(TABLE, row, 12)?,
            created_at: Timestamp(get(TABLE, row, 13)?),
            state: get_parsed(TABLE, row, 14)?,
            turn_id: get_maybe_id(TABLE, row, 15)?.map(TurnId),
            crashes: get_count(TABLE, row, 16)?,
            read_at: get::<Option<i64>>(TABLE, row, 17)?.map(Timestamp),
        })
    }
}

/// The conversation of a message. The column holds its id as text.
fn conversation(row: &ReadRow<'_>) -> Result<Option<ConversationId>> {
    const TABLE: &str = Envelope::TABLE;
    let text: Option<&str> = get(TABLE, row, 9)?;
    text.map(|text| text.parse().map_err(|error| unreadable(TABLE, text, error))).transpose()
}
