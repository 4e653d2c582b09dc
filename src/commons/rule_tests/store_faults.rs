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
        StoreError::Database("syntax error".into()),
    ];
    for error in lasting {
        assert_eq!(Refusal::from(error).code, Code::Internal);
    }
}
