//! Compiles the wire contract with protox, so the build needs no `protoc`. Writes the descriptors
//! for gRPC reflection, makes the messages that clients get serializable as JSON, and writes the table of HTTP routes.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor, MethodDescriptor, Value,
};

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
    // The daemon stores these answers as JSON and reads them back.
    for message in ["ReloadResponse", "PlanChange", "ConfigProblem", "ToolboxCheck", "ToolboxTool"] {
        builder = builder.type_attribute(format!(".ghost.v1.{message}"), "#[derive(serde::Deserialize)]");
    }
    // Stored answers of earlier versions lack it.
    builder = builder.field_attribute(".ghost.v1.ConfigProblem.field", "#[serde(default)]");
    builder.compile_fds(compiler.file_descriptor_set())?;
    let mut calls = String::new();
    for method in compiler.descriptor_pool().services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        calls.push_str(&call(&method));
    }
    std::fs::write(out_dir.join("calls.rs"), calls)?;
    std::fs::write(out_dir.join("routes.rs"), routes(&compiler.descriptor_pool())?)?;

    println!("cargo:rerun-if-changed=ghost/v1");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

/// What the request of a method is, as the traits of `calls.rs` say it.
fn call(method: &MethodDescriptor) -> String {
    let (input, output) = (method.input(), method.output());
    let (request, answer) = (input.name(), output.name());
    let (service, name) = (method.parent_service(), method.name());
    let mut code = format!(
        "impl crate::Call for {request} {{\n\
         type Answer = {answer};\n\
         const PATH: &'static str = \"/{}/{name}\";\n}}\n",
        service.full_name()
    );
    if input.get_field_by_name("request_id").is_some() {
        code.push_str(&format!(
            "impl crate::Change for {request} {{\n\
             const METHOD: &'static str = \"{}\";\n\
             fn request_id(&self) -> &str {{ &self.request_id }}\n}}\n",
            key_name(service.name(), name)
        ));
    }
    let mut fields: Vec<FieldDescriptor> = output.fields().collect();
    fields.sort_by_key(FieldDescriptor::number);
    let row = |field: &FieldDescriptor| match field.kind() {
        Kind::Message(row) if field.is_list() => Some((field.name().to_owned(), row.name().to_owned())),
        _ => None,
    };
    if let Some((rows, row)) = fields.iter().find_map(row).filter(|_| input.get_field_by_name("cursor").is_some()) {
        code.push_str(&format!(
            "impl crate::Paged for {request} {{\n\
             type Row = {row};\n\
             fn at(self, limit: u32, cursor: String) -> Self {{ Self {{ limit, cursor, ..self }} }}\n\
             fn rows(answer: {answer}) -> (Vec<{row}>, String) {{ (answer.{rows}, answer.next_cursor) }}\n}}\n"
        ));
    }
    code
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

/// The table of the routes that the options of the methods declare, by path and verb.
fn routes(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let mut rows = Vec::new();
    for service in pool.services() {
        for method in service.methods() {
            let options = extension(pool, &method.options(), "ghost.v1.http")?;
            for (order, verb) in ["Get", "Post", "Patch"].into_iter().enumerate() {
                let name = verb.to_ascii_lowercase();
                if options.has_field_by_name(&name) {
                    let path = text(&options, &name);
                    let about = Some(text(&options, "about")).filter(|about| !about.is_empty());
                    let about = about.unwrap_or_else(|| comment(&method.parent_file(), method.path()));
                    let row = route(pool, &method, verb, &path, &about)?;
                    rows.push((path, order, row));
                }
            }
        }
    }
    rows.sort();
    let rows: String = rows.into_iter().map(|(_, _, row)| row).collect();
    Ok(format!("/// All routes, by path and verb.\npub const ROUTES: &[Route] = &[\n{rows}];\n"))
}

/// The row of a route: `Route {…},`.
fn route(
    pool: &DescriptorPool,
    method: &MethodDescriptor,
    verb: &str,
    path: &str,
    about: &str,
) -> Result<String, Box<dyn Error>> {
    let wrong = |what: &str| Err(format!("{} at {path}: {what}", method.full_name()).into());
    if method.is_server_streaming() {
        return wrong("a stream has no route");
    }
    let mut fields: Vec<FieldDescriptor> = method.input().fields().collect();
    // In the order of the file, as `path` counts them.
    fields.sort_by_key(|field| field.path().last().copied());
    let mut in_path: Vec<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
    let mut rows = String::new();
    for field in fields {
        let options = extension(pool, &field.options(), "ghost.v1.param")?;
        if options.get_field_by_name("hidden").is_some_and(|hidden| hidden.as_bool() == Some(true)) {
            continue;
        }
        let named = Some(text(&options, "name")).filter(|name| !name.is_empty());
        let mut name = named.unwrap_or_else(|| field.name().to_owned());
        let place = match () {
            () if field.name() == "request_id" => "Key",
            () if in_path.contains(&name.as_str()) => "Path",
            () if verb == "Get" => "Query",
            () => "Body",
        };
        in_path.retain(|part| *part != name);
        if place == "Body" {
            name = name.trim_end_matches("_json").to_owned();
        }
        let Some(kind) = route_kind(&field, place) else { return wrong(&format!("{name} has no form")) };
        let required = options.get_field_by_name("required").is_some_and(|required| required.as_bool() == Some(true));
        let about = match (text(&options, "about"), place) {
            (_, "Path" | "Body" | "Key") => String::new(),
            (about, _) if !about.is_empty() => about,
            _ if field.name() == "limit" => "Maximum number of rows, 1 to 500; 100 by default.".to_owned(),
            _ if field.name() == "cursor" => "The `next_cursor` of the previous page.".to_owned(),
            _ => comment(&method.input().parent_file(), field.path()),
        };
        writeln!(
            rows,
            "Field {{ name: {name:?}, field: {:?}, number: {}, place: Place::{place}, kind: Kind::{kind}, \
             required: {required}, about: {about:?} }},",
            field.name(),
            field.number()
        )?;
    }
    if let Some(name) = in_path.first() {
        return wrong(&format!("no field is called {name}"));
    }
    Ok(format!(
        "Route {{ method: \"/{}/{}\", verb: Verb::{verb}, path: {path:?}, about: {about:?}, request: {:?}, answer: {:?}, \
         fields: &[\n{rows}] }},\n",
        method.parent_service().full_name(),
        method.name(),
        method.input().name(),
        method.output().name()
    ))
}

/// The variant of `http::Kind` for a field. `None` if no request over HTTP can have such a field.
fn route_kind(field: &FieldDescriptor, place: &str) -> Option<String> {
    let number = |least: i64, most: i64| format!("Number({least}, {most})");
    Some(match field.kind() {
        Kind::String if field.is_list() => "Texts".to_owned(),
        Kind::String if field.name().ends_with("_json") => "Object".to_owned(),
        Kind::String => "Text".to_owned(),
        _ if field.is_list() => return None,
        Kind::Bool => "Flag".to_owned(),
        Kind::Int64 if place == "Query" && field.name().ends_with("_at_ms") => "Since".to_owned(),
        Kind::Int32 => number(i32::MIN.into(), i32::MAX.into()),
        Kind::Int64 => number(i64::MIN, i64::MAX),
        Kind::Uint32 => number(0, u32::MAX.into()),
        Kind::Uint64 => number(0, i64::MAX),
        Kind::Message(texts) => {
            let only = texts.get_field(1).filter(|only| only.is_list() && texts.fields().len() == 1)?;
            (only.kind() == Kind::String).then(|| "OptionalTexts".to_owned())?
        }
        _ => return None,
    })
}

/// An option of ours, empty if it is not set.
fn extension(pool: &DescriptorPool, options: &DynamicMessage, name: &str) -> Result<DynamicMessage, Box<dyn Error>> {
    let extension = pool.get_extension_by_name(name).ok_or_else(|| format!("there is no option {name}"))?;
    match options.get_extension(&extension).into_owned() {
        Value::Message(message) => Ok(message),
        other => Err(format!("the option {name} is {other}"))?,
    }
}

fn text(message: &DynamicMessage, field: &str) -> String {
    message.get_field_by_name(field).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The comment on an element, on one line.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let locations = file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
    let found =
        locations.into_iter().find(|location| location.path == path).map(|location| location.leading_comments());
    found.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}
