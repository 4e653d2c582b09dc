//! What tools do. A tool has one of five kinds, by its effect. The kind decides how a call is recorded and what happens
//! after a crash (promise 2). The types ensure that a tool has only the effects of its kind.
//!
//! Each kind has three forms. A built-in tool is a function, which [`read`], [`world`], [`outside`], [`file`] or [`ask`]
//! wraps. A tool with a state or a step of its own implements the trait of its kind, such as [`ReadTool`]. The turn runs
//! both through the erased traits, with the arguments as JSON.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use ghost_domain::artifact::Found;
use ghost_domain::event::NewEvent;
use ghost_domain::journal::{Effect, FilePlan};
use ghost_domain::{Ask, Code, ImageFile, Money, refusal};
use ghost_operations::{Result, Tx};
use serde_json::Value;

use crate::context::CallContext;
use crate::parameters::{Params, parse};
use crate::workspace::FileWrite;

/// The result of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The content that the model gets.
    pub content: Value,
    /// Images that the model sees after the content; see [`CallContext::image`].
    pub images: Vec<ImageFile>,
    /// Path of the file that has the whole of a content that the model sees a part of. Tools leave it empty; see
    /// [`crate::view`].
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

impl Output {
    /// A content that may be truncated.
    pub(crate) fn cut(content: Value, truncated: bool) -> Self {
        Self { content, truncated, ..Self::default() }
    }
}

/// A result without the members that are null, which would only cost tokens.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    object
}

impl From<Value> for Output {
    fn from(content: Value) -> Self {
        Self { content, ..Self::default() }
    }
}

/// A tool that changes nothing. It may run again after a crash. Most such tools are functions; see [`read`].
#[async_trait]
pub trait ReadTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Runs the tool.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output>;
}

/// A tool whose effect is in the store. It commits with the record of the call, or not at all.
#[async_trait]
pub trait WorldTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Reads state outside the store before the transaction begins, and may add it to the arguments
    /// for [`apply`](Self::apply). Changes nothing.
    async fn prepare(&self, _call: &CallContext, arguments: Value) -> Result<Value> {
        Ok(arguments)
    }

    /// Applies the effect. Must await nothing but `w`.
    fn apply(&self, call: &CallContext, params: Self::Params, w: &mut Tx) -> Result<Output>;
}

/// A tool with an effect outside. It is recorded before and after the call and never runs twice.
#[async_trait]
pub trait OutsideTool: Send + Sync + 'static {
    /// The parameters of the tool.
    type Params: Params;

    /// Runs the tool. Dropping the future must stop the effect as far as possible.
    async fn run(&self, call: &CallContext, params: Self::Params) -> Result<Output>;
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
    async fn prepare(&self, call: &CallContext, params: &Self::Params) -> Result<FileWork>;

    /// Prepares the writes of `rest` again, which a crash prevented after others of the same call were made. Access is
    /// checked again. Changes nothing.
    async fn prepare_rest(&self, _call: &CallContext, _params: &Self::Params, _rest: &[FilePlan]) -> Result<FileWork> {
        Err(refusal!(Internal, "this tool writes one file, so nothing of it can be left"))
    }

    /// Runs in the transaction that records the end of the call, after the files were written. After
    /// a crash, it also runs if the files are found to be written.
    fn record(&self, call: &CallContext, params: Self::Params, plans: &[FilePlan], w: &mut Tx) -> Result<Output>;
}

/// A [`ReadTool`] whose parameters are still JSON. The turn runs tools through these erased traits.
#[async_trait]
pub trait ErasedRead: Send + Sync {
    /// See [`ReadTool::run`].
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output>;
}

/// A [`WorldTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedWorld: Send + Sync {
    /// See [`WorldTool::prepare`].
    async fn prepare(&self, _call: &CallContext, arguments: Value) -> Result<Value> {
        Ok(arguments)
    }

    /// See [`WorldTool::apply`].
    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output>;
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
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output>;

    /// Continues a call that a crash interrupted, in the session that it recorded with [`CallContext::record_session`].
    ///
    /// # Errors
    /// `OutcomeUnknown` if it cannot be continued.
    async fn resume(&self, call: &CallContext, arguments: Value, session: &str) -> Result<Output> {
        let _ = (call, arguments, session);
        Err(refusal!(OutcomeUnknown, "this call was running when the daemon stopped")
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
    async fn settle(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        self.resume(call, arguments, "").await
    }
}

/// A [`FileTool`] whose parameters are still JSON.
#[async_trait]
pub trait ErasedFile: Send + Sync {
    /// See [`FileTool::prepare`].
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork>;

    /// See [`FileTool::prepare_rest`].
    async fn prepare_rest(&self, call: &CallContext, arguments: &Value, rest: &[FilePlan]) -> Result<FileWork>;

    /// See [`FileTool::record`].
    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output>;
}

/// A tool that waits for another agent. The transaction that ends the other agent's turn delivers the result.
pub trait ErasedAsk: Send + Sync {
    /// Opens the ask.
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask>;
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
    /// See [`ErasedAsk`].
    Ask(Arc<dyn ErasedAsk>),
    /// The arguments decide between several kinds.
    Choose(Arc<dyn Fn(&Value) -> Run + Send + Sync>),
}

impl Run {
    /// Wraps a read tool.
    pub fn read<T: ReadTool>(tool: T) -> Self {
        Self::Read(Arc::new(tool))
    }

    /// Wraps a tool with an effect in the store.
    pub fn world<T: WorldTool>(tool: T) -> Self {
        Self::World(Arc::new(tool))
    }

    /// Wraps a tool with an effect outside.
    pub fn outside<T: OutsideTool>(tool: T) -> Self {
        Self::Outside(Arc::new(tool))
    }

    /// Wraps a tool that writes files.
    pub fn file<T: FileTool>(tool: T) -> Self {
        Self::File(Arc::new(tool))
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

#[async_trait]
impl<T: ReadTool> ErasedRead for T {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        ReadTool::run(self, call, parse(arguments)?).await
    }
}

#[async_trait]
impl<T: WorldTool> ErasedWorld for T {
    async fn prepare(&self, call: &CallContext, arguments: Value) -> Result<Value> {
        WorldTool::prepare(self, call, arguments).await
    }

    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output> {
        WorldTool::apply(self, call, parse(arguments)?, w)
    }
}

#[async_trait]
impl<T: OutsideTool> ErasedOutside for T {
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        OutsideTool::run(self, call, parse(arguments)?).await
    }
}

#[async_trait]
impl<T: FileTool> ErasedFile for T {
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork> {
        FileTool::prepare(self, call, &parse(arguments.clone())?).await
    }

    async fn prepare_rest(&self, call: &CallContext, arguments: &Value, rest: &[FilePlan]) -> Result<FileWork> {
        FileTool::prepare_rest(self, call, &parse(arguments.clone())?, rest).await
    }

    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
        FileTool::record(self, call, parse(arguments)?, plans, w)
    }
}

