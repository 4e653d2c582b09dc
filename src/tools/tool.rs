//! The types of tools. A tool has one of five kinds, by its effect. The kind decides how a call is
//! recorded and what happens after a crash (promise 2). The type system ensures that a tool has
//! only the effects of its kind.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ghost_config::plan::{Plan, ToolboxPlan, is_of_channel};
use ghost_domain::artifact::Found;
use ghost_domain::event::NewEvent;
use ghost_domain::journal::{Effect, FilePlan};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{ApprovalPlan, Ask, Code, ImageFile, Money, Refusal};
use ghost_operations::Tx;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::approval::{Approvable, Need};
use crate::context::{CallContext, Caller, WorldServices};
use crate::loop_guard::Nature;
use crate::origin::Origin;
use crate::parameters::{Params, parse};
use crate::workspace::FileWrite;

/// Bytes of a tool's hash.
const HASH_BYTES: usize = 8;

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The content that the model gets.
    pub content: Value,
    /// Images that the model sees after the content; see [`CallContext::image`].
    pub images: Vec<ImageFile>,
    /// Path of the file that has the whole of a content that the model sees a part of. Tools leave it empty; see
    /// [`crate::saved`].
    pub saved: Option<String>,
    /// Whether the tool truncated the content.
    pub truncated: bool,
    /// Events to write in the transaction that records the call.
    pub events: Vec<NewEvent>,
    /// Files under `output/` that the call changed, and that are to be indexed in that transaction.
    pub artifacts: Vec<Found>,
    /// What the call charged.
    pub cost: Option<Money>,
    /// Why the call counts as failed although it has a result.
    pub failed: Option<Code>,
    /// What a [`WorldTool`] has done so far, if the effect is too large for one transaction: the call is applied again in
    /// the next one, with this as [`CallContext::progress`]. The content is not used then.
    pub progress: Option<Value>,
}

impl From<Value> for Output {
    fn from(content: Value) -> Self {
        Self { content, ..Self::default() }
    }
}

/// A tool that changes nothing. It may run again after a crash.
#[async_trait]
pub trait ReadTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Runs the tool.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output, Refusal>;
}

/// A tool whose effect is in the store. It commits with the record of the call, or not at all.
#[async_trait]
pub trait WorldTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Reads state outside the store before the transaction begins, and may add it to the arguments
    /// for [`apply`](Self::apply). Changes nothing.
    async fn prepare(&self, _call: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        Ok(arguments)
    }

    /// Applies the effect. Must await nothing but `w`.
    fn apply(&self, call: &CallContext, params: Self::Params, w: &mut Tx) -> Result<Output, Refusal>;
}

/// A tool with an effect outside. It is recorded before and after the call and never runs twice.
#[async_trait]
pub trait OutsideTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Runs the tool. Dropping the future must stop the effect as far as possible.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output, Refusal>;
}

/// Planned file writes: all are made, or none.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// The writes, in the order in which they are made.
    pub writes: Vec<FileWrite>,
}

impl FileWork {
    /// One file with this content.
    #[must_use]
    pub fn one(plan: FilePlan, bytes: Vec<u8>) -> Self {
        Self { writes: vec![FileWrite { plan, bytes: Some(bytes) }] }
    }

    /// The plans alone.
    #[must_use]
    pub fn plans(&self) -> Vec<FilePlan> {
        self.writes.iter().map(|write| write.plan.clone()).collect()
    }
}

/// A tool that writes files. It may also have an effect in the store.
#[async_trait]
pub trait FileTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Checks the call and prepares the writes. Changes nothing.
    async fn prepare(&self, call: &CallContext, params: &Self::Params) -> Result<FileWork, Refusal>;

    /// Prepares the writes of `rest` again, which a crash prevented after others of the same call were made. Access is
    /// checked again. Changes nothing.
    async fn prepare_rest(
        &self,
        _call: &CallContext,
        _params: &Self::Params,
        _rest: &[FilePlan],
    ) -> Result<FileWork, Refusal> {
        Err(Refusal::new(Code::Internal, "this tool writes one file, so nothing of it can be left"))
    }

    /// Runs in the transaction that records the end of the call, after the files were written. After
    /// a crash, it also runs if the files are found to be written.
    fn record(
        &self,
        call: &CallContext,
        params: Self::Params,
        plans: &[FilePlan],
        w: &mut Tx,
    ) -> Result<Output, Refusal>;
}

