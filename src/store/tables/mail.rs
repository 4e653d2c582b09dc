//! The rows of messages in inboxes.

use ghost_domain::{ConversationId, Envelope, MessageId};

use super::prelude::*;

/// The columns of a message, in the order in which they are read.
macro_rules! columns {
    () => {
        "seq, message_id, to_agent, from_party, kind, subject, body, ask_id, root_id, hop, wake, created_at, state, \
         turn_id, crashes, read_at, attachments, conversation_id"
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
        let attachments = get::<Option<&str>>(TABLE, row, 16)?.map_or(Ok(Vec::new()), |text| from_json(TABLE, text))?;
        Ok(fields!(TABLE, row, 0, Self {
            seq, message_id, to, from, kind, subject, body, ask_id, root_id, hop, wake, created_at, state, turn_id,
            crashes, read_at; attachments: attachments, conversation_id: conversation(row, 17)?
        }))
    }
}

/// The conversation of a message. The column holds its id as text.
pub(super) fn conversation(row: &ReadRow<'_>, column: usize) -> Result<Option<ConversationId>> {
    const TABLE: &str = Envelope::TABLE;
    let text: Option<&str> = get(TABLE, row, column)?;
    text.map(|text| text.parse().map_err(|error| unreadable(TABLE, text, error))).transpose()
}
