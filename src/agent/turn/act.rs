//! Acting: the calls of one answer. Effects in the store commit one after another in the model's order; reads, outside
//! calls and asks that stand next to each other run at the same time (DESIGN.md section 2, "Journal").

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ghost_commons::asks;
use ghost_commons::turns::{self, CallStart, Ending};
use ghost_domain::journal::{CallOutcome, Effect};
use ghost_domain::transcript::{Block, Message, Role};
use ghost_domain::{Activity, AskId, CallId, Code, Limits, Refusal};
use ghost_store::{StoreError, Writes};
use ghost_tools::loop_guard::{Verdict, digest_of};
use ghost_tools::tool::{ErasedAsk, ErasedOutside, ErasedRead, ErasedWorld};
use ghost_tools::view::refused;
use ghost_tools::{Output, Run, Tool};
use tokio::sync::Semaphore;

use super::Runner;
use super::wait::within;
use crate::transcript::{Begun, OpenCall};

/// A call that was checked and may run.
pub(super) struct Checked {
    pub(super) call: OpenCall,
    pub(super) tool: Arc<Tool>,
    pub(super) alias: Option<String>,
    pub(super) run: Run,
}

/// What a call came to, and how it is to be recorded.
pub(super) enum Done {
    /// The outcome is in the journal.
    Recorded(CallOutcome),
    /// The call is refused without having run.
    Refused(Refusal),
}

/// Refusals inside a store transaction, told apart: the tool's own is the model's to read, the turn's ends the work.
pub(super) enum InTransaction {
    Tool(Refusal),
    Turn(Refusal),
}

impl From<StoreError> for InTransaction {
    fn from(error: StoreError) -> Self {
        Self::Turn(error.into())
    }
}

impl Runner {
    /// Runs the open calls to their results and puts these before the model.
    pub(super) async fn act(&mut self) -> Result<Option<Ending>, Refusal> {
        let order = self.last_calls();
        let outcomes = self.run_open().await?;
        self.close_round(&order, outcomes).await
    }

    /// Runs the one call of an operator's turn.
    pub(super) async fn act_once(&mut self) -> Result<CallOutcome, Refusal> {
        let outcomes = self.run_open().await?;
        let outcome = outcomes.into_iter().next().map(|(_, outcome)| outcome);
        outcome.ok_or_else(|| Refusal::new(Code::Internal, "the call has no outcome"))
    }

    async fn run_open(&mut self) -> Result<Vec<(String, CallOutcome)>, Refusal> {
        self.show(Activity::Acting);
        let calls = std::mem::take(&mut self.open);
        let most = self.limits().calls_per_answer as usize;
        let mut group = Vec::new();
        let mut outcomes = Vec::new();
        for (index, call) in calls.into_iter().enumerate() {
            if index >= most {
                let refusal =
                    Refusal::new(Code::TooLarge, format!("one answer may make {most} calls; this one is beyond that"))
                        .hint("make it in your next answer");
                outcomes.push(self.refuse(&call, refusal).await?);
                continue;
            }
            match self.check(call) {
                Err((call, refusal)) => outcomes.push(self.refuse(&call, refusal).await?),
                Ok(checked) => match checked.run.effect() {
                    Effect::World | Effect::File => {
                        outcomes.append(&mut self.run_group(std::mem::take(&mut group)).await?);
                        outcomes.push(self.run_one(checked).await?);
                    }
                    Effect::Read | Effect::Outside | Effect::Wait => group.push(checked),
                },
            }
        }
        outcomes.append(&mut self.run_group(group).await?);
        Ok(outcomes)
    }

    /// The calls of the model's last answer.
    fn last_calls(&self) -> Vec<(String, String, serde_json::Value)> {
        let last = self.messages.iter().rev().find(|message| message.role == Role::Assistant);
        last.map(|message| {
            message.calls().map(|(id, name, arguments)| (id.to_owned(), name.to_owned(), arguments.clone())).collect()
        })
        .unwrap_or_default()
    }

