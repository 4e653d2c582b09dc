//! Checks rules that all files of the contract follow, on the compiled descriptors.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::{Change as _, FILE_DESCRIPTOR_SET, v1};

fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap()
}

fn messages() -> BTreeMap<String, DescriptorProto> {
    descriptors()
        .file
        .into_iter()
        .flat_map(|file| {
            let package = file.package().to_owned();
            file.message_type.into_iter().map(move |message| (format!(".{package}.{}", message.name()), message))
        })
        .collect()
}

/// Methods that change nothing. Each new method that only reads must be added here.
const READS: [&str; 49] = [
    "World.Status",
    "World.ResolveId",
    "World.Reflect",
    "World.Resources",
    "World.Limits",
    "Agents.List",
    "Agents.Get",
    "Agents.Prompt",
    "Agents.Inspect",
    "Turns.List",
    "Turns.Get",
    "Tools.List",
    "Tools.Brief",
    "Toolboxes.List",
    "Toolboxes.Check",
    "Tools.Describe",
    "Tools.Watch",
    "Droids.List",
    "Droids.Get",
    "Messages.ListDead",
    "Messages.GetDead",
    "Tasks.List",
    "Tasks.Get",
    "Budgets.List",
    "Budgets.Usage",
    "Ledger.List",
    "Ledger.Totals",
    "Grants.List",
    "Approvals.List",
    "Approvals.Get",
    "Artifacts.List",
    "Events.Subscribe",
    "Chat.List",
    "Chat.History",
    "Conversations.List",
    "Conversations.Get",
    "Conversations.Watch",
    "Conversations.CheckAttachments",
    "Knowledge.List",
    "Knowledge.Read",
    "Schedules.List",
    "Schedules.Get",
    "Schedules.Runs",
    "Sessions.List",
    "Sessions.Get",
    "Skills.List",
    "Skills.Get",
    "State.Get",
    "State.List",
];

