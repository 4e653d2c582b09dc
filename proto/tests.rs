//! The rules that every file of the contract keeps, checked on the compiled descriptors.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

use crate::FILE_DESCRIPTOR_SET;

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

/// Methods that change nothing. Whoever adds a method decides here whether it is one of these.
const READS: [&str; 31] = [
    "World.Status",
    "World.Reflect",
    "World.Resources",
    "Agents.List",
    "Agents.Get",
    "Agents.Prompt",
    "Agents.Inspect",
    "Turns.List",
    "Turns.Get",
    "Tools.List",
    "Tools.Brief",
    "Messages.ListDead",
    "Messages.GetDead",
    "Tasks.List",
    "Tasks.Get",
    "Budgets.List",
    "Budgets.Usage",
    "Ledger.List",
    "Events.Subscribe",
    "Chat.List",
    "Chat.History",
    "Conversations.List",
    "Conversations.Get",
    "Conversations.Watch",
    "Knowledge.List",
    "Knowledge.Read",
    "Schedules.List",
    "Schedules.Get",
    "Schedules.Runs",
    "State.Get",
    "State.List",
];

#[test]
fn every_service_is_described() {
    let names: BTreeSet<String> =
        descriptors().file.iter().flat_map(|file| &file.service).map(|service| service.name().to_owned()).collect();
    let expected = [
        "Agents",
        "Budgets",
        "Chat",
        "Conversations",
        "Events",
        "Knowledge",
        "Ledger",
        "Messages",
        "Schedules",
        "State",
        "Tasks",
        "Tools",
        "Turns",
        "World",
    ];
    assert_eq!(names.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn every_mutation_carries_a_request_id_first_and_no_read_does() {
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
        assert!(seen.contains(read), "{read} is listed here but not in the contract");
    }
}

#[test]
fn instants_are_signed_milliseconds_and_lists_are_bounded() {
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
