use super::*;

/// The sorted keys of an object. Sorted, because another crate's features may make JSON objects
/// keep insertion order in a workspace build.
fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

// covers: CP-07
#[test]
fn an_event_has_the_fixed_keys_and_the_rest_only_when_set() {
    let mut record = v1::Event {
        seq: 7,
        ts_ms: 1_709_164_800_123,
        kind: "turn.started".into(),
        payload_json: r#"{"turn_id":"t"}"#.into(),
        ..v1::Event::default()
    };
    let object = event(&record, false);
    assert_eq!(keys(&object), ["agent_id", "event_id", "kind", "payload", "seq", "ts"]);
    assert_eq!(object["ts"], "2024-02-29T00:00:00.123Z");
    assert_eq!(object["agent_id"], Value::Null);
    assert_eq!(object["payload"]["turn_id"], "t");
    record.channel = Some("desk".into());
    record.correlation_id = Some("c".into());
    let object = event(&record, true);
    assert_eq!(
        keys(&object),
        ["agent_id", "channel", "correlation_id", "ephemeral", "event_id", "kind", "payload", "seq", "ts"]
    );
}

#[test]
fn a_ledger_row_keeps_its_keys_without_values() {
    let object = ledger_row(&v1::LedgerRow { arguments_json: r#"{"path":"a"}"#.into(), ..Default::default() });
    for key in ["call_id", "agent_id", "turn_id", "tool", "status", "error_code", "duration_ms", "started_at"] {
        assert!(object.get(key).is_some(), "{key}");
    }
    assert_eq!(object["error_code"], Value::Null);
    assert_eq!(object["arguments"]["path"], "a");
}

#[test]
fn text_that_is_no_json_stays_text() {
    assert_eq!(parsed("{broken"), Value::from("{broken"));
    assert_eq!(parsed(""), Value::Null);
}

#[test]
fn no_record_has_a_bare_id() {
    let records = [
        agent(&Default::default()),
        turn(&Default::default()),
        step(&Default::default()),
        task(&Default::default()),
        ledger_row(&Default::default()),
        dead_letter(&Default::default()),
        envelope(&Default::default()),
        budget(&Default::default()),
        job(&Default::default()),
        channel(&Default::default()),
        chat_message(&Default::default()),
        event(&Default::default(), false),
        world(&Default::default()),
    ];
    for record in &records {
        assert!(!keys(record).contains(&"id"), "{record}");
    }
}
