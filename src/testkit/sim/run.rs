//! One simulated world from its first boot to its rest: lives that end in a crash, in an orderly stop, or at the end.

use std::sync::Arc;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_domain::ports::Ports;
use ghost_domain::{AgentId, AgentStatus, Clock, Code, Desired, Event, Refusal, Timestamp};
use ghost_provider::{Provider, Providers};
use ghost_store::memory::MemoryDisk;
use ghost_store::{Store, StoreError};
use ghost_tools::workspace::Workspace;
use ghost_world::{Boot, World, boot};
use tempfile::TempDir;

use super::chance::{Dice, SimIds, SimRng};
use super::check::Evidence;
use super::clock::{Bounds, SimClock};
use super::error::SimError;
use super::facts::Facts;
use super::model::SimModel;
use super::operator::Operator;
use super::random_actions::Scene;
use super::tools::{self, Book};
use super::{check, plan, slow_store};

/// Where virtual time begins.
const START: Timestamp = Timestamp(1_795_298_880_000);

/// Virtual time that a world may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(900);

/// Boots that one run may take: a disk that stays full makes some of them fail.
const BOOTS_MAX: u32 = 60;

/// The troubles of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Lives of the daemon; all but the last are ended in the middle of things.
    pub lives: u32,
    /// Things that operators do in one life.
    pub actions: u32,
    /// Model requests in 100 that end in a fault.
    pub provider_faults: u64,
    /// Whether storage may fail.
    pub storage_faults: bool,
    /// Poisoned messages.
    pub poison: u32,
    /// For how long the model answers nobody, and how long after the beginning that starts.
    pub outage: Option<(Duration, Duration)>,
}

impl Course {
    /// The course that a seed takes by itself.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "course");
        Self {
            lives: u32::try_from(dice.between(2, 6)).unwrap_or(2),
            actions: u32::try_from(dice.between(4, 14)).unwrap_or(4),
            provider_faults: *dice.pick(&[0, 5, 12, 25]).unwrap_or(&5),
            storage_faults: dice.chance(60),
            poison: u32::try_from(dice.below(3)).unwrap_or(0),
            outage: dice.chance(40).then(|| {
                let begins = Duration::from_secs(dice.between(3, 60));
                // Mostly a minute or so, and sometimes a night.
                let lasts = match dice.below(10) {
                    0 => dice.between(3_600, 5 * 3_600),
                    _ => dice.between(10, 240),
                };
                (begins, Duration::from_secs(lasts))
            }),
        }
    }

    /// One life without any trouble.
    #[must_use]
    pub fn calm() -> Self {
        Self { lives: 1, actions: 12, provider_faults: 0, storage_faults: false, poison: 0, outage: None }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The whole feed, from its first event.
    pub event_log: Vec<Event>,
    /// What was found broken; empty if every promise was kept.
    pub wrongs: Vec<String>,
    /// Boots of the daemon.
    pub boots: u32,
    /// Requests to the model.
    pub model_requests: usize,
    /// Executions of the outside tool.
    pub outside_effects: usize,
    /// Virtual time that it took.
    pub virtual_time: Duration,
}

/// How a life ended.
enum End {
    /// The daemon is gone, one way or the other.
    Gone,
    /// The world is at rest.
    Rest,
}

/// A simulated world.
pub struct SimWorld {
    seed: u64,
    course: Course,
    plan: Plan,
    dir: TempDir,
    clock: SimClock,
    disk: MemoryDisk,
    book: Book,
    ports: Ports,
    model: Arc<SimModel>,
    operator: Operator,
    dice: Dice,
}

impl SimWorld {
    /// Runs the world of `seed` on `course` to its rest, and checks every promise.
    ///
    /// # Errors
    /// Only when the machine cannot run it. What the world does wrong is in the outcome.
    pub fn run(seed: u64, course: Course) -> Result<Outcome, SimError> {
        let (sim, boots) = Self::to_its_rest(seed, course)?;
        sim.conclude(boots)
    }

    /// Runs a world, and gives it with the number of its boots.
    fn to_its_rest(seed: u64, course: Course) -> Result<(Self, u32), SimError> {
        tools::hush_planned_panics();
        let mut sim = Self::new(seed, course)?;
        let mut boots = 0;
        let mut life = 1;
        loop {
            boots += 1;
            let last = life >= course.lives;
            if boots > BOOTS_MAX {
                sim.book.wrong(format!("the world did not come to rest in {BOOTS_MAX} boots"));
                break;
            }
            match sim.live(last)? {
                Ok(End::Rest) => break,
                Ok(End::Gone) => life += 1,
                Err(stuck) => {
                    sim.book.wrong(format!("stuck in boot {boots}: {stuck}"));
                    break;
                }
            }
        }
        Ok((sim, boots))
    }

