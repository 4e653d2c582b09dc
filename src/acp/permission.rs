//! Permission questions: what the host gets to see, and which of the agent's options is its answer.
//!
//! An option is chosen by its kind and never by its place or its name. One that the agent would remember is never
//! chosen.

use agent_client_protocol::v1::schema::{
    PermissionOption, PermissionOptionKind, RequestPermissionOutcome, SelectedPermissionOutcome,
};

use crate::bounds::ITEMS_MAX;
use crate::calls::Call;
use crate::host::{Choice, ChoiceKind, Permission, PermissionAsk};
use ghost_coding::CALL_ID_MAX;
use ghost_coding::text::{one_line, prefix_bytes};

/// The longest path in a question, in characters.
const PATH_CHARS: usize = 400;

/// The question about `call`.
pub(crate) fn question(call: Call, options: &[PermissionOption]) -> PermissionAsk {
    let (raw_input, raw_input_cut) = call.input.map_or((None, false), |(text, cut)| (Some(text), cut));
    let choice = |option: &PermissionOption| {
        let kind = match option.kind {
            PermissionOptionKind::AllowOnce => ChoiceKind::AllowOnce,
            PermissionOptionKind::AllowAlways => ChoiceKind::AllowAlways,
            PermissionOptionKind::RejectOnce => ChoiceKind::RejectOnce,
            PermissionOptionKind::RejectAlways => ChoiceKind::RejectAlways,
            _ => return None,
        };
        Some(Choice { kind, name: one_line(&option.name, 120) })
    };
    PermissionAsk {
        title: call.title,
        kind: call.kind,
        tool_call_id: prefix_bytes(&call.id, CALL_ID_MAX).to_owned(),
        locations: call.locations.iter().map(|path| one_line(path, PATH_CHARS)).collect(),
        raw_input,
        raw_input_cut,
        options: options.iter().filter_map(choice).take(ITEMS_MAX).collect(),
    }
}

/// The option that is `permission`, and whether it allows. Without one, the next stricter answer is given.
pub(crate) fn choose(options: &[PermissionOption], permission: Permission) -> (RequestPermissionOutcome, bool) {
    let of_kind = |kind: PermissionOptionKind| {
        let option = options.iter().find(|option| option.kind == kind)?;
        Some(RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(option.option_id.clone())))
    };
    if permission == Permission::Cancelled {
        return (RequestPermissionOutcome::Cancelled, false);
    }
    let allow = of_kind(PermissionOptionKind::AllowOnce).filter(|_| permission == Permission::AllowOnce);
    match allow {
        Some(allow) => (allow, true),
        None => (of_kind(PermissionOptionKind::RejectOnce).unwrap_or(RequestPermissionOutcome::Cancelled), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PermissionOptionKind::{AllowAlways, AllowOnce, RejectAlways, RejectOnce};

    fn chosen(kinds: &[PermissionOptionKind], permission: Permission) -> String {
        let option = |kind: &PermissionOptionKind| PermissionOption::new(format!("{kind:?}"), "Allow", *kind);
        let options: Vec<_> = kinds.iter().map(option).collect();
        let (outcome, allowed) = choose(&options, permission);
        let id = match outcome {
            RequestPermissionOutcome::Selected(selected) => selected.option_id.0.to_string(),
            _ => "cancelled".to_owned(),
        };
        assert_eq!(allowed, id == "AllowOnce");
        id
    }

    #[test]
    fn an_option_is_chosen_by_its_kind_and_never_one_that_is_remembered() {
        let all = [AllowAlways, RejectAlways, RejectOnce, AllowOnce];
        assert_eq!(chosen(&all, Permission::AllowOnce), "AllowOnce");
        assert_eq!(chosen(&all, Permission::RejectOnce), "RejectOnce");
        assert_eq!(chosen(&all, Permission::Cancelled), "cancelled");
        assert_eq!(chosen(&[AllowAlways, RejectOnce], Permission::AllowOnce), "RejectOnce");
        assert_eq!(chosen(&[AllowAlways, RejectAlways], Permission::AllowOnce), "cancelled");
        assert_eq!(chosen(&[AllowOnce, RejectAlways], Permission::RejectOnce), "cancelled");
        assert_eq!(chosen(&[], Permission::AllowOnce), "cancelled");
    }
}
