//! Checks what only a whole world shows of its toolboxes: a start would leave their tools out, or refuse every call.
//!
//! This module must never start a program or ask a server.

use ghost_config::load::WORLD_FILE;
use ghost_config::plan::toolbox::{McpPlan, McpTransport, ResultForm, ToolboxKind, ToolboxPlan, ToolboxRuntime};
use ghost_config::plan::{Plan, SandboxKind};
use ghost_config::{Problem, Severity};
use ghost_tools::builtins::schema_problem;

/// The problems of the toolboxes of a world.
pub(crate) fn problems(plan: &Plan) -> Vec<Problem> {
    let mut found = Vec::new();
    let world = |message: String, hint: &str| Problem {
        severity: Severity::Warning,
        file: plan.dir.join(WORLD_FILE),
        line: 1,
        field: "toolboxes".to_owned(),
        message,
        hint: hint.to_owned().into(),
    };
    if plan.sandbox.kind == SandboxKind::None {
        let needy: Vec<&str> = plan
            .toolboxes
            .values()
            .filter(|one| one.skill.is_none() && needs_sandbox(one))
            .map(|one| &*one.name)
            .collect();
        if !needy.is_empty() {
            let message = format!("there is no `sandbox`, so the tools of {} are absent", needy.join(", "));
            found.push(world(message, "add `sandbox: { kind: local }`, or `docker`"));
        }
    }
    let counts_money = plan.budgets.iter().any(|(_, limits)| limits.money.is_some());
    if counts_money && plan.coding.run_budget.is_none() {
        let agents: Vec<String> = plan.toolboxes.values().flat_map(|toolbox| coding_agents(toolbox)).collect();
        if !agents.is_empty() {
            let message = format!("a budget counts money, so no run of {} begins", agents.join(", "));
            found.push(world(message, "say what one run may cost: `coding: { run_budget: 2.00 }`"));
        }
    }
    // The toolboxes of skills are checked with the skills, and can stop nothing.
    for toolbox in plan.toolboxes.values().filter(|toolbox| toolbox.skill.is_none()) {
        let ToolboxKind::Commands { tools, .. } = &toolbox.kind else { continue };
        for tool in tools {
            let Some(message) = schema_problem(&tool.parameters) else { continue };
            found.push(Problem {
                severity: Severity::Error,
                file: toolbox.dir.join("toolbox.yaml"),
                line: 1,
                field: format!("tools.{}.parameters", tool.name),
                message,
                hint: "correct the schema; no call could match it".to_owned().into(),
            });
        }
    }
    found
}

fn needs_sandbox(toolbox: &ToolboxPlan) -> bool {
    match &toolbox.kind {
        ToolboxKind::Commands { runtime, .. } => *runtime == ToolboxRuntime::Sandbox,
        ToolboxKind::Mcp(McpPlan { transport, .. }) => matches!(transport, McpTransport::Stdio { .. }),
    }
}

/// The full names of the coding agents in a toolbox.
fn coding_agents(toolbox: &ToolboxPlan) -> Vec<String> {
    let ToolboxKind::Commands { tools, .. } = &toolbox.kind else { return Vec::new() };
    let is_one = |form: &ResultForm| matches!(form, ResultForm::Acp(_) | ResultForm::CodingAgent(_));
    tools.iter().filter(|tool| is_one(&tool.result)).map(|tool| toolbox.full(&tool.name)).collect()
}
