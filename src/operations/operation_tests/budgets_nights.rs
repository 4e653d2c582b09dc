//! Property test: for any order of calls, crashes, reloads, deletions and clock changes, one day
//! costs no more than the daily limit.

use proptest::prelude::*;

use super::operation_world::*;

const AGENTS: [&str; 2] = ["ada", "bob"];
const LIMIT: u64 = 1_000;

#[derive(Clone, Debug)]
enum Action {
    /// Agent, input tokens, most output tokens.
    Start(usize, u64, u64),
    /// Agent, and how its call ends: with a share of the reservation, without reported usage, or
    /// lost with the daemon.
    End(usize, u8, u64),
    /// The clock moves by this many minutes.
    Clock(i64),
    /// An agent is deleted and created again.
    Anew(usize),
    /// The file is read again. Without its entry, the limit is lifted for a moment.
    Reload(bool),
    /// One sweep of retention after an hour.
    Sweep,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        6 => (0usize..2, 0u64..300, 16u64..300).prop_map(|(who, input, most)| Action::Start(who, input, most)),
        6 => (0usize..2, 0u8..3, 0u64..=100).prop_map(|(who, how, share)| Action::End(who, how, share)),
        3 => prop_oneof![-900i64..0, 1i64..900].prop_map(Action::Clock),
        1 => (0usize..2).prop_map(Action::Anew),
        1 => any::<bool>().prop_map(Action::Reload),
        1 => Just(Action::Sweep),
    ];
    proptest::collection::vec(one, 1..60)
}

struct Night {
    world: OperationWorld,
    turns: Vec<Turn>,
    held: [Option<(ReservationId, u64, u64)>; 2],
}

impl Night {
    async fn reload(&self, named: bool) {
        let limits = BudgetLimits { tokens: Some(LIMIT), money: Some(Money(LIMIT)) };
        let file = if named { vec![(Scope::World.daily().unwrap(), limits)] } else { Vec::new() };
        self.world.follow_file(file).await;
    }

    async fn play(&mut self, step: Action) {
        match step {
            Action::Start(who, input, most) => {
                let started = self.world.model_start(self.turns[who].turn_id, demand(input, most)).await;
                match started {
                    Ok((reservation, most)) => self.held[who] = Some((reservation, input, most)),
                    // The call waits, and the earlier reservation was lost.
                    Err(refusal) if refusal.code == Code::Unavailable => self.held[who] = None,
                    Err(_) => {}
                }
            }
            Action::End(who, 2, _) => {
                run!(self.world, |w| turns::review_at_boot(w)).unwrap();
                self.held = [None, None];
                self.turns[who] = self.world.take(AGENTS[who]).await.turn;
            }
            Action::End(who, how, share) => {
                let Some((reservation, input, most)) = self.held[who].take() else { return };
                let usage = if how == 0 { used(input, most * share / 100) } else { None };
                self.world.model_answer(self.turns[who].turn_id, reservation, usage).await.unwrap();
            }
            Action::Clock(minutes) => {
                let time = Duration::from_secs(minutes.unsigned_abs() * 60);
                if minutes < 0 { self.world.set_back(time) } else { self.world.pass(time) }
            }
            Action::Anew(who) => {
                run!(self.world, |w| {
                    let ctx = w.ctx;
                    agents::delete(w, &operator(), &id(AGENTS[who]))?;
                    agents::create(w, &operator(), new_agent(ctx, AGENTS[who]))
                })
                .unwrap();
                self.held[who] = None;
                self.turns[who] = self.world.busy(AGENTS[who]).await;
            }
            Action::Reload(lifted) => {
                if lifted {
                    self.reload(false).await;
                }
                self.reload(true).await;
            }
            Action::Sweep => drop(retention::sweep(&self.world.store, &self.world.ctx).await.unwrap()),
        }
    }
}

async fn run(actions: Vec<Action>) {
    let world = OperationWorld::new().await;
    world.limits(|limits| limits.stalled_boots_max = 1_000);
    let turns = vec![world.busy("ada").await, world.busy("bob").await];
    let mut night = Night { world, turns, held: [None, None] };
    night.reload(true).await;
    let day = |night: &Night| night.world.ctx.now().0.div_euclid(86_400_000);
    let (first, mut latest) = (day(&night), day(&night));
    for step in actions {
        night.play(step.clone()).await;
        latest = latest.max(day(&night));
        let account = night.world.budget(&Scope::World.daily().unwrap()).await.unwrap();
        assert!(account.spent_tokens + account.reserved_tokens <= LIMIT, "{step:?}: {account:?}");
        assert!(account.spent_money.plus(account.reserved_money).0 <= LIMIT + 2, "{step:?}: {account:?}");
        let sums = read!(night.world, |r| r.usage_sum(&UsageFilter::default())?);
        let spent: u64 = sums.iter().map(|sum| sum.tokens.total()).sum();
        let days = u64::try_from(latest - first).unwrap() + 1;
        assert!(spent <= LIMIT * days, "{spent} tokens in {days} days: {step:?}");
        let world = night.world.budget(&Scope::World).await;
        assert_eq!(world.map_or(0, |world| world.spent_tokens), spent, "{step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_day_costs_no_more_than_its_limit(actions in actions()) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(actions));
    }
}
