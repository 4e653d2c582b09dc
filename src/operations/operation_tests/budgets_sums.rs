//! Property test: for any order of concurrent calls, crashes, reloads, deletions and clock changes, no account exceeds
//! its limit, one day costs no more than the daily limit, and accounts and usage rows agree.

use proptest::prelude::*;

use super::operation_world::*;

const AGENTS: [&str; 2] = ["ada", "bob"];
const DAILY: u64 = 1_000;

#[derive(Clone, Debug)]
enum Action {
    /// Agent, input tokens, most output tokens.
    Start(usize, u64, u64),
    /// Agent, and how its call ends: answered with a share of the reservation, without reported usage,
    /// released, forfeited, interrupted, or lost with the daemon.
    End(usize, u8, u64),
    /// A root gets its own account.
    Root(usize),
    /// The clock moves by this many minutes.
    Clock(i64),
    /// An agent is deleted and created again.
    Anew(usize),
    /// The file is read again. Without its entry, the limit is lifted for a moment.
    Reload(bool),
    /// One sweep of retention.
    Sweep,
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        6 => (0usize..2, 0u64..300, 16u64..300).prop_map(|(who, input, most)| Action::Start(who, input, most)),
        6 => (0usize..2, 0u8..6, 0u64..=100).prop_map(|(who, how, share)| Action::End(who, how, share)),
        1 => (0usize..2).prop_map(Action::Root),
        3 => prop_oneof![-900i64..0, 1i64..900].prop_map(Action::Clock),
        1 => (0usize..2).prop_map(Action::Anew),
        1 => any::<bool>().prop_map(Action::Reload),
        1 => Just(Action::Sweep),
    ];
    proptest::collection::vec(one, 1..60)
}

struct Night {
    world: World,
    turns: [Turn; 2],
    /// The call of each agent: reservation, input tokens, most output tokens.
    held: [Option<(ReservationId, u64, u64)>; 2],
}

impl Night {
    async fn reload(&self, named: bool) {
        let limits = BudgetLimits { tokens: Some(DAILY), money: Some(Money(DAILY)) };
        let file = if named { vec![(scope("world/day"), limits)] } else { Vec::new() };
        self.world.follow_file(file).await;
    }

    async fn play(&mut self, step: Action) {
        let world = &self.world;
        match step {
            Action::Start(who, input, most) => {
                let started = world.model_start(self.turns[who].turn_id, demand(input, most)).await;
                // A turn has at most one reservation, and none while it waits or is parked; the earlier one was lost.
                self.held[who] = started.ok().map(|(reservation_id, most)| (reservation_id, input, most));
            }
            Action::End(who, 5, _) => {
                run!(world, |w| turns::review_at_boot(w)).unwrap();
                self.held = [None, None];
                self.turns[who] = world.take(AGENTS[who]).await.turn;
            }
            Action::End(who, how, share) => {
                let Some((held, input, most)) = self.held[who].take() else { return };
                let turn = self.turns[who].turn_id;
                match how {
                    0 => drop(world.model_answer(turn, held, used(input, most * share / 100)).await.unwrap()),
                    1 => drop(world.model_answer(turn, held, None).await.unwrap()),
                    2 | 3 => {
                        let end = if how == 2 { Settlement::Released } else { Settlement::Forfeited };
                        run!(world, |w| turns::model_failed(w, turn, held, "m", "x", end)).unwrap();
                    }
                    _ => drop(world.take(AGENTS[who]).await),
                }
            }
            Action::Root(who) => {
                let lifted = NewLimits { tokens: Some(None), money: None };
                world.set_limits(&Scope::Root(self.turns[who].root_id), lifted).await.unwrap();
            }
            Action::Clock(minutes) => {
                let time = MINUTE * u32::try_from(minutes.unsigned_abs()).unwrap();
                if minutes < 0 { world.set_back(time) } else { world.pass(time) }
            }
            Action::Anew(who) => {
                let anew = new_agent(&world.ctx, AGENTS[who]);
                run!(world, |w| {
                    agents::delete(w, &operator(), &id(AGENTS[who]))?;
                    agents::create(w, &operator(), anew)
                })
                .unwrap();
                self.held[who] = None;
                self.turns[who] = world.busy(AGENTS[who]).await;
            }
            Action::Reload(lifted) => {
                if lifted {
                    self.reload(false).await;
                }
                self.reload(true).await;
            }
            Action::Sweep => drop(world.sweep().await),
        }
    }

    async fn check(&self, days: u64) {
        let accounts = read!(self.world, |r| r.budget_list(&BudgetFilter::default())?);
        for account in &accounts {
            let used = account.spent_tokens + account.reserved_tokens;
            assert!(account.limits.tokens.is_none_or(|limit| used <= limit), "{account:?}");
            let money = account.spent_money.plus(account.reserved_money);
            // Input and output are rounded up separately when the call is allowed, and together when it
            // is priced.
            assert!(account.limits.money.is_none_or(|limit| money <= limit.plus(Money(1))), "{account:?}");
            if let Scope::Root(root_id) = account.scope {
                let filter = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
                let spent: u64 =
                    read!(self.world, |r| r.usage_sum(&filter)?).iter().map(|sum| sum.tokens.total()).sum();
                assert_eq!(account.spent_tokens, spent, "{account:?}");
            }
        }
        let sums = self.world.usage().await;
        let spent: u64 = sums.iter().map(|sum| sum.tokens.total()).sum();
        assert!(spent <= DAILY * days, "{spent} tokens in {days} days");
        let whole = accounts.iter().find(|account| account.scope == Scope::World).unwrap();
        assert_eq!((whole.spent_tokens, whole.spent_money.0), (spent, sums.iter().map(|sum| sum.cost.0).sum::<u64>()));
        let held: u64 = self.held.iter().flatten().map(|(_, input, most)| input + most).sum();
        let agents = || accounts.iter().filter(|account| matches!(account.scope, Scope::Agent(_)));
        assert_eq!((whole.reserved_tokens, agents().map(|agent| agent.reserved_tokens).sum::<u64>()), (held, held));
        assert_eq!(agents().map(|agent| agent.spent_tokens).sum::<u64>(), spent);
    }
}

async fn run(actions: Vec<Action>, most_tokens: u64, most_money: u64) {
    let world = World::new().await;
    world.limits(|limits| limits.stalled_boots_max = 1_000);
    for (text, tokens, money) in [
        ("world", Some(most_tokens), Some(Some(Money(most_money)))),
        ("agent:ada", Some(most_tokens / 2), None),
        ("agent:bob", None, None),
    ] {
        world.set_limits(&scope(text), NewLimits { tokens: Some(tokens), money }).await.unwrap();
    }
    let turns = [world.busy("ada").await, world.busy("bob").await];
    let mut night = Night { world, turns, held: [None, None] };
    night.reload(true).await;
    let day = |night: &Night| night.world.ctx.now().0.div_euclid(86_400_000);
    let (first, mut latest) = (day(&night), day(&night));
    for step in actions {
        night.play(step).await;
        latest = latest.max(day(&night));
        night.check(u64::try_from(latest - first).unwrap() + 1).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(96)))]
    #[test]
    fn no_account_passes_its_limit_and_all_agree(actions in actions(), tokens in 0u64..6_000, money in 0u64..6_000) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(actions, tokens, money));
    }
}
