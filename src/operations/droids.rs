//! Droids: an agent starts one, steers it and ends it. [`close`] holds the end of one and what its
//! parent hears of it, [`family`] what ends droids from outside.
//!
//! A droid must never outlive its parent, and never act after its end.

pub(crate) mod close;
pub(crate) mod family;

pub use crate::lookup::may_act;
pub use close::{named, own};
pub use family::{end_overdue, kill};

use ghost_domain::droid::{self, ARCHETYPE, TASK_BYTES, TIMEOUT_MAX};
use ghost_domain::ids;

use crate::agents::{self, NewAgent, delete_because};
use crate::lookup::{agent_named, working_turn};
use crate::mail::{self, NewMessage};
use crate::prelude::*;
use close::emit;

/// Characters of a label.
const LABEL_CHARS: usize = 80;
/// The fact about the world that counts its droids.
const COUNT: &str = "droids";

/// Messages that join a turn at once.
const AT_ONCE: u32 = 16;

/// The parameters of a new droid.
#[derive(Clone, Debug)]
pub struct NewDroid {
    /// The agent that starts it.
    pub parent_id: AgentId,
    /// What it is to do.
    pub task: String,
    /// The output file, as its parent wrote it.
    pub output: String,
    /// How long it lives.
    pub mode: DroidMode,
    /// A short name for people.
    pub label: Option<String>,
    /// What it may use. The caller checks it; `depth` is set here.
    pub terms: DroidTerms,
    /// The chain that its work belongs to.
    pub chain: Chain,
}

/// Starts a droid.
///
/// # Errors
/// `RateLimited` if a limit of the world, the root or the parent is reached, or the droid would be too deep;
/// `InvalidArguments` for an unusable task or time; `Conflict` if the parent was told to stop.
pub fn spawn(w: &mut Tx, new: NewDroid) -> Result<Droid> {
    check(&new)?;
    let parent = agent_named(w, &new.parent_id)?;
    if parent.desired == Desired::Stopped {
        return Err(refusal!(Conflict, "{} was told to stop, and a droid ends with its parent", parent.agent_id)
            .hint("finish what you do without a droid"));
    }
    let limits = w.ctx.limits();
    let depth = match parent.agent_id.is_droid() {
        true => w.droid_get(&parent.agent_id)?.map_or(1, |above| above.terms.depth).saturating_add(1),
        false => 1,
    };
    within("droid_depth_max", depth, limits.droid_depth_max, "droids above one another")?;
    let live = w.droids_live_count(&parent.agent_id)?;
    let own = live.of_parent.saturating_add(1);
    within("droids_per_agent", own, limits.droids_per_agent, "droids of one agent at work")?;
    within("droids_max", live.all.saturating_add(1), limits.droids_max, "droids at work in this world")?;
    let droid_id = next_id(w)?;
    let label = new.label.as_deref().map(|label| clip(&one_line(label), LABEL_CHARS)).filter(|label| !label.is_empty());
    let terms = DroidTerms { depth, ..new.terms };
    let now = w.ctx.now();
    let droid = Droid {
        output_path: format!("{}/{}", droid_id.home(), droid::output_name(&new.output)),
        droid_id,
        parent_id: parent.agent_id,
        label,
        task: new.task,
        mode: new.mode,
        state: DroidState::Pending,
        terms,
        root_id: new.chain.root_id,
        conversation_id: new.chain.conversation_id,
        hop: new.chain.hop,
        created_at: now,
        deadline_at: now.plus(Limits::seconds(match new.mode {
            DroidMode::Run => new.terms.turn_seconds,
            DroidMode::Session => limits.droid_idle_seconds,
        })),
        ended_at: None,
        error: None,
        result: None,
        used: DroidUse::default(),
    };
    begin(w, droid, new.chain)
}

