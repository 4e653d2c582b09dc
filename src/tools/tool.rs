//! A tool: what models and operators know of it, which agents get it, which of its calls wait for an operator, and how
//! arguments are made ready for a call.
//!
//! An approval must never let a call run that the tool itself refuses.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ghost_config::plan::{Plan, ToolboxPlan, is_of_channel};
use ghost_config::spec::AgentSpec;
use ghost_domain::text::nearest;
use ghost_domain::{ApprovalPlan, HeldSkill, ToolSpec, refusal};
use ghost_operations::Result;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::context::{CallContext, Caller, WorldServices};
pub use crate::effect::{AfterCrash, AskTool, FileTool, FileWork, Output, OutsideTool, ReadTool, Run, WorldTool};
use crate::loop_guard::Nature;
pub use crate::parameters::parse;
use crate::parameters::{Params, wrong_arguments};

/// Bytes of a tool's hash.
const HASH_BYTES: usize = 8;
/// The largest number of problems that one refusal reports.
const PROBLEMS_MAX: usize = 5;

/// How often agents use a tool. If an agent's tools are too large for a request, those that are used least are deferred
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// In most turns.
    Often,
    /// In many turns.
    Regularly,
    /// In some turns.
    Sometimes,
    /// In few turns.
    Seldom,
}

/// Where a tool comes from.
#[derive(Clone, Debug, Default)]
pub enum Origin {
    /// It is compiled into ghostd.
    #[default]
    Builtin,
    /// A toolbox of the world or of a skill brings it.
    Toolbox(Arc<ToolboxPlan>),
}

impl Origin {
    /// The toolbox, if there is one.
    pub fn toolbox(&self) -> Option<&Arc<ToolboxPlan>> {
        match self {
            Self::Builtin => None,
            Self::Toolbox(toolbox) => Some(toolbox),
        }
    }
}

/// Whether a call waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It runs at once.
    Nothing,
    /// It waits, for this reason.
    Approval(String),
    /// The tool refuses it, whatever an operator says.
    Refused,
}

/// A tool that knows which of its calls need an approval.
#[async_trait]
pub trait Approvable: Send + Sync + 'static {
    /// Whether a call needs an approval by the tool's own rules.
    fn need(&self, plan: &Plan, caller: &Caller, arguments: &Value) -> Need;

    /// Why a call that needs no approval by the rules alone needs one all the same, by what its files hold now.
    ///
    /// # Errors
    /// `Unavailable` if they cannot be looked at.
    async fn closer(&self, _services: &WorldServices, _caller: &Caller, _arguments: &Value) -> Result<Option<String>> {
        Ok(None)
    }

    /// What exactly the call would do. It is asked for before and after the wait.
    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan>;
}

/// Why an approval of this tool holds once only: the same arguments would reach other people in another conversation.
pub(crate) fn acts_in_its_conversation(tool: &str) -> String {
    format!("{tool} acts in the conversation of its turn")
}

/// A tool with its description, an entry in the table of all tools.
pub struct Tool {
    /// The name, description and schema that the model gets.
    pub spec: ToolSpec,
    /// The schema that arguments must match. The model's is the same without what only costs tokens.
    pub schema: Value,
    /// The kind of the tool.
    pub run: Run,
    /// The largest view of a result for the model, in bytes; `None` means the world's limit
    pub view_bytes: Option<u32>,
    /// The longest time of a call, in seconds; `None` means the world's limit.
    pub seconds: Option<u32>,
    /// Members of the outcome that change on their own (see [`Nature::passing`]).
    pub passing: &'static [&'static str],
    /// Whether the loop guard treats a call as reading although it has an effect, because its
    /// result shows everything that it takes.
    pub looks: bool,
    /// Decides which calls need an approval, if the tool has rules of its own for that.
    pub approvable: Option<Arc<dyn Approvable>>,
    /// Whether a call costs money, so that it is refused when a budget is spent.
    pub charges: bool,
    /// How often agents use the tool.
    pub used: Use,
    /// Where it comes from.
    pub origin: Origin,
    hash: OnceLock<String>,
    pub(crate) validator: OnceLock<Option<jsonschema::Validator>>,
}

impl Tool {
    /// A tool with the schema of `P`. `description` must be one line, because lists show it.
    pub fn new<P: Params>(name: &str, description: &str, run: Run) -> Self {
        Self::with_schema(name, description, crate::parameters::of::<P>(), run)
    }

    /// A tool with its own schema.
    pub fn with_schema(name: &str, description: &str, parameters: Value, run: Run) -> Self {
        Self {
            spec: ToolSpec {
                name: name.to_owned(),
                description: ghost_domain::text::one_line(description),
                parameters: crate::parameters::terse(&parameters),
            },
            schema: parameters,
            run,
            view_bytes: None,
            seconds: None,
            passing: &[],
            looks: false,
            approvable: None,
            charges: false,
            used: Use::Seldom,
            origin: Origin::Builtin,
            hash: OnceLock::new(),
            validator: OnceLock::new(),
        }
    }

    /// Sets the longest time of a call, in seconds.
    #[must_use]
    pub fn within(mut self, seconds: u32) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// Sets a view limit of its own.
    #[must_use]
    pub fn view(mut self, bytes: u32) -> Self {
        self.view_bytes = Some(bytes);
        self
    }

