//! What tools do. A tool has one of five kinds, by its effect. The kind decides how a call is recorded and what happens
//! after a crash (promise 2). Each kind is a trait that takes the arguments as JSON, so that a tool has only the effects of
//! its kind. A tool with a state or a step of its own implements the trait; any other is a function, which [`read`],
//! [`world`], [`outside`], [`file`] or [`ask`] wraps.
//!
//! A call of a toolbox that the daemon's death cut off must never be made again unless its manifest declares that as
//! harmless, or the toolbox says that it did not happen.

use std::marker::PhantomData;
use std::sync::Arc;

use async_trait::async_trait;
use ghost_config::plan::toolbox::Idempotency;
use ghost_domain::artifact::Found;
use ghost_domain::event::NewEvent;
use ghost_domain::journal::Effect;
use ghost_domain::{Ask, Code, FilePlan, ImageFile, Money, refusal};
use ghost_operations::{Result, Tx};
use serde_json::{Value, json};

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

/// A tool that changes nothing. It may run again after a crash.
#[async_trait]
pub trait ReadTool: Send + Sync {
    /// Runs the tool.
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output>;
}

/// A tool whose effect is in the store. It commits with the record of the call, or not at all.
#[async_trait]
pub trait WorldTool: Send + Sync {
    /// Reads state outside the store before the transaction begins, and may add it to the arguments
    /// for [`apply`](Self::apply). Changes nothing.
    async fn prepare(&self, _call: &CallContext, arguments: Value) -> Result<Value> {
        Ok(arguments)
    }

    /// Applies the effect. Must await nothing but `w`.
    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output>;
}

/// Planned file writes: all are made, or none.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// The writes, in the order in which they are made.
    pub writes: Vec<FileWrite>,
}

impl FileWork {
    /// One file with this content.
    pub fn one(plan: FilePlan, bytes: Vec<u8>) -> Self {
        Self { writes: vec![FileWrite { plan, bytes: Some(bytes) }] }
    }

    /// The plans alone.
    pub fn plans(&self) -> Vec<FilePlan> {
        self.writes.iter().map(|write| write.plan.clone()).collect()
    }
}

/// A tool that writes files. It may also have an effect in the store.
#[async_trait]
pub trait FileTool: Send + Sync {
    /// Checks the call and prepares the writes. Changes nothing.
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork>;

    /// Prepares the writes of `rest` again, which a crash prevented after others of the same call were made. Access is
    /// checked again. Changes nothing.
    async fn prepare_rest(&self, _call: &CallContext, _arguments: &Value, _rest: &[FilePlan]) -> Result<FileWork> {
        Err(refusal!(Internal, "this tool writes one file, so nothing of it can be left"))
    }

    /// Runs in the transaction that records the end of the call, after the files were written. After
    /// a crash, it also runs if the files are found to be written.
    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output>;
}

/// A tool that waits for another agent. The transaction that ends the other agent's turn delivers the result.
pub trait AskTool: Send + Sync {
    /// Opens the ask.
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask>;
}

/// What becomes of an outside call that a crash cut off (promise 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCrash {
    /// Its outcome is unknown, and the model is told so.
    Unknown,
    /// [`OutsideTool::settle`] finds out.
    Settled,
    /// Its turn waits until a person says what became of it.
    WaitsForPerson,
}

/// A tool with an effect outside. It is recorded before and after the call and never runs twice.
#[async_trait]
pub trait OutsideTool: Send + Sync {
    /// Runs the tool. Dropping the future must stop the effect as far as possible.
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

/// The kind of a tool, with its code.
#[derive(Clone)]
pub enum Run {
    /// See [`ReadTool`].
    Read(Arc<dyn ReadTool>),
    /// See [`WorldTool`].
    World(Arc<dyn WorldTool>),
    /// See [`OutsideTool`].
    Outside(Arc<dyn OutsideTool>),
    /// See [`FileTool`].
    File(Arc<dyn FileTool>),
    /// See [`AskTool`].
    Ask(Arc<dyn AskTool>),
    /// The arguments decide between several kinds.
    Choose(Arc<dyn Fn(&Value) -> Run + Send + Sync>),
}

impl Run {
    /// Wraps a read tool.
    pub fn read(tool: impl ReadTool + 'static) -> Self {
        Self::Read(Arc::new(tool))
    }

    /// Wraps a tool with an effect in the store.
    pub fn world(tool: impl WorldTool + 'static) -> Self {
        Self::World(Arc::new(tool))
    }

    /// Wraps a tool with an effect outside.
    pub fn outside(tool: impl OutsideTool + 'static) -> Self {
        Self::Outside(Arc::new(tool))
    }

    /// Wraps a tool that writes files.
    pub fn file(tool: impl FileTool + 'static) -> Self {
        Self::File(Arc::new(tool))
    }

    /// The kind for these arguments. A [`Run::Choose`] must return a kind, not another choice.
    pub fn resolve(&self, arguments: &Value) -> Self {
        match self {
            Self::Choose(choose) => choose(arguments),
            run => run.clone(),
        }
    }

