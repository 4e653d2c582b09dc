//! Normalises the arguments that a model wrote and checks them against the tool's schema. Every
//! refusal names the field (TOOL-06).

use ghost_domain::text::nearest;
use ghost_domain::{Code, Refusal};
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

use crate::parameters::wrong_arguments;
use crate::tool::Tool;

impl Tool {
    /// Normalises arguments: removes null for an optional parameter whose schema has no null, turns an integer written as
    /// 2.0 into 2, adds the presets of an alias (BI-01, BI-02), and renames `target_agent` to `to`
    /// (BI-31). Call it before [`validate`](Tool::validate), with the alias from
    /// [`crate::Registry::find`]. Journal and ledger keep the arguments as the model wrote them.
    #[must_use]
    pub fn normalise(&self, alias: Option<&str>, mut arguments: Value) -> Value {
        let Some(object) = arguments.as_object_mut() else {
            // Models often call a tool without parameters with no arguments at all.
            return if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
        };
        let required = |name: &str| {
            let list = self.schema.get("required").and_then(Value::as_array);
            list.is_some_and(|list| list.iter().any(|item| item == name))
        };
        object.retain(|name, value| !value.is_null() || required(name) || !self.forbids_null(name));
        if matches!(alias, Some("file_read" | "file_write")) {
            object.entry("scope").or_insert_with(|| "world".into());
        }
        if self.spec.name == "syscall.message.send"
            && !object.contains_key("to")
            && let Some(target) = object.remove("target_agent")
        {
            object.insert("to".into(), target);
        }
        crate::schema::integers(&self.schema, &mut arguments);
        arguments
    }

    /// Checks arguments against the schema before anything runs (TOOL-06). The refusal names each
    /// wrong field.
    pub fn validate(&self, arguments: &Value) -> Result<(), Refusal> {
        if let Some(text) = arguments.as_str() {
            let what = format!(
                "{}: the arguments are not a JSON object but {} bytes of text that cannot be parsed as one",
                self.spec.name,
                text.len()
            );
            return Err(Refusal::new(Code::InvalidArguments, what)
                .hint("an answer that reaches its token limit is cut there: call again, with less in one call"));
        }
        if !arguments.is_object() {
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("{}: the arguments must be a JSON object", self.spec.name),
            )
            .hint("call the tool again with an object that matches its schema"));
        }
        let Some(validator) = self.validator() else {
            return Err(Refusal::new(Code::Internal, format!("the schema of {} is not valid", self.spec.name)));
        };
        let mut problems = Vec::new();
        for error in validator.iter_errors(arguments) {
            self.problems_of(&error, &mut problems);
            if problems.len() >= PROBLEMS_MAX {
                problems.truncate(PROBLEMS_MAX);
                break;
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(wrong_arguments(Some(&self.spec.name), &problems)) }
    }

    fn validator(&self) -> Option<&jsonschema::Validator> {
        let compile = || jsonschema::validator_for(&crate::schema::with_null_types(&self.schema)).ok();
        self.validator.get_or_init(compile).as_ref()
    }

    /// Whether the schema has no null for this parameter. A schema that allows it means something by it: "clear this".
    fn forbids_null(&self, name: &str) -> bool {
        let alone = Value::Object(serde_json::Map::from_iter([(name.to_owned(), Value::Null)]));
        let place = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        self.validator().is_some_and(|validator| {
            validator.iter_errors(&alone).any(|error| match error.kind() {
                ValidationErrorKind::AdditionalProperties { unexpected }
                | ValidationErrorKind::UnevaluatedProperties { unexpected } => unexpected.iter().any(|one| one == name),
                _ => error.instance_path().to_string() == place,
            })
        })
    }

    /// Adds the field and the problem of each error that a schema error contains.
    fn problems_of(&self, error: &jsonschema::ValidationError<'_>, problems: &mut Vec<(String, String)>) {
        let at = error.instance_path().to_string().trim_start_matches('/').replace('/', ".");
        let inside = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                problems.push((inside(property.as_str().unwrap_or_default()), "it is required".to_owned()));
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let own = self.schema.get("properties").and_then(Value::as_object);
                let known: Vec<&str> = own.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
                for name in unexpected.iter().take(PROBLEMS_MAX) {
                    let near = nearest(name, known.iter().copied()).filter(|_| at.is_empty());
                    let problem = match near {
                        Some(near) => format!("there is no such parameter; did you mean `{near}`?"),
                        None if known.is_empty() => "there is no such parameter; the tool takes none".to_owned(),
                        None => "there is no such parameter".to_owned(),
                    };
                    problems.push((inside(name), problem));
                }
            }
            _ => problems.push((if at.is_empty() { "arguments".to_owned() } else { at }, error.to_string())),
        }
    }
}

/// The largest number of problems that one refusal reports.
const PROBLEMS_MAX: usize = 5;
