//! Tests of whole streams: bounds, hostile input, and every way to split it.

use proptest::prelude::*;
use serde_json::json;

use crate::lines::MAX_LINE;
use crate::testing::{FOLDER, cursor_stream, stream, summary_with};
use crate::{Compact, Compactor, Exit, Format, MAX_BYTES, MAX_NOTES, NOTE_CHARS};

fn cursor(stream: &[u8]) -> Option<Compact> {
    summary_with(Format::Cursor, stream, 0, "").0
}

/// The summary and all notes of `stream`, read in pieces that end at `cuts`.
fn pieces(format: Format, stream: &[u8], cuts: &[usize], code: i32) -> (Option<Compact>, Vec<String>) {
    let mut compactor = Compactor::new(format, Some(FOLDER.to_owned()));
    let (mut from, mut notes) = (0, Vec::new());
    for cut in cuts.iter().copied().chain([stream.len()]) {
        let to = cut.clamp(from, stream.len());
        notes.extend(compactor.push(&stream[from..to]));
        from = to;
    }
    (compactor.finish(&Exit::with_code(code), "stderr"), notes)
}

#[test]
fn a_long_stream_becomes_a_short_text() {
    let text = cursor_stream(130_000);
    assert!(text.len() > 130_000);
    let compact = cursor(text.as_bytes()).unwrap();
    assert!(compact.text.len() <= MAX_BYTES, "{}", compact.text.len());
    assert!(compact.text.starts_with("Cursor agent: done, 13.4 s, 1028 output tokens\nFiles written: src/part_0.rs, "));
    assert!(!compact.text.contains("Files read") && compact.text.contains("\n- cargo test -p part_1 -- --nocapture\n"));
    assert!(compact.text.ends_with("I looked at a part. All parts now have tests."), "{}", compact.text);
}

#[test]
fn lists_and_results_share_the_room() {
    let text = cursor_stream(3_000_000);
    for max in [256, 600, 2_048, 20_000] {
        let mut compactor = Compactor::new(Format::Cursor, Some(FOLDER.to_owned())).with_max_bytes(max);
        compactor.push(text.as_bytes());
        let compact = compactor.finish(&Exit::with_code(3), &"trouble ".repeat(900)).unwrap();
        assert!(compact.text.len() <= max, "{max}");
        assert!(compact.failed && compact.text.contains("exit code 3") && compact.text.contains(" more\n"), "{max}");
        assert!(compact.text.ends_with("now have tests.") && compact.text.contains("[cut: "), "{}", compact.text);
    }
    let compact = cursor(text.as_bytes()).unwrap();
    assert!(compact.text.len() > MAX_BYTES / 2);
    let listed = compact.text.lines().nth(1).unwrap().split(", ").count() - 1;
    assert!(listed > 10, "written files come first: {listed}");
}

#[test]
fn written_files_have_more_room_than_others() {
    let tools =
        [("readToolCall", "path", "read"), ("editToolCall", "path", "edit"), ("shellToolCall", "command", "make")];
    let events: Vec<_> = (0..150)
        .map(|n| {
            let (tool, arg, what) = tools[n % 3];
            let name = format!("{what}/{n}/{}", "long/".repeat(12));
            json!({ "type": "tool_call", "subtype": "started", "tool_call": { tool: { "args": { arg: name } } } })
        })
        .collect();
    let text = cursor(stream(&events).as_bytes()).unwrap().text;
    let count = |what: &str| text.matches(what).count();
    assert!(count("edit/") > count("read/") && count("edit/") > count("make/") && count("read/") > 3, "{text}");
    assert_eq!((count(" more\n"), count("+")), (2, 3), "{text}");
}

// covers: DEV-18
#[test]
fn at_most_fifty_entries_are_listed() {
    let events: Vec<_> = (0..60)
        .map(|n| json!({ "type": "tool_call", "subtype": "started", "tool_call": { "readToolCall": { "args": { "path": n.to_string() } } } }))
        .collect();
    let compact = cursor(stream(&events).as_bytes()).unwrap();
    assert!(compact.text.ends_with(", 48, 49, +10 more"), "{}", compact.text);
    assert!(compact.text.starts_with("Cursor agent: no result\nFiles read: 0, 1, 2"));
    assert!(!compact.failed, "the exit code is 0");
}