#[test]
fn the_contract_has_exactly_these_services() {
    let names: BTreeSet<String> =
        descriptors().file.iter().flat_map(|file| &file.service).map(|service| service.name().to_owned()).collect();
    let expected = [
        "Agents",
        "Approvals",
        "Artifacts",
        "Budgets",
        "Chat",
        "Conversations",
        "Droids",
        "Events",
        "Grants",
        "Knowledge",
        "Ledger",
        "Messages",
        "Schedules",
        "Sessions",
        "Skills",
        "State",
        "Tasks",
        "Toolboxes",
        "Tools",
        "Turns",
        "World",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn every_mutation_has_request_id_as_its_first_field_and_no_read_has_it() {
    let messages = messages();
    let mut seen = BTreeSet::new();
    for service in descriptors().file.iter().flat_map(|file| &file.service) {
        for method in &service.method {
            let name = format!("{}.{}", service.name(), method.name());
            let input = &messages[method.input_type()];
            let has = input.field.iter().any(|field| field.name() == "request_id" && field.number() == 1);
            assert_eq!(has, !READS.contains(&name.as_str()), "{name}");
            seen.insert(name);
        }
    }
    for read in READS {
        assert!(seen.contains(read), "{read} is in READS but not in the contract");
    }
}

#[test]
fn instants_are_signed_milliseconds_and_lists_have_a_limit() {
    for (name, message) in messages() {
        for field in &message.field {
            if field.name().ends_with("_at_ms") {
                assert_eq!(field.r#type(), Type::Int64, "{name}.{}", field.name());
            }
            assert_ne!(field.name(), "id", "{name} has a bare id");
        }
        if let Some(cursor) = message.field.iter().find(|field| field.name() == "cursor") {
            assert_eq!(cursor.label(), Label::Optional, "{name}");
            assert!(message.field.iter().any(|field| field.name() == "limit"), "{name} has a cursor but no limit");
        }
    }
}

/// Field numbers of `descriptor.proto`. A path to an element consists of such a number and an index
/// for each level.
mod path {
    pub(super) const MESSAGE: i32 = 4;
    pub(super) const ENUM: i32 = 5;
    pub(super) const SERVICE: i32 = 6;
    pub(super) const METHOD: i32 = 2;
    pub(super) const FIELD: i32 = 2;
    pub(super) const NESTED: i32 = 3;
    pub(super) const NESTED_ENUM: i32 = 4;
    pub(super) const VALUE: i32 = 2;
    pub(super) const ONEOF: i32 = 8;
}

/// All elements of a file with their paths.
fn elements(file: &FileDescriptorProto) -> Vec<(String, Vec<i32>)> {
    fn numbered<T>(list: &[T]) -> impl Iterator<Item = (i32, &T)> {
        list.iter().enumerate().map(|(at, one)| (i32::try_from(at).unwrap(), one))
    }
    fn of_enum(out: &mut Vec<(String, Vec<i32>)>, name: &str, at: &[i32], one: &EnumDescriptorProto) {
        for (value_at, value) in numbered(&one.value) {
            out.push((format!("{name}.{}", value.name()), [at, &[path::VALUE, value_at]].concat()));
        }
        out.push((name.to_owned(), at.to_vec()));
    }
    fn of_message(out: &mut Vec<(String, Vec<i32>)>, name: &str, at: &[i32], message: &DescriptorProto) {
        for (field_at, field) in numbered(&message.field) {
            out.push((format!("{name}.{}", field.name()), [at, &[path::FIELD, field_at]].concat()));
        }
        for (oneof_at, oneof) in numbered(&message.oneof_decl) {
            // The compiler adds a oneof for each `optional` field.
            let made = |field: &prost_types::FieldDescriptorProto| {
                field.proto3_optional() && field.oneof_index == Some(oneof_at)
            };
            if !message.field.iter().any(made) {
                out.push((format!("{name}.{}", oneof.name()), [at, &[path::ONEOF, oneof_at]].concat()));
            }
        }
        for (enum_at, one) in numbered(&message.enum_type) {
            of_enum(out, &format!("{name}.{}", one.name()), &[at, &[path::NESTED_ENUM, enum_at]].concat(), one);
        }
        for (nested_at, nested) in numbered(&message.nested_type) {
            let entry = nested.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry);
            if !entry {
                let at = [at, &[path::NESTED, nested_at]].concat();
                of_message(out, &format!("{name}.{}", nested.name()), &at, nested);
            }
        }
        out.push((name.to_owned(), at.to_vec()));
    }
    let mut out = Vec::new();
    for (at, message) in numbered(&file.message_type) {
        of_message(&mut out, message.name(), &[path::MESSAGE, at], message);
    }
    for (at, one) in numbered(&file.enum_type) {
        of_enum(&mut out, one.name(), &[path::ENUM, at], one);
    }
    for (at, service) in numbered(&file.service) {
        for (method_at, method) in numbered(&service.method) {
            let name = format!("{}.{}", service.name(), method.name());
            out.push((name, vec![path::SERVICE, at, path::METHOD, method_at]));
        }
        out.push((service.name().to_owned(), vec![path::SERVICE, at]));
    }
    out
}

/// The elements of a file without a comment, or with a comment that only repeats their name.
fn uncommented(file: &FileDescriptorProto) -> Vec<String> {
    let locations = &file.source_code_info.as_ref().unwrap().location;
    let comments: BTreeMap<&[i32], &str> =
        locations.iter().map(|location| (location.path.as_slice(), location.leading_comments())).collect();
    let letters = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect()
    };
    let without_comment = |(name, path): &(String, Vec<i32>)| {
        let comment = letters(comments.get(path.as_slice()).copied().unwrap_or_default());
        let own = letters(name.rsplit('.').next().unwrap_or_default());
        comment.is_empty() || comment == own
    };
    elements(file).into_iter().filter(without_comment).map(|(name, _)| name).collect()
}

#[test]
fn every_element_of_the_contract_has_a_comment() {
    let ours: Vec<_> = descriptors().file.into_iter().filter(|file| file.package() == "ghost.v1").collect();
    assert!(
        ours.iter().map(|file| elements(file).len()).sum::<usize>() > 500,
        "`elements` misses most of the contract"
    );
    for file in ours {
        assert_eq!(uncommented(&file), Vec::<String>::new(), "{}", file.name());
    }
}

#[test]
fn an_element_without_a_comment_is_found() {
    let text = "syntax = \"proto3\";\npackage p;\n// Says much.\nmessage M {\n  string mute = 1;\n  // Name.\n  string name = 2;\n  \
                // Chosen.\n  oneof o {\n    // One.\n    string a = 3;\n  }\n  // Of some sort.\n  Sort sort = 4;\n}\n\
                // Sorts.\nenum Sort {\n  NONE = 0;\n}\n// A service.\nservice S {\n  rpc Quiet(M) returns (M);\n}\n";
    let folder = std::env::temp_dir().join(format!("ghost-proto-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("p.proto"), text).unwrap();
    let mut compiler = protox::Compiler::new([&folder]).unwrap();
    compiler.include_source_info(true).open_file("p.proto").unwrap();
    let files = compiler.file_descriptor_set();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(uncommented(&files.file[0]), ["M.mute", "M.name", "Sort.NONE", "S.Quiet"]);
}

/// Stored answers of earlier versions have these names.
#[test]
fn keys_of_changes_name_their_methods() {
    let names = [v1::RetryDeadRequest::METHOD, v1::PauseRequest::METHOD, v1::CreateTaskRequest::METHOD];
    assert_eq!(names, ["messages.retry_dead", "world.pause", "tasks.create"]);
}