/// A tool that waits for another agent. The transaction that ends the other agent's turn delivers
/// the result.
#[async_trait]
pub trait AskTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Opens the ask.
    fn open(&self, call: &CallContext, params: Self::Params, w: &mut Tx) -> Result<Ask, Refusal>;
}

/// A [`ReadTool`] whose parameters are still JSON. The turn runs tools through these erased traits.
#[async_trait]
pub trait ErasedRead: Send + Sync {
    /// See [`ReadTool::run`].
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal>;
}

/// A [`WorldTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedWorld: Send + Sync {
    /// See [`WorldTool::prepare`].
    async fn prepare(&self, call: &CallContext, arguments: Value) -> Result<Value, Refusal>;

    /// See [`WorldTool::apply`].
    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output, Refusal>;
}

/// Why an approval of this tool holds once only: the same arguments would reach other people in another conversation.
pub(crate) fn acts_in_its_conversation(tool: &str) -> String {
    format!("{tool} acts in the conversation of its turn")
}

/// What becomes of an outside call that a crash cut off (promise 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCrash {
    /// Its outcome is unknown, and the model is told so.
    Unknown,
    /// [`ErasedOutside::settle`] finds out.
    Settled,
    /// Its turn waits until a person says what became of it.
    WaitsForPerson,
}

/// An [`OutsideTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedOutside: Send + Sync {
    /// See [`OutsideTool::run`].
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal>;

    /// Continues a call that a crash interrupted, in the session that it recorded with [`CallContext::record_session`].
    ///
    /// # Errors
    /// `OutcomeUnknown` if it cannot be continued.
    async fn resume(&self, call: &CallContext, arguments: Value, session: &str) -> Result<Output, Refusal> {
        let _ = (call, arguments, session);
        Err(Refusal::new(Code::OutcomeUnknown, "this call was running when the daemon stopped")
            .hint("check which effects it had before you do it again"))
    }

    /// What becomes of a call that a crash cut off.
    fn after_crash(&self) -> AfterCrash {
        AfterCrash::Unknown
    }

    /// Finds out what became of a call that a crash cut off, and makes it if it did not happen.
    ///
    /// # Errors
    /// `OutcomeUnknown` if that cannot be known.
    async fn settle(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        self.resume(call, arguments, "").await
    }
}

/// A [`FileTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedFile: Send + Sync {
    /// See [`FileTool::prepare`].
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork, Refusal>;

    /// See [`FileTool::prepare_rest`].
    async fn prepare_rest(&self, call: &CallContext, arguments: &Value, rest: &[FilePlan])
    -> Result<FileWork, Refusal>;

    /// See [`FileTool::record`].
    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output, Refusal>;
}

/// An [`AskTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedAsk: Send + Sync {
    /// See [`AskTool::open`].
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask, Refusal>;
}

/// The kind of a tool, with its code.
#[derive(Clone)]
pub enum Run {
    /// See [`ReadTool`].
    Read(Arc<dyn ErasedRead>),
    /// See [`WorldTool`].
    World(Arc<dyn ErasedWorld>),
    /// See [`OutsideTool`].
    Outside(Arc<dyn ErasedOutside>),
    /// See [`FileTool`].
    File(Arc<dyn ErasedFile>),
    /// See [`AskTool`].
    Ask(Arc<dyn ErasedAsk>),
    /// The arguments decide between several kinds.
    Choose(Arc<dyn Fn(&Value) -> Run + Send + Sync>),
}

impl Run {
    /// Wraps a read tool.
    pub fn read<T: ReadTool>(tool: T) -> Self {
        Self::Read(Arc::new(Typed(tool)))
    }

    /// Wraps a tool with an effect in the store.
    pub fn world<T: WorldTool>(tool: T) -> Self {
        Self::World(Arc::new(Typed(tool)))
    }

