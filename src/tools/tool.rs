//! What a tool is. Its effect decides its shape, because the effect decides how a call is recorded and what a crash in
//! it means (promise 2): a tool cannot have an effect that its type does not admit to.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ghost_domain::event::NewEvent;
use ghost_domain::journal::{Effect, FilePlan};
use ghost_domain::transcript::ToolSpec;
use ghost_domain::{Ask, Refusal};
use ghost_store::Writes;
use serde_json::Value;

use crate::context::CallContext;
use crate::loop_guard::Nature;
use crate::parameters::{Params, parse};

/// What a call gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// What the model reads.
    pub content: Value,
    /// Whether a producer cap cut it.
    pub truncated: bool,
    /// Events to state with the record of the call.
    pub events: Vec<NewEvent>,
}

impl From<Value> for Output {
    fn from(content: Value) -> Self {
        Self { content, ..Self::default() }
    }
}

/// Changes nothing; may be run again.
#[async_trait]
pub trait ReadTool: Send + Sync + 'static {
    /// Its parameters.
    type Params: Params;

    /// Runs it.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output, Refusal>;
}

/// Has its effect in the store: it commits with the record of the call, or not at all.
#[async_trait]
pub trait WorldTool: Send + Sync + 'static {
    /// Its parameters.
    type Params: Params;

    /// Looks at what is outside the store before the transaction begins, and gives the arguments that it then applies:
    /// what it found may be added to them. Changes nothing.
    async fn look(&self, _call: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        Ok(arguments)
    }

    /// Applies it. Must await nothing but `w`.
    async fn apply(&self, call: &CallContext, params: Self::Params, w: &mut dyn Writes) -> Result<Output, Refusal>;
}

/// Has an effect outside: recorded before and after, never run twice.
#[async_trait]
pub trait OutsideTool: Send + Sync + 'static {
    /// Its parameters.
    type Params: Params;

    /// Runs it. Dropping the future must stop the effect as far as it can be stopped.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output, Refusal>;
}

/// A file write, as it will be carried out.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// What is there and what will be there.
    pub plan: FilePlan,
    /// The content that will be there.
    pub bytes: Vec<u8>,
}

/// Writes one file, and may have an effect in the store besides.
#[async_trait]
pub trait FileTool: Send + Sync + 'static {
    /// Its parameters.
    type Params: Params;

    /// Checks and prepares the write. Changes nothing.
    async fn prepare(&self, call: &CallContext, params: &Self::Params) -> Result<FileWork, Refusal>;

    /// Called in the transaction that records the call's end, once the file is in place; also after a crash, when the
    /// file was found to be in place.
    async fn record(
        &self,
        call: &CallContext,
        params: Self::Params,
        plan: &FilePlan,
        w: &mut dyn Writes,
    ) -> Result<Output, Refusal>;
}

/// Waits for another agent. The result comes from the transaction that ends the other's turn.
#[async_trait]
pub trait AskTool: Send + Sync + 'static {
    /// Its parameters.
    type Params: Params;

    /// Opens the ask.
    async fn open(&self, call: &CallContext, params: Self::Params, w: &mut dyn Writes) -> Result<Ask, Refusal>;
}

/// The same four, with parameters still as JSON: what the turn runs.
#[async_trait]
pub trait ErasedRead: Send + Sync {
    /// See [`ReadTool::run`].
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal>;
}

/// See [`WorldTool`].
#[async_trait]
pub trait ErasedWorld: Send + Sync {
    /// See [`WorldTool::look`].
    async fn look(&self, call: &CallContext, arguments: Value) -> Result<Value, Refusal>;

    /// See [`WorldTool::apply`].
    async fn apply(&self, call: &CallContext, arguments: Value, w: &mut dyn Writes) -> Result<Output, Refusal>;
}

/// See [`OutsideTool`].
#[async_trait]
pub trait ErasedOutside: Send + Sync {
    /// See [`OutsideTool::run`].
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output, Refusal>;
}

/// See [`FileTool`].
#[async_trait]
pub trait ErasedFile: Send + Sync {
    /// See [`FileTool::prepare`].
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork, Refusal>;

    /// See [`FileTool::record`].
    async fn record(
        &self,
        call: &CallContext,
        arguments: Value,
        plan: &FilePlan,
        w: &mut dyn Writes,
    ) -> Result<Output, Refusal>;
}