#[test]
fn output_that_is_not_a_stream_has_no_summary() {
    let others =
        ["", "Done.\nI changed a.rs.\n", "{\"level\":\"info\"}\n[1]\n\"result\"\n", "{\"type\":\"result\"", "{}\n{\n"];
    for (text, format) in others.iter().flat_map(|text| Format::ALL.map(|format| (text, format))) {
        assert_eq!(summary_with(format, text.as_bytes(), 0, "").0, None, "{format} {text}");
        assert_eq!(summary_with(format, text.as_bytes(), 1, "e").0, None, "{format} {text}");
    }
    let init = json!({ "type": "system", "subtype": "init", "session_id": "s" });
    assert_eq!(cursor(stream(&[init]).as_bytes()), None, "a beginning alone is of no use");
}

#[test]
fn lines_with_noise_are_read() {
    let stream = b"\xef\xbb\xbf{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\r\n\
        warning: deprecated\n\n  {\"type\":\"tool_call\",\"subtype\":\"started\",\"tool_call\":{\"readToolCall\":\
        {\"args\":{\"path\":\"a\\u001b[2J\\nb\xff\"}}}}  \r\n{\"broken\":\n\
        {\"duration_ms\":\"1500\",\"result\":\"caf\xe9 \\ud83d|\\u001b[31mred\",\"usage\":{\"output_tokens\":\"7\"},\"type\":\"result\",\"session_id\":\"t\"}";
    let compact = cursor(stream).unwrap();
    assert_eq!(
        compact.text,
        "Cursor agent: done, 1.5 s, 7 output tokens\nFiles read: a b\u{fffd}\nResult:\ncaf\u{fffd} \u{fffd}|red"
    );
    assert_eq!(compact.session_id.as_deref(), Some("s"));
}

#[test]
fn repeated_events_count_once() {
    let once = cursor_stream(20_000);
    let twice: String = once.lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
    assert_eq!(cursor(twice.as_bytes()), cursor(once.as_bytes()));
}

#[test]
fn lines_of_megabytes_are_understood() {
    let call = json!({ "type": "tool_call", "subtype": "started", "call_id": "1", "tool_call": {
        "writeToolCall": { "args": { "fileText": "x\n".repeat(2 * MAX_LINE), "path": "big.txt" } } } });
    let result = json!({ "result": format!("begin {} the end", "é\"\n".repeat(2 * MAX_LINE)), "is_error": false,
        "type": "result", "subtype": "success", "duration_ms": 10 });
    let text = stream(&[call, result]);
    let cuts: Vec<usize> = (0..text.len()).step_by(60_001).collect();
    let (compact, notes) = pieces(Format::Cursor, text.as_bytes(), &cuts, 0);
    let compact = compact.unwrap();
    assert!(compact.text.starts_with("Cursor agent: done, 0.0 s\nFiles written: big.txt\nResult:\nbegin "));
    assert!(compact.text.ends_with(" the end") && compact.text.len() <= MAX_BYTES, "{}", compact.text);
    assert_eq!(notes, ["write big.txt", "done"]);
    assert_eq!(cursor(text.as_bytes()).unwrap(), compact);
}

#[test]
fn deep_nesting_does_no_harm() {
    let deep =
        |field: &str| format!("{{\"type\":\"result\",\"{field}\":{}{}}}\n", "[".repeat(200_000), "]".repeat(200_000));
    let calls =
        format!("{{\"type\":\"tool_call\",\"tool_call\":{}1{}}}\n", "{\"aToolCall\":".repeat(500), "}".repeat(500));
    let end = stream(&[json!({ "type": "result", "result": "fine" })]);
    let text = ["x", "result", "usage", "message"].map(deep).concat() + &calls + &end;
    assert!(cursor(text.as_bytes()).unwrap().text.ends_with("fine"));
}

