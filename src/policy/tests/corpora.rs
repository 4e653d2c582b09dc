//! The two corpora: what must never be allowed, and what must be.

mod common;

use common::{lines, only};
use ghost_policy::{Action, judge};

// covers: BI-10a, CONF-13, EXEC-05, EXEC-09, SBX-10, SBX-11
#[test]
fn no_bypass_is_allowed() {
    let (read, danger) = (only("read", Action::Deny), only("danger", Action::Allow));
    let bypasses = lines(include_str!("bypasses.txt"));
    assert!(bypasses.len() >= 170, "only {} bypasses", bypasses.len());
    let mut passed = Vec::new();
    for entry in &bypasses {
        let (line, reason) = entry.rsplit_once(" ## ").expect("a reason");
        let (line, both) = line.strip_prefix("~ ").map_or((line, true), |line| (line, false));
        for (name, policy) in [("read", &read), ("danger", &danger)] {
            let judged = judge(policy, &[], line);
            if judged.action == Action::Allow && (both || name == "read") {
                passed.push(format!("{name}: {line:?} ({reason})"));
            }
            assert_eq!(judged.reason.is_none(), judged.action == Action::Allow, "{line:?}");
        }
    }
    assert!(passed.is_empty(), "{} pass:\n{}", passed.len(), passed.join("\n"));
}

#[test]
fn ordinary_lines_are_allowed() {
    let policy = only("read", Action::Deny);
    let ordinary = lines(include_str!("ordinary.txt"));
    assert!(ordinary.len() >= 80, "only {} lines", ordinary.len());
    let judged = ordinary.iter().map(|line| (line, judge(&policy, &[], line)));
    let refused: Vec<String> = judged
        .filter(|(_, judged)| judged.action != Action::Allow)
        .map(|(line, judged)| {
            format!("{line:?}: {}", judged.reason.map(|reason| reason.to_string()).unwrap_or_default())
        })
        .collect();
    assert!(refused.is_empty(), "{} refused:\n{}", refused.len(), refused.join("\n"));
}