    /// Looks a call up, checks its size and its schema, and asks the loop guard. Nothing runs before all have agreed.
    fn check(&mut self, call: OpenCall) -> Result<Checked, (OpenCall, Refusal)> {
        let (tool, alias) = match self.registry.find(&call.name) {
            Ok(found) => found,
            Err(refusal) => return Err((call, refusal)),
        };
        let most = self.limits().arguments_bytes as usize;
        let size = call.arguments.to_string().len();
        if size > most {
            let refusal =
                Refusal::new(Code::TooLarge, format!("the arguments have {size} bytes; at most {most} are taken"))
                    .hint("write in several calls");
            return Err((call, refusal));
        }
        // What an alias presets and what a null means is settled before the schema is asked; the journal keeps what the
        // model wrote, the ledger what ran.
        let arguments = tool.normalise(alias.as_deref(), call.arguments.clone());
        if let Err(refusal) = tool.validate(&arguments) {
            return Err((call, refusal));
        }
        let raw = call.arguments.clone();
        let call = OpenCall { arguments, ..call };
        if call.begun.is_none() {
            match self.guard.before(&tool.spec.name, &raw) {
                Verdict::Fine | Verdict::Warn(_) => {}
                Verdict::Block(refusal) => return Err((call, refusal)),
                Verdict::Stop(refusal) => {
                    self.looped = Some(refusal.clone());
                    return Err((call, refusal));
                }
            }
        }
        let run = tool.run.resolve(&call.arguments);
        Ok(Checked { call, tool, alias, run })
    }

    /// Records a refusal of a call that may not run. One that had begun before a crash is past refusing: a question goes
    /// on waiting, and of an effect outside nobody knows whether it happened.
    async fn refuse(&self, call: &OpenCall, refusal: Refusal) -> Result<(String, CallOutcome), Refusal> {
        let name =
            self.registry.find(&call.name).map_or_else(|_| call.name.clone(), |(tool, _)| tool.spec.name.clone());
        let refusal = match &call.begun {
            Some(Begun { call_id, ask_id: Some(ask_id), .. }) => {
                let outcome = self.wait_for(*call_id, *ask_id, &call.id, &name).await?;
                return Ok((call.id.clone(), outcome));
            }
            Some(_) => outcome_unknown(&name),
            None => refusal,
        };
        let call_id = call.begun.as_ref().map(|begun| begun.call_id);
        let outcome = self.record_refusal(call, &name, None, Effect::Read, call_id, refusal).await?;
        Ok((call.id.clone(), outcome))
    }

