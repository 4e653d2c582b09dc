//! `ghostctl reload`

use ghost_proto::v1::world_client::WorldClient;
use ghost_proto::v1::{ConfigProblem, ReloadRequest};
use serde_json::json;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::table::Table;

/// Read the world's files again and apply the changes
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl reload --dry-run\n  ghostctl reload")]
pub struct Reload {
    /// Show the changes without applying them
    #[arg(long)]
    dry_run: bool,
}

impl Reload {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = ReloadRequest { request_id: new_request_id(), dry_run: self.dry_run };
        let answer = rpc!(client, WorldClient::reload, request).await?;
        let errors = answer.problems.iter().filter(|problem| problem.severity == "error").count();
        let failure = (errors > 0).then(|| {
            let many = if errors == 1 { "" } else { "s" };
            let what = format!("the world's files have {errors} error{many}; nothing was changed");
            Failure::new("invalid_arguments", what).hint("`ghostd check` shows the same without a running world")
        });
        // What keeps the changes from being applied comes first.
        let (errors, warnings): (Vec<_>, Vec<_>) =
            answer.problems.iter().partition(|problem| problem.severity == "error");
        let mut text: String = errors.into_iter().chain(warnings).map(problem_text).collect();
        let mut table = Table::new(&["ACTION", "SUBJECT", "DETAIL"]);
        for change in &answer.changes {
            table.row([change.action.clone(), change.subject.clone(), change.detail.clone()]);
        }
        if !answer.changes.is_empty() {
            text.push_str(&table.render(client.view.screen));
        } else if failure.is_none() {
            text.push_str("no changes\n");
        }
        if !answer.applied && failure.is_none() {
            text.push_str("dry run: nothing was applied\n");
        }
        let json = json!({ "applied": answer.applied, "changes": answer.changes, "problems": answer.problems });
        Ok(Answer { failure, ..Answer::object(json, text) })
    }
}

/// A problem as `error: file:line: field: message`, with the hint on the next line.
fn problem_text(problem: &ConfigProblem) -> String {
    let line = if problem.line > 0 { format!(":{}", problem.line) } else { String::new() };
    let field = if problem.field.is_empty() { String::new() } else { format!("{}: ", problem.field) };
    let hint = problem.hint.as_deref().map(|hint| format!("  hint: {hint}\n")).unwrap_or_default();
    format!("{}: {}{line}: {field}{}\n{hint}", problem.severity, problem.file, problem.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_its_location_and_hint() {
        let problem = ConfigProblem {
            severity: "error".into(),
            file: "world-config.yaml".into(),
            line: 12,
            field: "agents[1].archetype".into(),
            message: "there is no archetype `edtor`".into(),
            hint: Some("did you mean `editor`?".into()),
        };
        let line = "error: world-config.yaml:12: agents[1].archetype: there is no archetype `edtor`\n";
        assert_eq!(problem_text(&problem), format!("{line}  hint: did you mean `editor`?\n"));
        let bare = ConfigProblem { line: 0, field: String::new(), hint: None, ..problem };
        assert_eq!(problem_text(&bare), "error: world-config.yaml: there is no archetype `edtor`\n");
    }
}
