//! Runs a simulated world from its first boot to its rest. A life of the daemon ends with a crash, a stop, or the end.

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
use super::tools::{self, OutsideLog};
use super::{check, plan, slow_store};

/// The start of virtual time.
const START: Timestamp = Timestamp(1_795_298_880_000);

/// Maximum virtual time until a world is at rest.
const REST_WITHIN: Duration = Duration::from_secs(900);

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// Maximum number of boots of one run. A full disk makes some boots fail.
const BOOTS_MAX: u32 = 60;

/// The faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Number of lives of the daemon. All but the last end in the middle of work.
    pub lives: u32,
    /// Number of operators' actions in one life.
    pub actions: u32,
    /// Percentage of model requests that end in a fault.
    pub provider_faults: u64,
    /// Whether the store may fail.
    pub storage_faults: bool,
    /// Number of poisoned messages.
    pub poison: u32,
    /// An outage of the model: its beginning after the start, and its length.
    pub outage: Option<(Duration, Duration)>,
    /// Whether the wall clock jumps.
    pub jumps: bool,
}

impl Course {
    /// The random course of a seed.
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
                // Mostly about a minute, sometimes a night.
                let lasts = match dice.below(10) {
                    0 => dice.between(3_600, 5 * 3_600),
                    _ => dice.between(10, 240),
                };
                (begins, Duration::from_secs(lasts))
            }),
            jumps: dice.chance(50),
        }
    }

    /// One life without faults.
    #[must_use]
    pub fn calm() -> Self {
        Self { lives: 1, actions: 12, provider_faults: 0, storage_faults: false, poison: 0, outage: None, jumps: false }
    }
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed of the run.
    pub seed: u64,
    /// The whole event feed.
    pub event_log: Vec<Event>,
    /// The violations; empty if every promise was kept.
    pub wrongs: Vec<String>,
    /// Number of boots of the daemon.
    pub boots: u32,
    /// Number of requests to the model.
    pub model_requests: usize,
    /// Number of executions of the outside tool.
    pub outside_effects: usize,
    /// Virtual time of the run.
    pub virtual_time: Duration,
}

/// How a life of the daemon ended.
enum End {
    /// The daemon has ended.
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
    outside_log: OutsideLog,
    ports: Ports,
    model: Arc<SimModel>,
    operator: Operator,
    dice: Dice,
}

impl SimWorld {
    /// Runs the world of `seed` on `course` until it is at rest, and checks every promise.
    ///
    /// # Errors
    /// Only if the system cannot run it. Violations are in the outcome.
    pub fn run(seed: u64, course: Course) -> Result<Outcome, SimError> {
        let (sim, boots) = Self::run_to_rest(seed, course)?;
        sim.conclude(boots)
    }