/// An asynchronous function of a call and its parameters, as a bound that holds for every lifetime of the call.
pub(crate) trait CallFn<'c, P, O>: Fn(&'c CallContext, P) -> Self::Done + Send + Sync {
    type Done: Future<Output = Result<O>> + Send + 'c;
}

impl<'c, P, O, F, D> CallFn<'c, P, O> for F
where
    F: Fn(&'c CallContext, P) -> D + Send + Sync,
    D: Future<Output = Result<O>> + Send + 'c,
{
    type Done = D;
}

/// A tool that is a function, with the type of its parameters.
struct Function<F, P>(F, PhantomData<fn(P)>);

#[async_trait]
impl<F, P: Params> ErasedRead for Function<F, P>
where
    F: for<'c> CallFn<'c, P, Output>,
{
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        (self.0)(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<F, P: Params> ErasedOutside for Function<F, P>
where
    F: for<'c> CallFn<'c, P, Output>,
{
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        (self.0)(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<F, P: Params> ErasedWorld for Function<F, P>
where
    F: Fn(&CallContext, P, &mut Tx) -> Result<Output> + Send + Sync,
{
    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output> {
        (self.0)(call, parse(arguments)?, w)
    }
}

impl<F, P: Params> ErasedAsk for Function<F, P>
where
    F: Fn(&CallContext, P, &mut Tx) -> Result<Ask> + Send + Sync,
{
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask> {
        (self.0)(call, parse(arguments)?, w)
    }
}

#[async_trait]
impl<A, R, P: Params> FileTool for Function<(A, R), P>
where
    P: Sync,
    A: for<'c> CallFn<'c, &'c P, FileWork> + 'static,
    R: Fn(&CallContext, P, &[FilePlan], &mut Tx) -> Result<Output> + Send + Sync + 'static,
{
    type Params = P;

    async fn prepare(&self, call: &CallContext, params: &P) -> Result<FileWork> {
        (self.0.0)(call, params).await
    }

    fn record(&self, call: &CallContext, params: P, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
        (self.0.1)(call, params, plans, w)
    }
}

/// A kind of tool with its code, and the type of its parameters.
pub(crate) struct Typed<P> {
    pub(crate) run: Run,
    params: PhantomData<fn(P)>,
}

impl<P> From<Run> for Typed<P> {
    fn from(run: Run) -> Self {
        Self { run, params: PhantomData }
    }
}

/// A tool that changes nothing.
pub(crate) fn read<P: Params>(run: impl for<'c> CallFn<'c, P, Output> + 'static) -> Typed<P> {
    Run::Read(Arc::new(Function(run, PhantomData::<fn(P)>))).into()
}

/// A tool whose effect is in the store.
pub(crate) fn world<P: Params>(
    apply: impl Fn(&CallContext, P, &mut Tx) -> Result<Output> + Send + Sync + 'static,
) -> Typed<P> {
    Run::World(Arc::new(Function(apply, PhantomData::<fn(P)>))).into()
}

/// A tool with an effect outside.
pub(crate) fn outside<P: Params>(run: impl for<'c> CallFn<'c, P, Output> + 'static) -> Typed<P> {
    Run::Outside(Arc::new(Function(run, PhantomData::<fn(P)>))).into()
}

/// A tool that writes files: what prepares the writes, and what records them.
pub(crate) fn file<P: Params + Sync>(
    prepare: impl for<'c> CallFn<'c, &'c P, FileWork> + 'static,
    record: impl Fn(&CallContext, P, &[FilePlan], &mut Tx) -> Result<Output> + Send + Sync + 'static,
) -> Typed<P> {
    Run::file(Function((prepare, record), PhantomData::<fn(P)>)).into()
}

/// A tool that waits for another agent.
pub(crate) fn ask<P: Params>(
    open: impl Fn(&CallContext, P, &mut Tx) -> Result<Ask> + Send + Sync + 'static,
) -> Typed<P> {
    Run::Ask(Arc::new(Function(open, PhantomData::<fn(P)>))).into()
}

/// A tool whose arguments decide between kinds with the same parameters.
pub(crate) fn choose<P>(choice: impl Fn(&Value) -> Run + Send + Sync + 'static) -> Typed<P> {
    Run::Choose(Arc::new(choice)).into()
}
