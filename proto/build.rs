//! Compiles the wire contract with protox, so the build needs no `protoc`. Writes the descriptors
//! for gRPC reflection, and makes the messages that clients get serializable as JSON.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use protox::prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir("ghost/v1")? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    // The order of a directory differs between machines; the descriptors must not differ.
    files.sort();

    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_source_info(true).include_imports(true).open_files(&files)?;
    let out_dir = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out_dir.join("ghost_descriptors.bin"), compiler.encode_file_descriptor_set())?;
    let mut builder = tonic_prost_build::configure()
        // `ghost-control` has one server for all services.
        .build_server(std::env::var_os("CARGO_FEATURE_BARE_SERVERS").is_some())
        // The field is rarely set and large. Without the box every entry would be as large.
        .boxed(".ghost.v1.ConversationEntry.action");
    for message in compiler.descriptor_pool().all_messages().filter(has_json) {
        builder = builder.type_attribute(format!(".{}", message.full_name()), "#[derive(serde::Serialize)]");
        for field in message.fields() {
            if let Some(attribute) = json_attribute(message.name(), &field) {
                builder = builder.field_attribute(format!(".{}", field.full_name()), format!("#[serde({attribute})]"));
            }
        }
    }
    builder.compile_fds(compiler.file_descriptor_set())?;
    // Each message of a change has the key under which its answer is stored.
    let mut changes = String::new();
    for service in compiler.descriptor_pool().services() {
        for method in service.methods() {
            let message = method.input();
            if message.get_field_by_name("request_id").is_some() {
                let (name, key) = (message.name(), key_name(service.name(), method.name()));
                writeln!(
                    changes,
                    "impl crate::Change for {name} {{\n\
                     const METHOD: &'static str = \"{key}\";\n\
                     fn request_id(&self) -> &str {{ &self.request_id }}\n}}"
                )?;
            }
        }
    }
    std::fs::write(out_dir.join("changes.rs"), changes)?;

    println!("cargo:rerun-if-changed=ghost/v1");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

/// The name of a method in the key of a change: `messages.retry_dead` for `Messages` and `RetryDead`.
fn key_name(service: &str, method: &str) -> String {
    let mut name = service.to_ascii_lowercase();
    for (at, letter) in method.char_indices() {
        if at == 0 || letter.is_ascii_uppercase() {
            name.push(if at == 0 { '.' } else { '_' });
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// Whether a message has a JSON form: all but requests, and messages with a choice of fields.
fn has_json(message: &MessageDescriptor) -> bool {
    message.package_name() == "ghost.v1"
        && !message.name().ends_with("Request")
        && message.oneofs().all(|oneof| oneof.is_synthetic())
}

/// How serde writes a field, if its JSON differs from the field. `json.rs` has the functions.
fn json_attribute(message: &str, field: &FieldDescriptor) -> Option<String> {
    let with =
        |name: &str, function: &str| format!("rename = \"{name}\", serialize_with = \"crate::json::{function}\"");
    let name = field.name();
    // First the fields that follow no rule.
    match (message, name) {
        ("JournalRow", "turn_id") | ("TaskEvent", "task_id") => return Some("skip".to_owned()),
        ("JournalRow", "recorded_at_ms") | ("TaskEvent", "changed_at_ms") => return Some(with("at", "instant")),
        ("JournalRow", "step_json") => return Some(with("fact", "parsed_text")),
        ("ConversationEntry", "at_ms") => return Some(with("ts", "instant")),
        ("WorldStatus", "now_at_ms") => return Some(with("now", "instant")),
        ("WorldStatus", "agents_by_status" | "agents_by_activity" | "turns_ended") => {
            return Some(with(name, "counts"));
        }
        ("NearBound", "about") | ("JobOptions", "to") => return Some(with(name, "null_if_empty")),
        ("Event", "channel" | "correlation_id") => return Some("skip_serializing_if = \"Option::is_none\"".to_owned()),
        ("StateEntry", "value_json") => return Some(with("value", "as_written")),
        ("TokenUsage", _) => return Some(format!("rename = \"{name}_tokens\"")),
        ("UsageSum", "tokens") => return Some("flatten, serialize_with = \"crate::json::zero_if_absent\"".to_owned()),
        ("GetTaskResponse", "history") => {
            return Some("flatten, serialize_with = \"crate::json::notes_and_history\"".to_owned());
        }
        _ => {}
    }
    match field.kind() {
        Kind::Int64 => name.strip_suffix("_ms").map(|name| with(name, "instant")),
        Kind::Uint64 => name.strip_suffix("_micros").map(|name| with(&format!("{name}_usd"), "dollars")),
        Kind::String => name.strip_suffix("_json").map(|name| with(name, "parsed_text")),
        // The answer to a request about one record has the keys of the record and more.
        Kind::Message(_) if !field.is_list() && (message.ends_with("Response") || message.ends_with("Change")) => {
            Some("flatten".to_owned())
        }
        _ => None,
    }
}
