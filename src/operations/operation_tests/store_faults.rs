//! The refusals for store errors: temporary errors are `unavailable`, and no agent crashes because
//! of them.

use std::path::PathBuf;

use super::operation_world::*;

#[test]
fn temporary_errors_are_unavailable_and_all_others_are_internal() {
    let path = PathBuf::from("ghost.db");
    let passing = [
        StoreError::Busy("locked by another program".into()),
        StoreError::Closed,
        StoreError::Full,
        StoreError::Gone { path: path.clone() },
        StoreError::ReadOnly("check the rights".into()),
    ];
    for error in passing {
        let words = error.to_string();
        let refusal = Refusal::from(error);
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::Unavailable, words.as_str()));
    }
    let lasting = [
        StoreError::Damaged { path: path.clone(), what: "torn".into() },
        StoreError::Newer { path: path.clone(), found: 9, known: 1 },
        StoreError::Open { path, what: "no such directory".into() },
        StoreError::Row { table: "agents", key: "ada".into(), what: "not JSON".into() },
        StoreError::Broken("its thread is gone".into()),
        StoreError::Database("syntax error".into()),
    ];
    for error in lasting {
        let refusal = Refusal::from(error);
        assert_eq!(refusal.code, Code::Internal);
        // The error about damage says what to do and which record is damaged.
        let record = refusal.details.as_ref().map(|details| details["table"].as_str());
        assert_eq!(record, refusal.message.starts_with("table").then_some(Some("agents")));
        if refusal.message.contains("damaged") || record.is_some() {
            let told = format!("{} {}", refusal.message, refusal.hint.unwrap_or_default());
            assert!(told.contains("backup"), "{told}");
        }
    }
}