    /// Wraps a tool with an effect outside.
    pub fn outside<T: OutsideTool>(tool: T) -> Self {
        Self::Outside(Arc::new(Typed(tool)))
    }

    /// Wraps a tool that writes files.
    pub fn file<T: FileTool>(tool: T) -> Self {
        Self::File(Arc::new(Typed(tool)))
    }

    /// Wraps a tool that asks another agent.
    pub fn ask<T: AskTool>(tool: T) -> Self {
        Self::Ask(Arc::new(Typed(tool)))
    }

    /// The kind for these arguments. A [`Run::Choose`] must return a kind, not another choice.
    #[must_use]
    pub fn resolve(&self, arguments: &Value) -> Self {
        match self {
            Self::Choose(choose) => choose(arguments),
            run => run.clone(),
        }
    }

    /// The recorded effect. An unresolved choice is treated as [`Effect::Read`].
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::Read(_) | Self::Choose(_) => Effect::Read,
            Self::World(_) => Effect::World,
            Self::Outside(_) => Effect::Outside,
            Self::File(_) => Effect::File,
            Self::Ask(_) => Effect::Wait,
        }
    }

    /// The effect in one word; `varies` if the arguments decide.
    #[must_use]
    pub fn effect_word(&self) -> &'static str {
        match self {
            Self::Choose(_) => "varies",
            Self::Read(_) => "read",
            Self::World(_) => "world",
            Self::Outside(_) => "outside",
            Self::File(_) => "file",
            Self::Ask(_) => "wait",
        }
    }
}

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

/// A tool with its description, an entry in the table of all tools.
pub struct Tool {
    /// The name, description and schema that the model gets.
    pub spec: ToolSpec,
    /// The schema that arguments must match. The model's is the same without what only costs tokens.
    pub schema: Value,
    /// The kind of the tool.
    pub run: Run,
    /// The largest view of a result for the model, in bytes; `None` means the world's limit
    /// (CONF-07).
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
        Self::with_schema(name, description, crate::schema::of::<P>(), run)
    }

    /// A tool with its own schema.
    pub fn with_schema(name: &str, description: &str, parameters: Value, run: Run) -> Self {
        Self {
            spec: ToolSpec {
                name: name.to_owned(),
                description: ghost_domain::text::one_line(description),
                parameters: crate::schema::terse(&parameters),
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
    #[must_use]
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
    #[must_use]
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
    ) -> Result<Option<String>, Refusal> {
        match &self.approvable {
            Some(own) => own.closer(services, caller, arguments).await,
            None => Ok(None),
        }
    }

    /// What exactly a call would do.
    ///
    /// # Errors
    /// Why the tool cannot say so; the call must not run then.
    pub async fn approval_plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan, Refusal> {
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
    #[must_use]
    pub fn nature(&self, arguments: &Value) -> Nature {
        let looks = self.looks || matches!(self.run.resolve(arguments), Run::Read(_));
        Nature { looks, passing: self.passing }
    }
}

struct Typed<T>(T);

#[async_trait]
impl<T: ReadTool> ErasedRead for Typed<T> {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        self.0.run(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<T: WorldTool> ErasedWorld for Typed<T> {
    async fn prepare(&self, call: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        self.0.prepare(call, arguments).await
    }

    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output, Refusal> {
        self.0.apply(call, parse(arguments)?, w)
    }
}

#[async_trait]
impl<T: OutsideTool> ErasedOutside for Typed<T> {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal> {
        self.0.run(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<T: FileTool> ErasedFile for Typed<T> {
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork, Refusal> {
        self.0.prepare(call, &parse(arguments.clone())?).await
    }

    async fn prepare_rest(
        &self,
        call: &CallContext,
        arguments: &Value,
        rest: &[FilePlan],
    ) -> Result<FileWork, Refusal> {
        self.0.prepare_rest(call, &parse(arguments.clone())?, rest).await
    }

    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output, Refusal> {
        self.0.record(call, parse(arguments)?, plans, w)
    }
}

#[async_trait]
impl<T: AskTool> ErasedAsk for Typed<T> {
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask, Refusal> {
        self.0.open(call, parse(arguments)?, w)
    }
}