    fn new(seed: u64, course: Course) -> Result<Self, SimError> {
        let dir = tempfile::tempdir()?;
        let plan = plan::plan(seed, dir.path())?;
        let outage = course.outage.map(|(begins, lasts)| (START.plus(begins), START.plus(begins).plus(lasts)));
        let out = course.outage.map_or(Duration::ZERO, |(_, lasts)| lasts);
        // Even a night in which nothing can be done has its rounds and probes.
        let steps = 50_000 + out.as_secs() * 10;
        let clock = SimClock::new(START, Bounds { time: Duration::from_secs(2_400) + out, steps });
        let (disk, book) = (MemoryDisk::new(), Book::default());
        let named: Vec<AgentId> = plan.agents.iter().map(|agent| agent.agent_id.clone()).collect();
        let passing: Vec<AgentId> = ["d0", "d1"].into_iter().map(str::parse).collect::<Result<_, _>>()?;
        let names = named.iter().chain(&passing).map(ToString::to_string).chain(["nobody".to_owned()]).collect();
        let scene = Arc::new(Scene { names });
        let model = SimModel::new(seed, clock.clone(), book.clone(), scene, course.provider_faults).out(outage);
        let ground = (clock.clone(), disk.clone(), book.clone());
        let operator = Operator::new(seed, ground, named, passing, (course.storage_faults, course.poison));
        let ports = Ports {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(SimIds::new(seed)),
            rng: Arc::new(SimRng::new(seed)),
        };
        let (model, dice) = (Arc::new(model), Dice::new(seed, "lives"));
        Ok(Self { seed, course, plan, dir, clock, disk, book, ports, model, operator, dice })
    }

    /// One life of the daemon. The inner error says why it is stuck.
    fn live(&mut self, last: bool) -> Result<Result<End, String>, SimError> {
        let runtime = self.clock.runtime()?;
        let alarm = self.clock.alarm();
        let workspace = Workspace::inline(&self.dir.path().join("workspace"))?;
        let end = runtime.block_on(async {
            tokio::select! {
                biased;
                stuck = alarm => Err(stuck),
                end = self.life(workspace, last) => Ok(end),
            }
        });
        // What still runs in the dead process must find the disk gone before it is unwound.
        self.disk.crash();
        drop(runtime);
        self.clock.forget_sleepers();
        self.operator.forget_errands();
        Ok(end)
    }

    async fn life(&mut self, workspace: Workspace, last: bool) -> End {
        // A plug that is pulled in the middle of the boot, or some commits later.
        let pulled = !last && self.dice.chance(40);
        let commits = if pulled { self.dice.between(1, 120) } else { u64::MAX };
        self.disk.crash_after_commits(commits);
        let dice = Dice::new(self.seed, &format!("store {}", self.dice.below(u64::MAX)));
        let store = match slow_store::open(&self.disk, self.clock.clone(), dice).await {
            Ok(store) => store,
            Err(error) => {
                self.book.wrong(format!("the store does not open: {error}"));
                return End::Gone;
            }
        };
        let world = match boot(self.boot(store, workspace)).await {
            Ok(world) => world,
            Err(refusal) if refusal.code == Code::Unavailable => return End::Gone,
            Err(refusal) => {
                self.book.wrong(format!("the world does not boot: {refusal}"));
                return End::Gone;
            }
        };
        for _ in 0..self.course.actions {
            let pause = self.dice.between(10, 4_000);
            self.clock.sleep(Duration::from_millis(pause)).await;
            if !is_open(&world).await {
                return End::Gone;
            }
            self.operator.act(&world).await;
        }
        if last {
            return self.come_to_rest(&world).await;
        }
        let pause = self.dice.between(10, 8_000);
        self.clock.sleep(Duration::from_millis(pause)).await;
        if self.dice.chance(25) {
            world.shutdown("a stop in order").await;
        }
        End::Gone
    }