/// Writes the records of a droid and delivers its task.
fn begin(w: &mut Tx, droid: Droid, chain: Chain) -> Result<Droid> {
    let by = Party::Agent(droid.parent_id.clone());
    let overrides = serde_json::to_value(&droid.terms)
        .map_err(|error| refusal!(Internal, "a droid's terms cannot be written: {error}"))?;
    // Before the agent, whose mail is checked against it.
    w.droid_put(&droid)?;
    let agent = NewAgent {
        agent_id: droid.droid_id.clone(),
        archetype: ARCHETYPE.to_owned(),
        name: droid.label.clone().unwrap_or_else(|| droid.droid_id.to_string()),
        team: None,
        kind: AgentKind::Droid,
        desired: Desired::Running,
        overrides,
        daily_money: None,
        heartbeat: None,
        owner: None,
        goal: None,
        chain,
    };
    agents::create(w, &by, agent)?;
    let body =
        format!("{}\n\nYour id: {}\nExpected output: {}", droid.task.trim_end(), droid.droid_id, droid.output_path);
    mail::deliver(w, NewMessage::new(&droid.droid_id, by, Kind::System, body, chain).subject("Your task"))?;
    let facts = json!({
        "mode": droid.mode, "depth": droid.terms.depth, "output_path": droid.output_path, "tools": droid.terms.tools,
        "task": w.ctx.excerpt(&droid.task, 400), "root_id": droid.root_id,
    });
    emit(w, EventKind::DroidSpawned, &droid, facts)?;
    Ok(droid)
}

fn check(new: &NewDroid) -> Result<()> {
    let (bytes, seconds) = (new.task.len(), new.terms.turn_seconds);
    let (field, what, hint) = if new.task.trim().is_empty() {
        ("task", "the task is empty".to_owned(), "say what the droid is to do and what its result is")
    } else if bytes > TASK_BYTES {
        let hint = "write the long part to a workspace file and name its path: a droid reads every file";
        ("task", format!("the task has {bytes} bytes; the limit is {TASK_BYTES}"), hint)
    } else if !(1..=TIMEOUT_MAX).contains(&seconds) {
        let what = format!("{seconds} s is no time for a droid; it is 1 to {TIMEOUT_MAX}");
        ("timeout_seconds", what, "give it smaller work, or split it among several droids")
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::InvalidArguments, what).hint(hint).details(json!({ "field": field })))
}

fn within(limit: &str, wanted: u32, most: u32, what: &str) -> Result<()> {
    if wanted <= most {
        return Ok(());
    }
    Err(refusal!(RateLimited, "this would be {wanted} {what}; the limit is {most}")
        .hint("wait for one to end, end one that you do not need, or do the work yourself")
        .details(json!({ "limit": limit, "value": most })))
}

/// An id that nothing ever had. So nothing must be looked for before it is used.
fn next_id(w: &mut StoreTx) -> Result<AgentId> {
    let last = match w.meta_get(COUNT)? {
        Some(text) => text.parse().map_err(|error| refusal!(Internal, "the count of droids is `{text}`: {error}"))?,
        None => 0_u32,
    };
    let Some(n) = last.checked_add(1) else {
        return Err(refusal!(RateLimited, "this world has had {last} droids, which is the limit")
            .hint("do the work yourself, or ask an operator to begin a new world"));
    };
    w.meta_put(COUNT, &n.to_string())?;
    ids::droid_text(n).parse()
}

