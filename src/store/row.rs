//! Encodes domain types as rows and decodes them.
//!
//! SQL text must never contain a value. The text consists of constants and numbers of values; values are bound.

use ghost_domain::text::clip;
use ghost_domain::{
    AgentId, AgentKind, ApprovalId, ApprovalStatus, ArtifactId, AskId, AskStatus, CallId, CallStatus, ChannelName,
    ConversationId, DeadLetterId, DeadLetterStatus, Delivery, EventId, EventKind, GrantId, Kind, MailState, MessageId,
    Money, Party, RequestId, RootId, ScheduleId, ScheduleKind, Scope, TaskId, TaskStatus, Timestamp, TurnId,
    TurnStatus,
};
use rusqlite::types::{Value, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::sql::Sql;

/// Values to bind to a statement, in order.
pub(crate) struct Args {
    values: Vec<Value>,
}

impl Default for Args {
    fn default() -> Self {
        // Enough for nearly all statements, so that the list does not grow step by step.
        Self { values: Vec::with_capacity(12) }
    }
}

impl Args {
    /// The values, in order.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Bytes that the values take in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let outside = self.values.iter().map(|value| match value {
            Value::Text(text) => text.len(),
            Value::Blob(bytes) => bytes.len(),
            Value::Null | Value::Integer(_) | Value::Real(_) => 0,
        });
        size_of_val(self.values.as_slice()) + outside.sum::<usize>()
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds a value.
    pub(crate) fn push(&mut self, value: impl IntoValue) {
        self.values.push(value.into_value());
    }
}

impl<const N: usize> From<[Value; N]> for Args {
    fn from(values: [Value; N]) -> Self {
        Self { values: values.into() }
    }
}

/// The values of a statement, in order.
macro_rules! args {
    ($($value:expr),* $(,)?) => { $crate::row::Args::from([$($crate::row::IntoValue::into_value($value)),*]) };
}
pub(crate) use args;

/// What can be bound to a statement. Each type is bound in one way, wherever it stands.
pub(crate) trait IntoValue {
    fn into_value(self) -> Value;
}

/// Binds types as an expression of the value.
macro_rules! taken_as {
    ($($type:ty: |$value:ident| $bound:expr;)+) => {
        $(
            impl IntoValue for $type {
                fn into_value(self) -> Value {
                    let $value = self;
                    $bound
                }
            }
        )+
    };
}

taken_as! {
    &str: |text| Value::Text(text.to_owned());
    String: |text| Value::Text(text);
    &String: |text| Value::Text(text.clone());
    Vec<u8>: |bytes| Value::Blob(bytes);
}

impl<T: IntoValue> IntoValue for Option<T> {
    fn into_value(self) -> Value {
        self.map_or(Value::Null, T::into_value)
    }
}

impl<'v, T> IntoValue for &'v Option<T>
where
    &'v T: IntoValue,
{
    fn into_value(self) -> Value {
        self.as_ref().into_value()
    }
}

/// Binds types, and references to them, as an expression of the reference.
macro_rules! bound_as {
    ($($($type:ty),+: |$value:ident| $bound:expr;)+) => {
        $($(
            impl IntoValue for &$type {
                fn into_value(self) -> Value {
                    let $value = self;
                    Value::from($bound)
                }
            }

            impl IntoValue for $type {
                fn into_value(self) -> Value {
                    (&self).into_value()
                }
            }
        )+)+
    };
}

bound_as! {
    i64: |number| *number;
    bool, i32, u32: |number| i64::from(*number);
    // SQLite's largest integer is 2^63 - 1; a larger count is stored as that.
    u64: |count| i64::try_from(*count).unwrap_or(i64::MAX);
    Money: |money| i64::try_from(money.0).unwrap_or(i64::MAX);
    Timestamp: |at| at.0;
    Uuid: |id| id.as_bytes().to_vec();
    ApprovalId, ArtifactId, AskId, CallId, ConversationId, DeadLetterId, EventId, GrantId, MessageId, RootId, ScheduleId,
    TaskId, TurnId: |id| id.0.as_bytes().to_vec();
    AgentId, ChannelName, RequestId: |name| name.as_str().to_owned();
    AgentKind, ApprovalStatus, AskStatus, CallStatus, DeadLetterStatus, Delivery, EventKind, Kind, MailState,
    ScheduleKind, TaskStatus, TurnStatus: |value| value.as_str().to_owned();
    Party, Scope: |value| value.to_string();
}

/// The values of one condition: none, one, or a tuple.
pub(crate) trait Bind {
    fn bind(self, args: &mut Args);
}

impl Bind for () {
    fn bind(self, _: &mut Args) {}
}

impl<T: IntoValue> Bind for T {
    fn bind(self, args: &mut Args) {
        args.push(self);
    }
}

impl<A: IntoValue, B: IntoValue> Bind for (A, B) {
    fn bind(self, args: &mut Args) {
        args.push(self.0);
        args.push(self.1);
    }
}

impl<A: IntoValue, B: IntoValue, C: IntoValue> Bind for (A, B, C) {
    fn bind(self, args: &mut Args) {
        (self.0, self.1).bind(args);
        args.push(self.2);
    }
}

/// The columns of a row, as a driver has read it.
pub(crate) trait Columns {
    /// The value of a column. The error says why it has none.
    fn value(&self, column: usize) -> Result<ValueRef<'_>, String>;
}

/// A row of a query, until the next one is read.
pub(crate) type ReadRow<'r> = dyn Columns + 'r;