#[test]
fn skipped_events_are_found_by_their_beginning_only() {
    // The same words in a text, or as the beginning of another type, are no reason to skip.
    for start in ["{\"type\":\"thinking2\",", "{\"a\":\"{\\\"type\\\":\\\"thinking\\\",\","] {
        let line = format!("{start}\"type2\":\"result\"}}\n");
        assert_eq!(summary_with(Format::Cursor, line.as_bytes(), 1, "").0, None);
    }
    let line = b"{ \"type\": \"result\", \"text\": {\"type\":\"thinking\"}, \"result\": \"ok\" }";
    assert!(cursor(line).unwrap().text.ends_with("ok"));
}

#[test]
fn skipping_an_event_has_the_effect_of_reading_it() {
    let text = cursor_stream(20_000);
    // With a space, no event has a beginning that is skipped.
    let parsed = text.replace("{\"type\":", "{ \"type\":");
    assert_ne!(parsed, text);
    assert_eq!(pieces(Format::Cursor, parsed.as_bytes(), &[], 0), pieces(Format::Cursor, text.as_bytes(), &[], 0));
    for event in [json!({ "type": "thinking", "text": "a" }), json!({ "text": "a", "type": "thinking" })] {
        let compact = summary_with(Format::Cursor, event.to_string().as_bytes(), 1, "e").0.unwrap();
        assert_eq!(compact.text, "Cursor agent: no result, exit code 1\nErrors:\ne");
    }
}

#[test]
fn memory_does_not_depend_on_the_length_of_the_stream() {
    let mut held = Vec::new();
    for format in Format::ALL {
        let mut compactor = Compactor::new(format, None);
        for n in 0..1_200 {
            let long = format!("{n}{}", "x".repeat(2_000));
            let call = json!({ "writeToolCall": { "args": { "path": long } }, });
            let block = json!({ "type": "tool_use", "id": long, "name": "Bash", "input": { "command": long } });
            let item = json!({ "type": "file_change", "changes": [{ "path": long }] });
            compactor.push(
                stream(&[
                    json!({ "type": "tool_call", "subtype": "started", "call_id": n.to_string(), "tool_call": call }),
                    json!({ "type": "assistant", "message": { "content": [block, { "type": "text", "text": long }] } }),
                    json!({ "type": "item.completed", "item": item }),
                    json!({ "type": "message", "role": "assistant", "content": long, "delta": true }),
                    json!({ "type": "error", "message": long }),
                    json!({ "type": "result", "result": long, "session_id": long }),
                ])
                .as_bytes(),
            );
        }
        held.push(compactor.held());
        // An open line, of one string and of many.
        for _ in 0..12 {
            compactor.push("{\"type\":\"result\",\"result\":\"".repeat(3_000).as_bytes());
            compactor.push("y".repeat(100_000).as_bytes());
            assert!(compactor.held() < 2 * MAX_LINE + 600_000, "{format}: {}", compactor.held());
        }
        assert!(compactor.finish(&Exit::with_code(0), "").unwrap().text.len() <= MAX_BYTES);
    }
    assert!(held.iter().all(|held| (2_000..600_000).contains(held)), "{held:?}");
}

#[test]
fn notes_are_bounded_and_cannot_control_a_terminal() {
    let path = format!("\u{1b}]0;x\u{7}\u{202e}{}", "long/".repeat(90));
    let call = json!({ "type": "tool_call", "subtype": "started", "tool_call": { "readToolCall": { "args": { "path": path } } } });
    let text = stream(&vec![call; 500]);
    let mut compactor = Compactor::new(Format::Cursor, None);
    let notes = compactor.push(text.as_bytes());
    assert_eq!(notes.len(), MAX_NOTES);
    assert_eq!(notes.last().unwrap(), "… and 469 more");
    assert!(notes[0].starts_with("read long/long/") && notes[0].chars().count() <= NOTE_CHARS, "{}", notes[0]);
    assert!(!notes.iter().any(|note| note.chars().any(char::is_control)));
    assert!(compactor.push(b"\n").is_empty(), "notes are returned once");
}

