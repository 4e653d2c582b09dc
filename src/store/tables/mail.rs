//! The rows of messages in inboxes.

use ghost_domain::{ConversationId, Envelope, MessageId};

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
        let attachments = get::<Option<&str>>(TABLE, row, 7)?.map_or(Ok(Vec::new()), |text| from_json(TABLE, text))?;
        Ok(Self {
            seq: get(TABLE, row, 0)?,
            message_id: get(TABLE, row, 1)?,
            to: get(TABLE, row, 2)?,
            from: get(TABLE, row, 3)?,
            kind: get(TABLE, row, 4)?,
            subject: get(TABLE, row, 5)?,
            body: get(TABLE, row, 6)?,
            attachments,
            ask_id: get(TABLE, row, 8)?,
            conversation_id: conversation(row, 9)?,
            root_id: get(TABLE, row, 10)?,
            hop: get(TABLE, row, 11)?,
            wake: get(TABLE, row, 12)?,
            created_at: get(TABLE, row, 13)?,
            state: get(TABLE, row, 14)?,
            turn_id: get(TABLE, row, 15)?,
            crashes: get(TABLE, row, 16)?,
            read_at: get(TABLE, row, 17)?,
        })
    }
}

/// The conversation of a message. The column holds its id as text.
pub(super) fn conversation(row: &ReadRow<'_>, column: usize) -> Result<Option<ConversationId>> {
    const TABLE: &str = Envelope::TABLE;
    let text: Option<&str> = get(TABLE, row, column)?;
    text.map(|text| text.parse().map_err(|error| unreadable(TABLE, text, error))).transpose()
}