    /// Runs calls that may overlap. Only the calls that do something take a place; waiting for an answer takes none.
    async fn run_group(&mut self, group: Vec<Checked>) -> Result<Vec<(String, CallOutcome)>, Refusal> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let asking = group.iter().all(|checked| checked.run.effect() == Effect::Wait);
        self.show(if asking { Activity::Asking } else { Activity::Acting });
        let clock = self.clock();
        let places = Semaphore::new(self.limits().calls_parallel as usize);
        let this: &Self = self;
        let runs = group.iter().map(|checked| async {
            let began = clock.now();
            let outcome = match &checked.run {
                Run::Ask(tool) => this.ask(checked, tool).await?,
                Run::Read(tool) => {
                    // Never closed, so acquiring cannot fail; without a place the call would only start sooner.
                    let _place = places.acquire().await.ok();
                    this.read(checked, tool).await?
                }
                Run::Outside(tool) => {
                    let _place = places.acquire().await.ok();
                    this.outside(checked, tool).await?
                }
                Run::World(_) | Run::File(_) | Run::Choose(_) => Done::Refused(Refusal::new(
                    Code::Internal,
                    format!("{} cannot run beside other calls", checked.tool.spec.name),
                )),
            };
            // Waiting for an answer is no work of this turn's.
            let waited = checked.run.effect() == Effect::Wait;
            let worked = if waited { Duration::ZERO } else { clock.now().since(began) };
            this.recorded(checked, outcome).await.map(|outcome| (outcome, worked))
        });
        let outcomes: Vec<Result<_, Refusal>> = join_all(runs).await;
        let (outcomes, worked): (Vec<_>, Vec<Duration>) =
            outcomes.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        self.worked += worked.into_iter().max().unwrap_or_default();
        self.show(Activity::Acting);
        Ok(outcomes)
    }

    /// Runs a call that must not overlap.
    async fn run_one(&mut self, checked: Checked) -> Result<(String, CallOutcome), Refusal> {
        let clock = self.clock();
        let began = clock.now();
        let done = match &checked.run {
            Run::World(tool) => self.in_world(&checked, tool).await?,
            Run::File(tool) => self.file(&checked, tool).await?,
            Run::Read(_) | Run::Outside(_) | Run::Ask(_) | Run::Choose(_) => {
                Done::Refused(Refusal::new(Code::Internal, format!("{} cannot run alone", checked.tool.spec.name)))
            }
        };
        self.worked += clock.now().since(began);
        self.recorded(&checked, done).await
    }

    async fn recorded(&self, checked: &Checked, done: Done) -> Result<(String, CallOutcome), Refusal> {
        let outcome = match done {
            Done::Recorded(outcome) => outcome,
            Done::Refused(refusal) => {
                let name = &checked.tool.spec.name;
                let begun = checked.call.begun.as_ref().map(|begun| begun.call_id);
                let alias = checked.alias.clone();
                self.record_refusal(&checked.call, name, alias, checked.run.effect(), begun, refusal).await?
            }
        };
        Ok((checked.call.id.clone(), outcome))
    }

    /// An effect in the store: applied and recorded in one transaction, or refused and only that recorded.
    async fn in_world(&self, checked: &Checked, tool: &Arc<dyn ErasedWorld>) -> Result<Done, Refusal> {
        let start = self.call_start(checked, CallId(self.engine.office.cx.id()), None);
        let call_cx = self.call_cx(start.call_id, &start.id);
        let (cx, tool, turn_id) = (self.engine.office.cx.clone(), Arc::clone(tool), self.turn.turn_id);
        let done = self
            .engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &cx, turn_id).await.map_err(InTransaction::Turn)?;
                    turns::record_call_start(w, &cx, &turn, &start).await.map_err(InTransaction::Turn)?;
                    let output = tool.apply(&call_cx, start.arguments.clone(), w).await.map_err(InTransaction::Tool)?;
                    record_end(w, &cx, &turn, start.call_id, &start.id, &start.tool, output)
                        .await
                        .map_err(InTransaction::Turn)
                })
            })
            .await;
        match done {
            Ok(outcome) => Ok(Done::Recorded(outcome)),
            Err(InTransaction::Tool(refusal)) => Ok(Done::Refused(refusal)),
            Err(InTransaction::Turn(refusal)) => Err(refusal),
        }
    }

    /// Changes nothing: run, then recorded at once.
    async fn read(&self, checked: &Checked, tool: &Arc<dyn ErasedRead>) -> Result<Done, Refusal> {
        let call_id = CallId(self.engine.office.cx.id());
        let call_cx = self.call_cx(call_id, &checked.call.id);
        let began = self.clock().now();
        let result = self.in_time(checked, tool.run(&call_cx, checked.call.arguments.clone())).await;
        let start = CallStart { begun_at: Some(began), ..self.call_start(checked, call_id, None) };
        self.record_whole(start, result).await.map(Done::Recorded)
    }

    /// An effect outside: recorded as started before it runs. One that a crash cut off is not run again (promise 2).
    async fn outside(&self, checked: &Checked, tool: &Arc<dyn ErasedOutside>) -> Result<Done, Refusal> {
        if checked.call.begun.is_some() {
            return Ok(Done::Refused(outcome_unknown(&checked.tool.spec.name)));
        }
        let start = self.call_start(checked, CallId(self.engine.office.cx.id()), None);
        let call_id = start.call_id;
        self.record_start(start).await?;
        let call_cx = self.call_cx(call_id, &checked.call.id);
        let result = self.in_time(checked, tool.run(&call_cx, checked.call.arguments.clone())).await;
        self.record_result(call_id, &checked.call.id, &checked.tool.spec.name, result).await.map(Done::Recorded)
    }

    /// An ask: opened with its record; the transaction that closes it records its end.
    async fn ask(&self, checked: &Checked, tool: &Arc<dyn ErasedAsk>) -> Result<Done, Refusal> {
        let (call_id, ask_id) = match &checked.call.begun {
            // Goes on waiting for the same correlation id (promise 2).
            Some(Begun { call_id, ask_id: Some(ask_id), .. }) => (*call_id, *ask_id),
            _ => {
                let start = self.call_start(checked, CallId(self.engine.office.cx.id()), None);
                let call_cx = self.call_cx(start.call_id, &start.id);
                let (cx, tool, turn_id) = (self.engine.office.cx.clone(), Arc::clone(tool), self.turn.turn_id);
                let opened = self
                    .engine
                    .office
                    .store
                    .write(move |w| {
                        Box::pin(async move {
                            let turn = turns::working_turn(w, &cx, turn_id).await.map_err(InTransaction::Turn)?;
                            let ask =
                                tool.open(&call_cx, start.arguments.clone(), w).await.map_err(InTransaction::Tool)?;
                            let start = CallStart { ask_id: Some(ask.ask_id), ..start };
                            turns::record_call_start(w, &cx, &turn, &start).await.map_err(InTransaction::Turn)?;
                            Ok((start.call_id, ask.ask_id))
                        })
                    })
                    .await;
                match opened {
                    Ok(opened) => opened,
                    Err(InTransaction::Tool(refusal)) => return Ok(Done::Refused(refusal)),
                    Err(InTransaction::Turn(refusal)) => return Err(refusal),
                }
            }
        };
        self.wait_for(call_id, ask_id, &checked.call.id, &checked.tool.spec.name).await.map(Done::Recorded)
    }

    async fn wait_for(&self, call_id: CallId, ask_id: AskId, id: &str, tool: &str) -> Result<CallOutcome, Refusal> {
        let (clock, turn_id) = (self.clock(), self.turn.turn_id);
        loop {
            // Armed before looking, so that a bell between the two is not missed.
            let bell = self.bench.bell.notified();
            tokio::pin!(bell);
            bell.as_mut().enable();
            let (deadline, ended) = self
                .engine
                .office
                .store
                .read(move |r| {
                    Box::pin(async move {
                        let deadline = r.ask_get(ask_id).await?.map(|ask| (ask.deadline_at, ask.status));
                        let ended = r.journal_of(turn_id).await?.into_iter().find_map(|row| match row.step {
                            ghost_domain::journal::Step::CallFinished { call_id: id, outcome, .. } if id == call_id => {
                                Some(outcome)
                            }
                            _ => None,
                        });
                        Ok::<_, Refusal>((deadline, ended))
                    })
                })
                .await?;
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
            let Some((deadline, ghost_domain::AskStatus::Open)) = deadline else {
                // Closed without a word to this turn: the turn itself was ended, and this is refused; or it was set aside
                // with its question and is tried again.
                let refusal = Refusal::new(Code::Unavailable, "this question was given up when the turn was set aside")
                    .hint("ask again if you still need the answer");
                return self.record_result(call_id, id, tool, Err(refusal)).await;
            };
            tokio::select! {
                biased;
                () = bell => {}
                () = clock.sleep_until(deadline) => {
                    let cx = self.engine.office.cx.clone();
                    self.engine
                        .office
                        .store
                        .write(move |w| Box::pin(async move { asks::expire(w, &cx, ask_id).await }))
                        .await?;
                }
            }
        }
    }

    /// Runs a call under its deadline.
    async fn in_time(
        &self,
        checked: &Checked,
        work: impl Future<Output = Result<Output, Refusal>>,
    ) -> Result<Output, Refusal> {
        let seconds = checked.tool.seconds.unwrap_or(self.limits().call_seconds);
        match within(&*self.clock(), Limits::seconds(seconds), work).await {
            Some(result) => result,
            None => {
                Err(Refusal::new(Code::Timeout, format!("{} did not end within {seconds} s", checked.tool.spec.name))
                    .hint("it was cancelled; try something smaller, or check what it left behind"))
            }
        }
    }

    pub(super) fn call_start(
        &self,
        checked: &Checked,
        call_id: CallId,
        file: Option<ghost_domain::journal::FilePlan>,
    ) -> CallStart {
        CallStart {
            call_id,
            id: checked.call.id.clone(),
            tool: checked.tool.spec.name.clone(),
            alias: checked.alias.clone(),
            arguments: checked.call.arguments.clone(),
            effect: checked.run.effect(),
            file,
            ask_id: None,
            begun_at: None,
        }
    }

    pub(super) async fn record_start(&self, start: CallStart) -> Result<(), Refusal> {
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        self.engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &cx, turn_id).await?;
                    turns::record_call_start(w, &cx, &turn, &start).await
                })
            })
            .await
    }

    /// Records the end of a call that was recorded as started.
    pub(super) async fn record_result(
        &self,
        call_id: CallId,
        id: &str,
        tool: &str,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        let (id, name) = (id.to_owned(), tool.to_owned());
        self.engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &cx, turn_id).await?;
                    record_either(w, &cx, &turn, call_id, &id, &name, result).await
                })
            })
            .await
    }

    /// Records start and end of a call in one transaction.
    async fn record_whole(&self, start: CallStart, result: Result<Output, Refusal>) -> Result<CallOutcome, Refusal> {
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        self.engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &cx, turn_id).await?;
                    turns::record_call_start(w, &cx, &turn, &start).await?;
                    record_either(w, &cx, &turn, start.call_id, &start.id, &start.tool, result).await
                })
            })
            .await
    }

    /// Records a refusal: of a call that never ran, or, with `begun`, of one that was recorded as started.
    async fn record_refusal(
        &self,
        call: &OpenCall,
        tool: &str,
        alias: Option<String>,
        effect: Effect,
        begun: Option<CallId>,
        refusal: Refusal,
    ) -> Result<CallOutcome, Refusal> {
        // The journal need not hear that a call begins which is refused in the same breath.
        let effect = if begun.is_some() { effect } else { Effect::Read };
        let start = CallStart {
            call_id: begun.unwrap_or_else(|| CallId(self.engine.office.cx.id())),
            id: call.id.clone(),
            tool: tool.to_owned(),
            alias,
            arguments: call.arguments.clone(),
            effect,
            file: None,
            ask_id: None,
            begun_at: None,
        };
        if begun.is_none() {
            return self.record_whole(start, Err(refusal)).await;
        }
        let (cx, turn_id) = (self.engine.office.cx.clone(), self.turn.turn_id);
        self.engine
            .office
            .store
            .write(move |w| {
                Box::pin(async move {
                    let turn = turns::working_turn(w, &cx, turn_id).await?;
                    record_either(w, &cx, &turn, start.call_id, &start.id, &start.tool, Err(refusal)).await
                })
            })
            .await
    }

    /// Shows the results to the model, in its own order, and lets the loop guard judge them.
    async fn close_round(
        &mut self,
        order: &[(String, String, serde_json::Value)],
        outcomes: Vec<(String, CallOutcome)>,
    ) -> Result<Option<Ending>, Refusal> {
        let mut known: std::collections::BTreeMap<String, CallOutcome> = outcomes.into_iter().collect();
        // The guard was rebuilt from the journal, so it has seen what was answered before a crash.
        let fresh: std::collections::BTreeSet<String> = known.keys().cloned().collect();
        if order.iter().any(|(id, ..)| !known.contains_key(id)) {
            // Some of them were answered before a crash.
            let turn_id = self.turn.turn_id;
            let rows = self
                .engine
                .office
                .store
                .read(move |r| Box::pin(async move { r.journal_of(turn_id).await }))
                .await
                .map_err(Refusal::from)?;
            for row in rows {
                match row.step {
                    // All that belongs to the last answer stands behind it, what has just been recorded included.
                    ghost_domain::journal::Step::ModelAnswered { .. } => known.clear(),
                    ghost_domain::journal::Step::CallFinished { id, outcome, .. } => {
                        known.insert(id, outcome);
                    }
                    _ => {}
                }
            }
        }
        let mut blocks = Vec::with_capacity(order.len());
        let mut stop = self.looped.take();
        let mut warnings = Vec::new();
        for (id, name, arguments) in order {
            let Some(outcome) = known.remove(id) else { continue };
            let tool = self.registry.find(name).map_or_else(|_| name.clone(), |(tool, _)| tool.spec.name.clone());
            // What the guard itself refused, it has counted already.
            let guarded = outcome.refusal.as_ref().is_some_and(|refusal| refusal.code == Code::LoopGuard);
            if !guarded && fresh.contains(id) {
                match self.guard.observe(&tool, arguments, digest_of(&outcome)) {
                    Verdict::Fine | Verdict::Block(_) => {}
                    Verdict::Warn(text) => warnings.push(text),
                    Verdict::Stop(refusal) => stop = Some(refusal),
                }
            }
            let (content, is_error) = self.view(&tool, &outcome);
            blocks.push(Block::ToolResult { id: id.clone(), name: name.clone(), content, is_error });
        }
        self.messages.push(Message { role: Role::Tool, blocks });
        if let Some(refusal) = stop {
            return Ok(Some(Ending::Failed(refusal)));
        }
        if !warnings.is_empty() {
            let text = warnings.join("\n");
            let (cx, turn_id, note) = (self.engine.office.cx.clone(), self.turn.turn_id, text.clone());
            self.engine
                .office
                .store
                .write(move |w| Box::pin(async move { turns::note(w, &cx, turn_id, &note).await }))
                .await?;
            self.messages.push(Message::text(Role::User, text));
        }
        Ok(None)
    }
}