    /// The recorded effect. An unresolved choice is treated as [`Effect::Read`].
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
    pub fn effect_word(&self) -> &'static str {
        match self {
            Self::Choose(_) => "varies",
            run => run.effect().as_str(),
        }
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
impl<F, P: Params> ReadTool for Function<F, P>
where
    F: for<'c> CallFn<'c, P, Output>,
{
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        (self.0)(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<F, P: Params> OutsideTool for Function<F, P>
where
    F: for<'c> CallFn<'c, P, Output>,
{
    async fn run(&self, call: &CallContext, arguments: Value) -> Result<Output> {
        (self.0)(call, parse(arguments)?).await
    }
}

#[async_trait]
impl<F, P: Params> WorldTool for Function<F, P>
where
    F: Fn(&CallContext, P, &mut Tx) -> Result<Output> + Send + Sync,
{
    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output> {
        (self.0)(call, parse(arguments)?, w)
    }
}

impl<F, P: Params> AskTool for Function<F, P>
where
    F: Fn(&CallContext, P, &mut Tx) -> Result<Ask> + Send + Sync,
{
    fn open(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Ask> {
        (self.0)(call, parse(arguments)?, w)
    }
}

#[async_trait]
impl<A, R, P: Params + Sync> FileTool for Function<(A, R), P>
where
    A: for<'c> CallFn<'c, &'c P, FileWork>,
    R: Fn(&CallContext, P, &[FilePlan], &mut Tx) -> Result<Output> + Send + Sync,
{
    async fn prepare(&self, call: &CallContext, arguments: &Value) -> Result<FileWork> {
        let params: P = parse(arguments.clone())?;
        (self.0.0)(call, &params).await
    }

    fn record(&self, call: &CallContext, arguments: Value, plans: &[FilePlan], w: &mut Tx) -> Result<Output> {
        (self.0.1)(call, parse(arguments)?, plans, w)
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

/// The variable in which a command gets the id of its call.
pub(crate) const CALL_ID: &str = "GHOST_CALL_ID";
/// The entry of `_meta` in which an MCP server gets it.
pub(crate) const CALL_ID_META: &str = "ghost/call_id";

impl AfterCrash {
    /// What becomes of a call of a tool with this declaration.
    pub(crate) fn of(idempotency: &Idempotency) -> Self {
        match idempotency {
            Idempotency::None => Self::Unknown,
            Idempotency::Key | Idempotency::Ask(_) => Self::Settled,
            Idempotency::Person => Self::WaitsForPerson,
        }
    }
}

/// The arguments of the question what became of `call`.
pub(crate) fn question(call: &CallContext) -> Value {
    json!({ "call_id": call.call_id })
}

/// Settles a call of the tool `full`. `asked` is what the toolbox says of it, if it was asked; `again` makes the call.
///
/// # Errors
/// `OutcomeUnknown` if it is not clear whether the call happened.
pub(crate) async fn settle<F>(full: &str, asked: Option<Result<Output>>, again: impl FnOnce() -> F) -> Result<Output>
where
    F: Future<Output = Result<Output>>,
{
    let unknown = |why: String| {
        refusal!(OutcomeUnknown, "{full} was running when the daemon stopped: it may or may not have happened: {why}")
            .hint("check which effects it had before you do it again")
    };
    match asked {
        None => again().await.map_err(|refusal| unknown(refusal.message)),
        Some(Err(refusal)) => Err(unknown(format!("it could not be asked: {}", refusal.message))),
        Some(Ok(answer)) => match happened(&answer.content) {
            Some((true, result)) => Ok(Output { content: result, ..answer }),
            // Nothing has happened yet, so a failure now is one of this call alone.
            Some((false, _)) => again().await,
            None => Err(unknown("its toolbox does not say whether it happened".to_owned())),
        },
    }
}

/// Whether a call happened, and its result, as `{ "happened": ..., "result": ... }` says. A server may answer with this as
/// structured content or as text.
fn happened(content: &Value) -> Option<(bool, Value)> {
    let content = content.get("structured").unwrap_or(content);
    let parsed;
    let content = match content {
        Value::String(text) => {
            parsed = serde_json::from_str::<Value>(text).ok()?;
            &parsed
        }
        other => other,
    };
    let result = content.get("result").cloned().unwrap_or_else(|| json!("it happened before the daemon stopped"));
    Some((content.get("happened")?.as_bool()?, result))
}

#[cfg(test)]
mod tests {
    use ghost_domain::{Code, Refusal};

    use super::*;

    async fn settled(asked: Option<Result<Value, Code>>, again: Result<Value, Code>) -> (Result<Value, Code>, bool) {
        let output = |result: Result<Value, Code>| match result {
            Ok(value) => Ok(Output::from(value)),
            Err(code) => Err(Refusal::new(code, "no")),
        };
        let mut made = false;
        let done = settle("box.pay", asked.map(output), || {
            made = true;
            std::future::ready(output(again))
        })
        .await;
        (done.map(|output| output.content).map_err(|refusal| refusal.code), made)
    }

    #[tokio::test]
    async fn a_call_is_made_again_only_if_that_is_harmless() {
        let (paid, unknown) = (json!("paid"), Err(Code::OutcomeUnknown));
        assert_eq!(settled(None, Ok(paid.clone())).await, (Ok(paid.clone()), true));
        assert_eq!(settled(None, Err(Code::Unavailable)).await, (unknown.clone(), true), "the first may have happened");
        let yes = json!({ "happened": true, "result": "paid" });
        assert_eq!(settled(Some(Ok(yes.clone())), Ok(json!("twice"))).await, (Ok(paid.clone()), false));
        let no = json!({ "happened": false });
        assert_eq!(settled(Some(Ok(no.clone())), Ok(paid.clone())).await, (Ok(paid), true));
        assert_eq!(settled(Some(Ok(no)), Err(Code::ExecFailed)).await, (Err(Code::ExecFailed), true));
        for unclear in [json!({}), json!("perhaps"), json!({ "happened": "yes" }), Value::Null] {
            assert_eq!(settled(Some(Ok(unclear)), Ok(json!("twice"))).await, (unknown.clone(), false));
        }
        assert_eq!(settled(Some(Err(Code::Timeout)), Ok(json!("twice"))).await, (unknown, false));
        for content in [json!(yes.to_string()), json!({ "structured": yes, "text": "x" })] {
            assert_eq!(happened(&content), Some((true, json!("paid"))));
        }
    }
}