    /// Runs a world to its rest. Returns it with the number of boots.
    fn run_to_rest(seed: u64, course: Course) -> Result<(Self, u32), SimError> {
        tools::hush_planned_panics();
        let mut sim = Self::new(seed, course)?;
        let mut boots = 0;
        let mut life = 1;
        loop {
            boots += 1;
            let last = life >= course.lives;
            if boots > BOOTS_MAX {
                sim.outside_log.wrong(format!("the world did not come to rest in {BOOTS_MAX} boots"));
                break;
            }
            match sim.live(last)? {
                Ok(End::Rest) => break,
                Ok(End::Gone) => life += 1,
                Err(stuck) => {
                    sim.outside_log.wrong(format!("stuck in boot {boots}: {stuck}"));
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
        // Even a night without work has periodic rounds and probes.
        let steps = 50_000 + out.as_secs() * 10;
        let clock = SimClock::new(START, Bounds { time: Duration::from_secs(2_400) + out, steps });
        let (disk, outside_log) = (MemoryDisk::new(), OutsideLog::default());
        let named: Vec<AgentId> = plan.agents.iter().map(|agent| agent.agent_id.clone()).collect();
        let temporary: Vec<AgentId> = ["d0", "d1"].into_iter().map(str::parse).collect::<Result<_, _>>()?;
        let names = named.iter().chain(&temporary).map(ToString::to_string).chain(["nobody".to_owned()]).collect();
        let model =
            SimModel::new(seed, clock.clone(), outside_log.clone(), names, course.provider_faults).with_outage(outage);
        let resources = (clock.clone(), disk.clone(), outside_log.clone());
        let operator = Operator::new(seed, resources, named, temporary, (course.storage_faults, course.poison));
        let ports = Ports {
            clock: Arc::new(clock.clone()),
            ids: Arc::new(SimIds::new(seed)),
            rng: Arc::new(SimRng::new(seed)),
        };
        let (model, dice) = (Arc::new(model), Dice::new(seed, "lives"));
        Ok(Self { seed, course, plan, dir, clock, disk, outside_log, ports, model, operator, dice })
    }

    /// One life of the daemon. The inner error is the reason if it is stuck.
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
        // Code that still runs in the dead process must find that the disk is no longer available
        // before it unwinds.
        self.disk.crash();
        drop(runtime);
        self.clock.forget_sleepers();
        self.operator.forget_requests();
        Ok(end)
    }

    async fn life(&mut self, workspace: Workspace, last: bool) -> End {
        // The disk may fail during the boot, or some commits later.
        let pulled = !last && self.dice.chance(40);
        let commits = if pulled { self.dice.between(1, 120) } else { u64::MAX };
        self.disk.crash_after_commits(commits);
        // A clock that was ahead may be put right while no daemon runs. One that was behind would make the daemon's
        // absence look long.
        if self.clock.off() > 0 && self.dice.chance(50) {
            self.put_clock_right();
        }
        let dice = Dice::new(self.seed, &format!("store {}", self.dice.below(u64::MAX)));
        let store = match slow_store::open(&self.disk, self.clock.clone(), dice).await {
            Ok(store) => store,
            Err(error) => {
                self.outside_log.wrong(format!("the store does not open: {error}"));
                return End::Gone;
            }
        };
        let world = match boot(self.boot(store, workspace)).await {
            Ok(world) => world,
            Err(refusal) if refusal.code == Code::Unavailable => return End::Gone,
            Err(refusal) => {
                self.outside_log.wrong(format!("the world does not boot: {refusal}"));
                return End::Gone;
            }
        };
        for _ in 0..self.course.actions {
            let pause = self.dice.between(10, 4_000);
            self.clock.sleep(Duration::from_millis(pause)).await;
            if !is_open(&world).await {
                return End::Gone;
            }
            self.jump();
            self.operator.act(&world).await;
        }
        if last {
            self.put_clock_right();
            return self.come_to_rest(&world).await;
        }
        let pause = self.dice.between(10, 8_000);
        self.clock.sleep(Duration::from_millis(pause)).await;
        if self.dice.chance(25) {
            world.shutdown("a stop in order").await;
        }
        End::Gone
    }

    /// The wall clock may jump, or be put right.
    fn jump(&mut self) {
        if !self.course.jumps || !self.dice.chance(20) {
            return;
        }
        if self.clock.off() != 0 && self.dice.chance(50) {
            return self.put_clock_right();
        }
        let ms = match self.dice.below(3) {
            0 => self.dice.between(2_000, 120_000),
            1 => self.dice.between(120_000, 2 * DAY_MS),
            _ => self.dice.between(2 * DAY_MS, 400 * DAY_MS),
        };
        let ms = i64::try_from(ms).unwrap_or(0);
        self.clock.jump(if self.dice.chance(50) { ms } else { -ms.saturating_mul(10) });
    }

    fn put_clock_right(&self) {
        self.clock.jump(-self.clock.off());
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
            tools: ghost_tools::builtins::with(tools::all(&self.outside_log)),
            sandbox: Err("a simulation runs no commands".to_owned()),
            web: Err("a simulation reaches no network".to_owned()),
            reloader: Box::new(|| Err(Refusal::new(Code::Unavailable, "there is no file to read anew"))),
        }
    }

    /// Resumes everything that can continue, and waits until no work is left.
    async fn come_to_rest(&mut self, world: &Arc<World>) -> End {
        // A full disk may refuse this, too.
        while let Err(refusal) = self.operator.resume_all(world).await {
            if refusal.code != Code::Unavailable {
                self.outside_log.wrong(format!("the world cannot go on: {refusal}"));
                return End::Rest;
            }
            self.clock.sleep(Duration::from_secs(1)).await;
        }
        let over = self.course.outage.map_or(START, |(begins, lasts)| START.plus(begins).plus(lasts));
        let until = self.clock.steady().max(over).plus(REST_WITHIN);
        let mut quiet = 0;
        // Long enough for the sweep to find mail without a wake-up.
        while quiet < 75 {
            self.clock.sleep(Duration::from_secs(1)).await;
            let busy = open_work(world).await;
            let served = self.operator.all_answered();
            match busy {
                None if served => quiet += 1,
                _ => quiet = 0,
            }
            if self.clock.steady() > until {
                let what = busy.unwrap_or_else(|| "an operator still waits".to_owned());
                self.outside_log.wrong(format!("not at rest after {} s: {what}", REST_WITHIN.as_secs()));
                break;
            }
        }
        End::Rest
    }

    /// Collects the evidence of the run.
    fn evidence(&self) -> Result<Evidence, SimError> {
        Ok(Evidence {
            facts: Facts::gather(&self.disk, &self.dir.path().join("workspace"))?,
            outside: self.outside_log.open().clone(),
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
            outside_effects: evidence.outside.executions.len(),
            virtual_time: self.clock.steady().since(START),
        })
    }
}

/// Whether the daemon still has its disk.
async fn is_open(world: &World) -> bool {
    let read = world.store().read(|r| r.event_bounds()).await;
    !matches!(read, Err(StoreError::Closed))
}

/// The work that keeps the world from being at rest; `None` if it is at rest.
async fn open_work(world: &World) -> Option<String> {
    let read = world
        .store()
        .read(|r| {
            let agents = r.agent_list(false)?;
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
            if let Some(turn) = r.turns_open()?.iter().find(|turn| runs(&turn.agent_id)) {
                return Ok(Some(format!("turn {} of {} is open", turn.turn_id, turn.agent_id)));
            }
            if let Some(agent_id) = r.inbox_waiting()?.iter().find(|agent_id| runs(agent_id)) {
                return Ok(Some(format!("mail waits for {agent_id}")));
            }
            if let Some(ask) = r.asks_open()?.first() {
                return Ok(Some(format!("ask {} to {} is open", ask.ask_id, ask.target)));
            }
            Ok::<_, StoreError>(None)
        })
        .await;
    read.unwrap_or_else(|error| Some(format!("the store cannot be read: {error}")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The evidence of a run that kept all promises.
    pub(crate) fn evidence(seed: u64) -> Evidence {
        let (sim, _) = SimWorld::run_to_rest(seed, Course::of(seed)).unwrap();
        sim.evidence().unwrap()
    }
}