/// Gives a droid guidance, or more work in mode `session`. A droid at work reads it before its next model call. `chain` is that
/// of the call of an agent: from now on the droid works for its root, and no link of the chain is lost, so that two agents
/// cannot keep each other at work without end. An operator has none.
///
/// # Errors
/// `Conflict` if it has ended or works for another conversation; those of [`own`] and of [`mail::deliver`].
pub fn steer(w: &mut Tx, by: &Party, droid_id: &str, text: &str, chain: Option<Chain>) -> Result<Droid> {
    let mut droid = own(w, by, droid_id)?;
    if droid.state.is_over() {
        return Err(refusal!(Conflict, "{} has ended: it is {}", droid.droid_id, droid.state)
            .hint("check its result, and start another droid if there is more to do"));
    }
    if text.trim().is_empty() {
        return Err(refusal!(InvalidArguments, "the message is empty").details(json!({ "field": "message" })));
    }
    if let Some(chain) = chain {
        if chain.conversation_id != droid.conversation_id {
            return Err(refusal!(Conflict, "{} works for another conversation", droid.droid_id)
                .hint("start a droid for this one"));
        }
        droid.root_id = chain.root_id;
        droid.hop = droid.hop.max(chain.hop);
    }
    let chain = Chain { root_id: droid.root_id, hop: droid.hop, conversation_id: droid.conversation_id };
    let guidance = NewMessage::new(&droid.droid_id, by.clone(), Kind::System, text, chain).subject("Guidance");
    mail::deliver(w, guidance)?;
    if droid.mode == DroidMode::Session {
        droid.deadline_at = w.ctx.now().plus(Limits::seconds(w.ctx.limits().droid_idle_seconds));
    }
    w.droid_put(&droid)?;
    let facts = json!({ "by": by, "message": w.ctx.excerpt(text, 400) });
    emit(w, EventKind::DroidSteered, &droid, facts)?;
    Ok(droid)
}

/// Whether mail has come for a droid since its turn took its mail. It reads nothing that the writer does not know.
///
/// # Errors
/// If the store cannot be read.
pub fn has_guidance(w: &mut StoreTx, droid_id: &AgentId) -> Result<bool> {
    Ok(w.inbox_depth(droid_id)? > 0)
}

/// Takes the mail that has come for the turn's droid. It joins the turn in the transaction that journals what the model
/// reads of it, so that a resumed turn shows it once and only once. Returns what the model reads of it, in the words of `shown`; `None`
/// if there was none.
///
/// # Errors
/// If the turn has ended, or another daemon owns its agent.
pub fn take_guidance(
    w: &mut Tx,
    turn_id: TurnId,
    shown: &(dyn Fn(&[Envelope]) -> String + Send + Sync),
) -> Result<Option<String>> {
    let ctx = w.ctx;
    let turn = working_turn(w, turn_id)?;
    let joined = mail::join(w, &turn.agent_id, turn_id, AT_ONCE)?;
    if joined.mail.is_empty() {
        return Ok(None);
    }
    let text = shown(&joined.mail);
    let messages = mail::ids(&joined.mail);
    w.journal_append(turn_id, &Step::MailJoined { messages }, ctx.now())?;
    w.journal_append(turn_id, &Step::Note { text: text.clone() }, ctx.now())?;
    Ok(Some(text))
}

/// Deletes the agents of droids that ended some time ago. Their records and files stay. Returns how many.
/// The next round tries again what the store refused.
pub async fn archive(store: &Store, ctx: &Context, stopped: Vec<AgentId>) -> usize {
    let before = ctx.now().minus(Limits::seconds(ctx.limits().droid_archive_seconds));
    let mut archived = 0;
    for droid_id in stopped {
        let gone = ctx.write(store, move |w| {
            let droid = w.droid_get(&droid_id)?;
            // A record that is gone was old enough to be deleted.
            if droid.is_some_and(|droid| droid.ended_at.is_none_or(|at| at > before)) {
                return Ok(false);
            }
            let agent = w.agent_get(&droid_id)?;
            let is_done = agent.is_some_and(|agent| {
                agent.kind == AgentKind::Droid && agent.status == AgentStatus::Stopped && !agent.is_deleted()
            });
            if is_done {
                delete_because(w, &Party::System, &droid_id, Some("it ended some time ago"))?;
            }
            Ok::<_, Refusal>(is_done)
        });
        match gone.await {
            Ok(is_gone) => archived += usize::from(is_gone),
            Err(refusal) => tracing::warn!(%refusal, "the agent of an ended droid could not be deleted"),
        }
    }
    archived
}
