//! The answer of a reload: its changes, its planned changes, or the reason of its refusal.

use ghost_config::Problem;
use ghost_domain::Refusal;
use ghost_domain::text::clip;
use ghost_proto::v1::{ConfigProblem, PlanChange, ReloadResponse};
use serde_json::Value;

/// Largest number of problems in one answer. The rest shows after these are corrected.
const PROBLEMS_MAX: usize = 1_000;
/// Largest length of one text of a problem, in characters.
const TEXT_MAX: usize = 4_000;

/// The answer of a reload that was applied or planned. `plan` has one change per line.
pub(super) fn done(plan: &str, warnings: &[Problem], applied: bool) -> ReloadResponse {
    let problems = warnings.iter().take(PROBLEMS_MAX).map(problem).collect();
    ReloadResponse { changes: plan.lines().filter_map(change).collect(), problems, applied }
}

/// The answer of a reload that was refused because of the files; `None` if it was refused for another reason.
pub(super) fn refused(refusal: &Refusal) -> Option<ReloadResponse> {
    let problems = refusal.details.as_ref()?.get("problems")?.as_array()?;
    let read = |problem: &Value| serde_json::from_value(problem.clone()).ok();
    let problems: Vec<ConfigProblem> = problems.iter().take(PROBLEMS_MAX).filter_map(read).collect();
    // Without a readable problem, the refusal itself says more.
    (!problems.is_empty()).then(|| ReloadResponse { problems, ..ReloadResponse::default() })
}

fn problem(problem: &Problem) -> ConfigProblem {
    ConfigProblem {
        severity: problem.severity.to_string(),
        file: problem.file.display().to_string(),
        line: u32::try_from(problem.line).unwrap_or(u32::MAX),
        field: problem.field.clone(),
        message: problem.message.clone(),
        hint: Some(problem.hint.as_str().to_owned()),
    }
}

/// The stored answer as it is sent: a long text is cut.
pub(super) fn cut(mut answer: ReloadResponse) -> ReloadResponse {
    for ConfigProblem { file, field, message, hint, .. } in &mut answer.problems {
        for text in [file, field, message].into_iter().chain(hint) {
            *text = clip(text, TEXT_MAX);
        }
    }
    answer
}

/// Parses one line of the plan as `ghost-config` prints it.
fn change(line: &str) -> Option<PlanChange> {
    let line = line.trim();
    if line.is_empty() {
        return None;
    }
    let change_of = |action: &str, subject: String, detail: &str| {
        Some(PlanChange { action: action.into(), subject, detail: detail.trim().into() })
    };
    let (action, rest) = match line.split_once(' ') {
        Some(("+", rest)) => ("create", rest),
        Some((">", rest)) => ("start", rest),
        Some(("~", rest)) => ("update", rest),
        Some(("-", rest)) => ("stop", rest),
        Some(("!", rest)) => ("fail", rest),
        Some(("=", rest)) => ("keep", rest),
        _ => return change_of("keep", "world".into(), line),
    };
    for noun in ["agent", "archetype", "team", "script", "skill", "budget", "channel", "cron"] {
        if let Some(named) = rest.strip_prefix(noun).and_then(|rest| rest.strip_prefix(' ')) {
            let (name, detail) = named.split_once(": ").unwrap_or((named, "as the world file names it"));
            let action = match (action, detail) {
                ("update", "added") => "add",
                ("update", "removed") => "remove",
                _ => action,
            };
            return change_of(action, format!("{noun}:{name}"), detail);
        }
    }
    change_of(action, "world".into(), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ghost_config::ReloadPlan;
    use ghost_config::diff::{AgentChange, Return, Returning};
    use ghost_domain::Code;

    #[test]
    fn every_line_of_a_plan_is_a_change() {
        let plan = ReloadPlan {
            added: vec!["new".parse().unwrap()],
            returning: [("back".parse().unwrap(), Returning { how: Return::Starts, fields: vec![] })].into(),
            cannot_run: [("nay".parse().unwrap(), "there is no archetype `x` any more".to_owned())].into(),
            repaired: vec!["yea".parse().unwrap()],
            budgets: [("team:desk".to_owned(), "no longer in the world file; the limit that the file set is removed")]
                .into(),
            changed: vec![AgentChange { agent_id: "ada".parse().unwrap(), fields: vec!["name".into(), "team".into()] }],
            dropped: vec!["old".parse().unwrap()],
            unchanged: 3,
            archetypes: [("worker".to_owned(), vec!["soul".to_owned()])].into(),
            world: vec!["laws".into()],
            scripts: [("scripts/ada.yaml".into(), "changed".to_owned())].into(),
            skills: [("python".to_owned(), "added".to_owned())].into(),
            declared: vec!["+ channel desk: gated, members ada".into(), "= cron ada/pulse: left as it is".into()],
            next_start: vec!["listen.http".into()],
        };
        let response = done(&plan.to_string(), &[], true);
        let rows: Vec<_> = response
            .changes
            .iter()
            .map(|change| (change.action.as_str(), change.subject.as_str(), change.detail.as_str()))
            .collect();
        let expected = [
            ("update", "world", "laws"),
            ("update", "world", "listen.http: "),
            ("update", "budget:team:desk", "removed"),
            ("update", "archetype:worker", "soul"),
            ("update", "script:scripts/ada.yaml", "changed"),
            ("add", "skill:python", "added"),
            ("create", "agent:new", ""),
            ("start", "agent:back", ""),
            ("update", "agent:ada", "name, team"),
            ("stop", "agent:old", ""),
            ("create", "channel:desk", "gated, members ada"),
            ("keep", "cron:ada/pulse", "left as it is"),
            ("start", "agent:yea", ""),
            ("fail", "agent:nay", "`x`"),
            ("keep", "world", "3"),
        ];
        assert_eq!(rows.len(), expected.len(), "{rows:?}");
        for ((action, subject, detail), expected) in rows.into_iter().zip(expected) {
            assert_eq!((action, subject), (expected.0, expected.1));
            assert!(detail.contains(expected.2), "{subject}: {detail}");
        }
        assert!(response.applied && response.problems.is_empty());
    }

    #[test]
    fn problems_in_the_files_are_answers_and_other_refusals_are_not() {
        let problem = serde_json::json!({
            "severity": "error", "file": "w.yaml", "line": 3, "field": "a[1]", "message": "no", "hint": "yes",
        });
        let refusal = Refusal::new(Code::InvalidArguments, "x").details(serde_json::json!({ "problems": [problem] }));
        let response = cut(refused(&refusal).unwrap());
        assert!(!response.applied);
        let first = &response.problems[0];
        assert_eq!((first.line, first.hint.as_deref(), first.severity.as_str()), (3, Some("yes"), "error"));
        assert!(refused(&Refusal::new(Code::Conflict, "another world")).is_none());
        let odd = Refusal::new(Code::Conflict, "x").details(serde_json::json!({ "problems": [7] }));
        assert!(refused(&odd).is_none());
    }
}