/// Records a result with the events that go with it.
pub(super) async fn record_end(
    w: &mut dyn Writes,
    cx: &ghost_commons::Cx,
    turn: &ghost_domain::Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    output: Output,
) -> Result<CallOutcome, Refusal> {
    for event in output.events {
        cx.emit(w, event).await?;
    }
    let outcome = CallOutcome { content: output.content, refusal: None, truncated: output.truncated };
    turns::record_call_end(w, cx, turn, call_id, id, tool, &outcome).await?;
    Ok(outcome)
}

async fn record_either(
    w: &mut dyn Writes,
    cx: &ghost_commons::Cx,
    turn: &ghost_domain::Turn,
    call_id: CallId,
    id: &str,
    tool: &str,
    result: Result<Output, Refusal>,
) -> Result<CallOutcome, Refusal> {
    match result {
        Ok(output) => record_end(w, cx, turn, call_id, id, tool, output).await,
        Err(refusal) => {
            let outcome = refused(refusal);
            turns::record_call_end(w, cx, turn, call_id, id, tool, &outcome).await?;
            Ok(outcome)
        }
    }
}

/// What the model is told of an outside call that a crash cut off.
pub(super) fn outcome_unknown(tool: &str) -> Refusal {
    Refusal::new(
        Code::OutcomeUnknown,
        format!("{tool} was running when the daemon stopped: it may or may not have happened"),
    )
    .hint("check what it left behind before you do it again")
}