#[test]
fn a_run_that_was_stopped_is_shown_as_such() {
    let text = cursor_stream(1_000);
    let cut = &text.as_bytes()[..text.len() - 20];
    for (exit, shown) in [
        (
            Exit { timed_out: true, duration_ms: Some(60_000), ..Exit::default() },
            "no result, 60.0 s, stopped at its time limit\n",
        ),
        (Exit::default(), "no result, stopped by a signal\n"),
    ] {
        let mut compactor = Compactor::new(Format::Cursor, None);
        compactor.push(cut);
        let compact = compactor.finish(&exit, "").unwrap();
        assert!(compact.text.starts_with(&format!("Cursor agent: {shown}")) && compact.failed, "{}", compact.text);
        assert_eq!(compact.duration_ms, exit.duration_ms);
    }
    let mut compactor = Compactor::new(Format::Cursor, None);
    compactor.push(text.as_bytes());
    let compact = compactor.finish(&Exit::with_code(7), "late").unwrap();
    assert!(
        compact.text.starts_with("Cursor agent: done, 13.4 s, 1028 output tokens, exit code 7\n") && compact.failed
    );
    assert!(compact.text.contains("\nErrors:\nlate\nResult:\n"));
}

/// Events, parts of events and other bytes, of all formats.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        proptest::sample::select(vec![
            "{\"type\":\"result\",\"result\":\"ok\",\"usage\":{\"output_tokens\":1}}",
            "{\"type\":\"result\",\"status\":\"error\",\"error\":{\"message\":\"e\"}}",
            "{\"type\":\"tool_call\",\"subtype\":\"started\",\"call_id\":\"1\\n2\",\"tool_call\":{\"editToolCall\":{\"args\":{\"path\":\"a/é\"}}}}",
            "{\"type\":\"tool_call\",\"subtype\":\"completed\",\"call_id\":\"1\\n2\",\"tool_call\":{\"editToolCall\":{\"result\":{\"error\":1}}}}",
            "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"hi\"},{\"type\":\"tool_use\",\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}}]}}",
            "{\"type\":\"item.completed\",\"item\":{\"type\":\"file_change\",\"changes\":[{\"path\":\"b\"}]}}",
            "{\"type\":\"turn.completed\",\"usage\":{}}",
            "{\"type\":\"error\",\"message\":\"m\"}",
            "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"part\",\"delta\":true}",
            "{\"type\":\"tool_use\",\"tool_name\":\"write_file\",\"tool_id\":7,\"parameters\":{\"file_path\":\"c\"}}",
            "{\"type\":\"thinking\",\"text\":\"\"}",
            "{\"type\":", "\"", "\\", "\\ud83d", "[", "]", "{", "}", "\u{feff}", "\r", "\n", "\n", "\n", "\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(part, 0..24).prop_map(|parts| parts.concat())
}

proptest! {
    // covers: TEST-04, TEST-05
    #[test]
    fn pieces_make_no_difference(input in hostile(), mut cuts in proptest::collection::vec(0usize..1_500, 0..12), which in 0usize..4, code in 0i32..2) {
        cuts.sort_unstable();
        let format = Format::ALL[which];
        prop_assert_eq!(pieces(format, &input, &cuts, code), pieces(format, &input, &[], code));
    }

    #[test]
    fn any_stream_is_read_within_bounds(input in hostile(), times in 1usize..200, which in 0usize..4, max in 0usize..3_000) {
        let mut compactor = Compactor::new(Format::ALL[which], None).with_max_bytes(max);
        for _ in 0..times {
            let notes = compactor.push(&input);
            prop_assert!(notes.len() <= MAX_NOTES);
            prop_assert!(notes.iter().all(|note| note.chars().count() <= NOTE_CHARS && !note.chars().any(char::is_control)));
            prop_assert!(compactor.held() <= 3 * MAX_LINE);
        }
        if let Some(compact) = compactor.finish(&Exit::with_code(1), "\u{1b}é") {
            prop_assert!(compact.text.len() <= max.max(256));
            prop_assert!(!compact.text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