/// See [`AskTool`].
#[async_trait]
pub trait ErasedAsk: Send + Sync {
    /// See [`AskTool::open`].
    async fn open(&self, call: &CallContext, arguments: Value, w: &mut dyn Writes) -> Result<Ask, Refusal>;
}

/// How a tool runs.
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
    /// The arguments decide.
    Choose(Arc<dyn Fn(&Value) -> Run + Send + Sync>),
}

impl Run {
    /// A read.
    pub fn read<T: ReadTool>(tool: T) -> Self {
        Self::Read(Arc::new(Typed(tool)))
    }

    /// An effect in the store.
    pub fn world<T: WorldTool>(tool: T) -> Self {
        Self::World(Arc::new(Typed(tool)))
    }

    /// An effect outside.
    pub fn outside<T: OutsideTool>(tool: T) -> Self {
        Self::Outside(Arc::new(Typed(tool)))
    }

    /// A file write.
    pub fn file<T: FileTool>(tool: T) -> Self {
        Self::File(Arc::new(Typed(tool)))
    }

    /// An ask.
    pub fn ask<T: AskTool>(tool: T) -> Self {
        Self::Ask(Arc::new(Typed(tool)))
    }

    /// The run that these arguments lead to. A choice leads to a run, never to a further choice.
    #[must_use]
    pub fn resolve(&self, arguments: &Value) -> Self {
        match self {
            Self::Choose(choose) => choose(arguments),
            run => run.clone(),
        }
    }

    /// The effect; [`Effect::Read`] for a choice that is not resolved.
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
}

/// A tool as it stands in the table of all tools.
pub struct Tool {
    /// What a model is told of it.
    pub spec: ToolSpec,
    /// How it runs.
    pub run: Run,
    /// Bytes of its result that a model sees; `None` is the world's own bound (CONF-07).
    pub view_bytes: Option<u32>,
    /// Seconds that a call may take; `None` is the world's own bound.
    pub seconds: Option<u32>,
    /// Members of its outcome that pass by themselves (see [`Nature::passing`]).
    pub passing: &'static [&'static str],
    /// Whether it counts as looking although it may have an effect: what it takes, it shows.
    pub looks: bool,
    pub(crate) validator: OnceLock<Option<jsonschema::Validator>>,
}

impl Tool {
    /// A tool whose schema is that of `P`.
    ///
    /// `description` must be one line: it stands in lists.
    pub fn new<P: Params>(name: &str, description: &str, run: Run) -> Self {
        Self::with_schema(name, description, crate::schema::of::<P>(), run)
    }

    /// A tool with a schema of its own, as toolboxes have.
    pub fn with_schema(name: &str, description: &str, parameters: Value, run: Run) -> Self {
        Self {
            spec: ToolSpec {
                name: name.to_owned(),
                description: ghost_domain::text::one_line(description),
                parameters,
            },
            run,
            view_bytes: None,
            seconds: None,
            passing: &[],
            looks: false,
            validator: OnceLock::new(),
        }
    }

    /// Gives it a view bound of its own.
    #[must_use]
    pub fn view(mut self, bytes: u32) -> Self {
        self.view_bytes = Some(bytes);
        self
    }

    /// Names members of its outcome that pass by themselves.
    #[must_use]
    pub fn passing(mut self, members: &'static [&'static str]) -> Self {
        self.passing = members;
        self
    }

    /// Counts as looking.
    #[must_use]
    pub fn looking(mut self) -> Self {
        self.looks = true;
        self
    }

    /// What the loop guard needs to know of a call with these arguments, normalised ones.
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
    async fn look(&self, call: &CallContext, arguments: Value) -> Result<Value, Refusal> {
        self.0.look(call, arguments).await
    }

    async fn apply(&self, call: &CallContext, arguments: Value, w: &mut dyn Writes) -> Result<Output, Refusal> {
        self.0.apply(call, parse(arguments)?, w).await
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

    async fn record(
        &self,
        call: &CallContext,
        arguments: Value,
        plan: &FilePlan,
        w: &mut dyn Writes,
    ) -> Result<Output, Refusal> {
        self.0.record(call, parse(arguments)?, plan, w).await
    }
}

#[async_trait]
impl<T: AskTool> ErasedAsk for Typed<T> {
    async fn open(&self, call: &CallContext, arguments: Value, w: &mut dyn Writes) -> Result<Ask, Refusal> {
        self.0.open(call, parse(arguments)?, w).await
    }
}