    /// Names the members of the outcome that change on their own.
    #[must_use]
    pub fn passing(mut self, members: &'static [&'static str]) -> Self {
        self.passing = members;
        self
    }

    /// Sets how often agents use the tool.
    #[must_use]
    pub fn used(mut self, used: Use) -> Self {
        self.used = used;
        self
    }

    /// Sets the tool's own rules for approvals.
    #[must_use]
    pub fn approved_by(mut self, rules: impl Approvable) -> Self {
        self.approvable = Some(Arc::new(rules));
        self
    }

    /// Says where the tool comes from.
    #[must_use]
    pub fn from_toolbox(mut self, toolbox: &Arc<ToolboxPlan>) -> Self {
        self.origin = Origin::Toolbox(Arc::clone(toolbox));
        self
    }

    /// The hash of what a model knows of the tool, in hexadecimal: enough to tell two definitions apart.
    pub fn hash(&self) -> &str {
        self.hash.get_or_init(|| {
            let text = format!("{}\0{}\0{}", self.spec.name, self.spec.description, self.spec.parameters);
            hex::encode(&Sha256::digest(text.as_bytes())[..HASH_BYTES])
        })
    }

    /// Says that calls cost money.
    #[must_use]
    pub fn charging(mut self) -> Self {
        self.charges = true;
        self
    }

    /// Makes the loop guard treat calls as reading.
    #[must_use]
    pub fn looking(mut self) -> Self {
        self.looks = true;
        self
    }

    /// Whether a call waits for an operator in this world. `arguments` must be normalised.
    pub fn need(&self, plan: &Plan, caller: &Caller, arguments: &Value) -> Need {
        let own = self.approvable.as_ref().map_or(Need::Nothing, |own| own.need(plan, caller, arguments));
        match own {
            Need::Nothing if plan.approvals.tools.contains(&self.spec.name) => {
                Need::Approval(format!("`approvals.tools` of the world file names {}", self.spec.name))
            }
            need => need,
        }
    }

    /// Why a call waits for an operator although [`need`](Self::need) says that it needs nothing: what its files hold
    /// now. `arguments` must be normalised.
    ///
    /// # Errors
    /// `Unavailable` if they cannot be looked at; the call must not run then.
    pub async fn closer_need(
        &self,
        services: &WorldServices,
        caller: &Caller,
        arguments: &Value,
    ) -> Result<Option<String>> {
        match &self.approvable {
            Some(own) => own.closer(services, caller, arguments).await,
            None => Ok(None),
        }
    }

    /// What exactly a call would do.
    ///
    /// # Errors
    /// Why the tool cannot say so; the call must not run then.
    pub async fn approval_plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan> {
        match &self.approvable {
            Some(own) => own.plan(call, arguments).await,
            None => {
                let (tool, arguments) = (self.spec.name.clone(), arguments.clone());
                let once_only = if self.charges {
                    // A coding agent reads the files of its directory.
                    Some(format!("{tool} decides by itself what it runs"))
                } else {
                    is_of_channel(&tool).then(|| acts_in_its_conversation(&tool))
                };
                Ok(ApprovalPlan { tool, arguments, once_only, ..ApprovalPlan::default() })
            }
        }
    }

    /// The properties of a call for the loop guard. `arguments` must be normalised.
    pub fn nature(&self, arguments: &Value) -> Nature {
        let looks = self.looks || matches!(self.run.resolve(arguments), Run::Read(_));
        Nature { looks, passing: self.passing }
    }

    /// Normalises arguments: removes null for an optional parameter whose schema has no null, turns an integer written as
    /// 2.0 into 2, adds the presets of an alias, and renames `target_agent` to `to`
    ///. Call it before [`validate`](Tool::validate), with the alias from
    /// [`crate::Registry::find`]. Journal and ledger keep the arguments as the model wrote them.
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
        crate::parameters::integers(&self.schema, &mut arguments);
        arguments
    }

    /// Checks arguments against the schema before anything runs. The refusal names each
    /// wrong field.
    pub fn validate(&self, arguments: &Value) -> Result<()> {
        if let Some(text) = arguments.as_str() {
            return Err(refusal!(
                InvalidArguments,
                "{}: the arguments are not a JSON object but {} bytes of text that cannot be parsed as one",
                self.spec.name,
                text.len()
            )
            .hint("an answer that reaches its token limit is cut there: call again, with less in one call"));
        }
        if !arguments.is_object() {
            return Err(refusal!(InvalidArguments, "{}: the arguments must be a JSON object", self.spec.name)
                .hint("call the tool again with an object that matches its schema"));
        }
        let Some(validator) = self.validator() else {
            return Err(refusal!(Internal, "the schema of {} is not valid", self.spec.name));
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
        let compile = || jsonschema::validator_for(&crate::parameters::with_null_types(&self.schema)).ok();
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

/// Whether an agent with this spec and these skills has `tool` in its registry. `outside` says whether the turn came from a
/// conversation outside.
pub fn is_granted(plan: &Plan, spec: &AgentSpec, held: &[HeldSkill], outside: bool, tool: &Tool) -> bool {
    match &tool.origin {
        Origin::Builtin => plan.grants(&spec.access, &tool.spec.name, outside),
        Origin::Toolbox(toolbox) => {
            let config = &spec.archetype.config;
            plan.grants_of_toolbox((config, &spec.access), held, toolbox, &tool.spec.name)
        }
    }
}