/// The columns of a row, one after the other.
pub(crate) struct Cells<'r> {
    table: &'static str,
    row: &'r ReadRow<'r>,
    column: usize,
}

impl<'r> Cells<'r> {
    /// Those from `first` on.
    pub(crate) fn of(table: &'static str, row: &'r ReadRow<'r>, first: usize) -> Self {
        Self { table, row, column: first }
    }

    /// Decodes the next column.
    pub(crate) fn take<T: FromColumn<'r>>(&mut self) -> Result<T> {
        self.column += 1;
        get(self.table, self.row, self.column - 1)
    }
}

/// A type that a column can be decoded as. The error says what the column holds instead.
pub(crate) trait FromColumn<'r>: Sized {
    fn from_column(column: ValueRef<'r>) -> Result<Self, String>;
}

/// Decodes types that a column itself can have.
macro_rules! held_as {
    ($($type:ty: |$variant:ident($held:ident)| $decoded:expr;)+) => {
        $(
            impl<'r> FromColumn<'r> for $type {
                fn from_column(column: ValueRef<'r>) -> Result<Self, String> {
                    match column {
                        ValueRef::$variant($held) => $decoded,
                        other => Err(format!("{} was expected, and it is {}", stringify!($variant), other.data_type())),
                    }
                }
            }
        )+
    };
}

held_as! {
    i64: |Integer(number)| Ok(number);
    // A text may be damaged.
    &'r str: |Text(text)| std::str::from_utf8(text).map_err(|error| error.to_string());
    &'r [u8]: |Blob(bytes)| Ok(bytes);
}

impl<'r, T: FromColumn<'r>> FromColumn<'r> for Option<T> {
    fn from_column(column: ValueRef<'r>) -> Result<Self, String> {
        match column {
            ValueRef::Null => Ok(None),
            other => T::from_column(other).map(Some),
        }
    }
}

/// Decodes types from a type that a column holds. Each type is decoded in one way, as it is bound in one way.
macro_rules! read_as {
    ($($($type:ty),+: |$held:ident: $as:ty| $decoded:expr;)+) => {
        $($(
            impl FromColumn<'_> for $type {
                fn from_column(column: ValueRef<'_>) -> Result<Self, String> {
                    let $held = <$as>::from_column(column)?;
                    $decoded
                }
            }
        )+)+
    };
}

read_as! {
    bool: |number: i64| Ok(number != 0);
    u32, u64, usize: |number: i64| number.try_into().map_err(|_| "the number is out of range".to_owned());
    Money: |micros: u64| Ok(Self(micros));
    Timestamp: |millis: i64| Ok(Self(millis));
    Uuid: |bytes: &[u8]| Self::from_slice(bytes).map_err(|error| error.to_string());
    ApprovalId, ArtifactId, AskId, CallId, ConversationId, DeadLetterId, EventId, GrantId, MessageId, RootId, ScheduleId,
    TaskId, TurnId: |id: Uuid| Ok(Self(id));
    String: |text: &str| Ok(text.to_owned());
    AgentId, AgentKind, CallStatus, ChannelName, EventKind, Kind, MailState, Party, ScheduleKind:
        |text: &str| text.parse().map_err(|error| format!("{error}: {}", clip(text, 120)));
}

/// A row type that can be written.
pub(crate) trait Row {
    /// Name of the table, for error messages.
    const TABLE: &'static str;
    /// The statement that writes a row.
    const WRITE: Sql;
    /// Binds the values of the statement, in order.
    fn bind(&self, args: &mut Args) -> Result<()>;
}

/// A row type that can be read by key.
pub(crate) trait Keyed: Sized {
    /// The key of a row.
    type Key: ?Sized;
    /// The query that reads one row by its key.
    const SELECT: Sql;
    /// Binds a key for `SELECT`.
    fn bind_key(key: &Self::Key, args: &mut Args);
    /// Decodes a row.
    fn read(row: &ReadRow<'_>) -> Result<Self>;
}

/// Encodes a value as JSON.
pub(crate) fn to_json<T: Serialize>(table: &'static str, key: impl ToString, value: &T) -> Result<String> {
    let failed = |what: String| StoreError::Row { table, key: key.to_string(), what };
    // Most records have some hundred bytes. Growing the buffer step by step costs more than writing
    // them.
    let mut json = Vec::with_capacity(768);
    serde_json::to_writer(&mut json, value).map_err(|error| failed(format!("cannot be written as JSON: {error}")))?;
    String::from_utf8(json).map_err(|error| failed(error.to_string()))
}

/// Decodes a value from the `record` column, which is the first column of every query of such a
/// table.
pub(crate) fn from_record<T: DeserializeOwned>(table: &'static str, row: &ReadRow<'_>) -> Result<T> {
    from_json(table, get(table, row, 0)?)
}

/// Decodes a value from JSON.
pub(crate) fn from_json<T: DeserializeOwned>(table: &'static str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| unreadable(table, text, error))
}

/// Decodes one column.
pub(crate) fn get<'r, T: FromColumn<'r>>(table: &'static str, row: &'r ReadRow<'_>, column: usize) -> Result<T> {
    let decoded = row.value(column).and_then(T::from_column);
    decoded.map_err(|what| StoreError::Row { table, key: format!("column {column}"), what })
}

/// The error for a row that cannot be decoded. `key` is clipped to 120 characters.
pub(crate) fn unreadable(table: &'static str, key: &str, what: impl std::fmt::Display) -> StoreError {
    StoreError::Row { table, key: clip(key, 120).to_string(), what: what.to_string() }
}