    fn boot(&self, store: Store, workspace: Workspace) -> Boot {
        let clock = Arc::clone(&self.ports.clock);
        let provider = Arc::clone(&self.model) as Arc<dyn Provider>;
        Boot {
            plan: self.plan.clone(),
            store,
            ports: self.ports.clone(),
            providers: Providers::with(plan::PROVIDER, plan::provider(), provider, clock),
            workspace,
            data_dir: None,
            secrets: Vec::new(),
            node: "sim".to_owned(),
            tools: ghost_tools::builtins::with(tools::all(&self.book)),
            reloader: Box::new(|| Err(Refusal::new(Code::Unavailable, "there is no file to read anew"))),
        }
    }

    /// Lets everything go on, and waits until nothing does any more.
    async fn come_to_rest(&mut self, world: &Arc<World>) -> End {
        // A full disk may refuse this as it may anything else.
        while let Err(refusal) = self.operator.let_all_go_on(world).await {
            if refusal.code != Code::Unavailable {
                self.book.wrong(format!("the world cannot go on: {refusal}"));
                return End::Rest;
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
        let over = self.course.outage.map_or(START, |(begins, lasts)| START.plus(begins).plus(lasts));
        let until = self.clock.now().max(over).plus(REST_WITHIN);
        let mut quiet = 0;
        // Long enough for the sweep to find what no wake-up announced.
        while quiet < 75 {
            self.clock.sleep(Duration::from_secs(1)).await;
            let busy = unrest(world).await;
            let served = self.operator.is_served();
            match busy {
                None if served => quiet += 1,
                _ => quiet = 0,
            }
            if self.clock.now() > until {
                let what = busy.unwrap_or_else(|| "an operator still waits".to_owned());
                self.book.wrong(format!("not at rest after {} s: {what}", REST_WITHIN.as_secs()));
                break;
            }
        }
        End::Rest
    }

    /// What there is to judge the run by.
    fn evidence(&self) -> Result<Evidence, SimError> {
        Ok(Evidence {
            facts: Facts::gather(&self.disk, &self.dir.path().join("workspace"))?,
            pages: self.book.open().clone(),
            asked: self.model.asked(),
            acknowledged: self.operator.acknowledged().clone(),
        })
    }

    fn conclude(self, boots: u32) -> Result<Outcome, SimError> {
        let evidence = self.evidence()?;
        Ok(Outcome {
            seed: self.seed,
            wrongs: check::check(&evidence),
            event_log: evidence.facts.events,
            boots,
            model_requests: evidence.asked.len(),
            outside_effects: evidence.pages.executions.len(),
            virtual_time: self.clock.now().since(START),
        })
    }
}

/// Whether the daemon still has its disk.
async fn is_open(world: &World) -> bool {
    let looked = world.store().read(|r| Box::pin(async move { r.event_bounds().await })).await;
    !matches!(looked, Err(StoreError::Closed))
}

/// Something that keeps the world from being at rest.
async fn unrest(world: &World) -> Option<String> {
    let looked = world
        .store()
        .read(|r| {
            Box::pin(async move {
                let agents = r.agent_list(false).await?;
                let runs = |agent_id: &AgentId| {
                    agents.iter().any(|agent| {
                        agent.agent_id == *agent_id
                            && agent.desired == Desired::Running
                            && agent.status == AgentStatus::Running
                    })
                };
                if let Some(agent) =
                    agents.iter().find(|agent| matches!(agent.status, AgentStatus::Restarting | AgentStatus::Stopping))
                {
                    return Ok(Some(format!("{} is {}", agent.agent_id, agent.status)));
                }
                if let Some(turn) = r.turns_open().await?.iter().find(|turn| runs(&turn.agent_id)) {
                    return Ok(Some(format!("turn {} of {} is open", turn.turn_id, turn.agent_id)));
                }
                if let Some(agent_id) = r.inbox_waiting().await?.iter().find(|agent_id| runs(agent_id)) {
                    return Ok(Some(format!("mail waits for {agent_id}")));
                }
                if let Some(ask) = r.asks_open().await?.first() {
                    return Ok(Some(format!("ask {} to {} is open", ask.ask_id, ask.target)));
                }
                Ok::<_, StoreError>(None)
            })
        })
        .await;
    looked.unwrap_or_else(|error| Some(format!("the store cannot be read: {error}")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The evidence of a run in which everything was kept.
    pub(crate) fn evidence(seed: u64) -> Evidence {
        let (sim, _) = SimWorld::to_its_rest(seed, Course::of(seed)).unwrap();
        sim.evidence().unwrap()
    }
}
