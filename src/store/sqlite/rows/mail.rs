//! The rows of messages in inboxes. The fixed and the changeable part of a message are written
//! separately: the message itself once, its head (state, turn, crashes, wake flag) each time it
//! changes.

use ghost_domain::{AskId, ConversationId, Envelope, MailState, MessageId, RootId, Timestamp, TurnId};

use crate::sqlite::internal_rows::Head;
use crate::sqlite::row::{
    Args, Keyed, Row, Shape, SqliteRow, get, get_count, get_id, get_maybe_id, get_parsed, to_json, unreadable,
};
use crate::tables::Result;

/// The columns of a message, in the order of [`Envelope::SHAPE`].
macro_rules! columns {
    () => {
        "seq, message_id, to_agent, from_party, kind, subject, body, attachments, ask_id, conversation_id, root_id, \
         hop, wake, created_at, state, turn_id, crashes, read_at"
    };
}
pub(super) use columns;

impl Row for Envelope {
    const TABLE: &'static str = "messages";
    const SHAPE: Shape =
        Shape { head: concat!("INSERT INTO messages (", columns!(), ") VALUES "), columns: 18, tail: "" };

    fn bind(&self, args: &mut Args) -> Result<()> {
        let attachments = match self.attachments.is_empty() {
            true => None,
            false => Some(to_json(Self::TABLE, self.message_id, &self.attachments)?),
        };
        args.int(self.seq)
            .id(self.message_id.0)
            .text(self.to.as_str())
            .put(self.from.to_string())
            .text(self.kind.as_str())
            .maybe_text(self.subject.as_deref())
            .text(&self.body)
            .put(attachments)
            .maybe_id(self.ask_id.map(|id| id.0))
            .maybe_text(self.conversation_id.map(|id| id.to_string()).as_deref())
            .id(self.root_id.0)
            .int(i64::from(self.hop))
            .put(self.wake)
            .int(self.created_at.0)
            .text(self.state.as_str())
            .maybe_id(self.turn_id.map(|id| id.0))
            .int(i64::from(self.crashes))
            .maybe_at(self.read_at);
        Ok(())
    }
}

impl Keyed for Envelope {
    type Key = MessageId;
    const SELECT: &'static str = concat!("SELECT ", columns!(), " FROM messages WHERE message_id = ?");

    fn key(&self) -> MessageId {
        self.message_id
    }

    fn bind_key(key: &MessageId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
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
fn conversation(row: &SqliteRow) -> Result<Option<ConversationId>> {
    const TABLE: &str = Envelope::TABLE;
    let text: Option<&str> = get(TABLE, row, 9)?;
    text.map(|text| text.parse().map_err(|error| unreadable(TABLE, text, error))).transpose()
}

impl Row for Head {
    const TABLE: &'static str = "messages";
    const SHAPE: Shape = Shape {
        head: "UPDATE messages SET state = v.column2, turn_id = v.column3, crashes = v.column4, wake = v.column5, \
               read_at = v.column6 FROM (VALUES ",
        columns: 6,
        tail: ") AS v WHERE messages.message_id = v.column1",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        args.id(self.message_id.0)
            .text(self.state.as_str())
            .maybe_id(self.turn_id.map(|id| id.0))
            .int(i64::from(self.crashes))
            .put(self.wake)
            .maybe_at(self.read_at);
        Ok(())
    }
}

impl Keyed for Head {
    type Key = MessageId;
    const SELECT: &'static str =
        "SELECT message_id, to_agent, state, turn_id, crashes, wake, read_at FROM messages WHERE message_id = ?";

    fn key(&self) -> MessageId {
        self.message_id
    }

    fn bind_key(key: &MessageId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        Ok(Self {
            message_id: MessageId(get_id(Self::TABLE, row, 0)?),
            to: get_parsed(Self::TABLE, row, 1)?,
            state: get_parsed(Self::TABLE, row, 2)?,
            turn_id: get_maybe_id(Self::TABLE, row, 3)?.map(TurnId),
            crashes: get_count(Self::TABLE, row, 4)?,
            wake: get(Self::TABLE, row, 5)?,
            read_at: get::<Option<i64>>(Self::TABLE, row, 6)?.map(Timestamp),
        })
    }

    fn worth_caching(&self) -> bool {
        matches!(self.state, MailState::Pending | MailState::Taken)
    }
}
