//! What a caller hears when the store fails: what may pass by itself is `unavailable`, and nobody crashes over it.

use std::path::PathBuf;

use ghost_domain::{Code, Refusal};
use ghost_store::StoreError;

#[test]
fn what_may_pass_is_unavailable_and_all_else_is_internal() {
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
        // What is damaged says what to do about it, and which record it is.
        let record = refusal.details.as_ref().map(|details| details["table"].as_str());
        assert_eq!(record, refusal.message.starts_with("table").then_some(Some("agents")));
        if refusal.message.contains("damaged") || record.is_some() {
            let told = format!("{} {}", refusal.message, refusal.hint.unwrap_or_default());
            assert!(told.contains("from a backup"), "{told}");
        }
    }
}
