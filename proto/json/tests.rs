use std::collections::BTreeMap;

use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use serde_json::json;

use super::*;
use crate::FILE_DESCRIPTOR_SET;

/// Encodes a message with a value in every field. A text is the name of its field; a number is made
/// from the number of its field.
fn filled(messages: &BTreeMap<String, DescriptorProto>, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for field in &messages[name].field {
        let number = u32::try_from(field.number()).unwrap();
        for at in 0..if field.label() == Label::Repeated { 2 } else { 1 } {
            let bytes = match field.r#type() {
                Type::String if field.name().ends_with("_json") => format!("{{\"b\":[{number}],\"a\":null}}").into(),
                Type::String if at == 0 => field.name().into(),
                Type::String => format!("{} {at}", field.name()).into(),
                Type::Message => filled(messages, field.type_name().rsplit('.').next().unwrap()),
                kind => {
                    let factor = if field.name().ends_with("_ms") { 100_000_000_001 } else { 1_111 };
                    encode_key(number, WireType::Varint, &mut out);
                    encode_varint(if kind == Type::Bool { 1 } else { u64::from(number) * factor }, &mut out);
                    continue;
                }
            };
            encode_key(number, WireType::LengthDelimited, &mut out);
            encode_varint(bytes.len() as u64, &mut out);
            out.extend(bytes);
        }
    }
    out
}

/// `golden.txt` has two lines for each record: with all fields, and empty.
#[test]
fn the_json_of_every_record_is_fixed() {
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap().file;
    let messages = files.into_iter().flat_map(|file| file.message_type);
    let messages = messages.map(|message| (message.name().to_owned(), message)).collect();
    let mut lines = Vec::new();
    macro_rules! records {
        ($($message:ident)*) => {$(
            let name = stringify!($message);
            let record = v1::$message::decode(filled(&messages, name).as_slice()).unwrap();
            lines.push(format!("{name} {}", value(&record)));
            lines.push(format!("{name} {}", value(&v1::$message::default())));
        )*};
    }
    records!(
        Agent Turn JournalRow Task TaskEvent LedgerRow DeadLetter Envelope Budget UsageSum Job Event Channel
        ChatMessage WorldStatus Conversation ConversationEntry KnowledgeEntry KnowledgeVersion Schedule ScheduleRun
        Grant Artifact CallTotals GetAgentResponse GetTaskResponse AgentChange CreateChannelResponse
    );
    let golden: Vec<&str> = include_str!("golden.txt").lines().collect();
    assert_eq!(lines.len(), golden.len());
    for (line, golden) in lines.iter().zip(golden) {
        assert_eq!(line, golden);
        assert!(!line.contains("\"id\":"), "{line}");
    }
}

// covers: CP-07
#[test]
fn an_event_has_the_fixed_keys_and_the_rest_only_when_set() {
    let keys = |json: Value| -> Vec<String> { json.as_object().unwrap().keys().cloned().collect() };
    let mut record = v1::Event::default();
    let fixed = ["seq", "event_id", "ts", "kind", "agent_id", "payload"];
    assert_eq!(keys(event(&record, false)), fixed);
    record.channel = Some("desk".into());
    record.correlation_id = Some("c".into());
    assert_eq!(keys(event(&record, true)), [&fixed[..], &["channel", "correlation_id", "ephemeral"]].concat());
}

#[test]
fn text_that_is_no_json_stays_text() {
    assert_eq!(parsed("{broken"), Value::from("{broken"));
    assert_eq!(parsed(""), Value::Null);
}

#[test]
fn a_shared_value_is_copied_as_written() {
    let entry = |text: &str| v1::StateEntry { value_json: text.into(), ..v1::StateEntry::default() };
    let long = "12345678901234567890.123";
    let list = text(&[entry(long), entry("[\n1]")]);
    assert!(list.contains(&format!("    \"value\": {long},")), "{list}");
    let read = |text: &str| serde_json::from_str::<Value>(&super::text(&entry(text))).unwrap()["value"].clone();
    for (text, wanted) in [
        ("{\"n\": [1]}", json!({ "n": [1] })),
        ("\"calm\"", json!("calm")),
        ("null", Value::Null),
        ("{oops", json!("{oops")),
        ("", Value::Null),
    ] {
        assert_eq!(read(text), wanted);
    }
}

#[test]
fn instants_are_written_over_the_whole_calendar() {
    for (ms, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ] {
        assert_eq!(rfc3339(ms), text);
    }
}
