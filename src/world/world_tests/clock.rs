//! A wall clock that jumps, in a running world: what was computed from it is right again as soon as the clock is, also
//! if the daemon was restarted in between, and nothing is lost (SCHED-02).

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::approval::ApprovalPlan;
use ghost_domain::grant::{GrantSource, NewGrant};
use ghost_domain::schedule::words::instant;
use ghost_domain::schedule::{Missed, When};
use ghost_domain::{
    Approval, ApprovalId, ApprovalStatus, Ask, AskId, AskStatus, Asker, Event, EventKind, GrantId, MessageId, RootId,
    Schedule, ScheduleKind, Scope, Timestamp, Turn, TurnId,
};
use ghost_operations::budgets::{self, NewLimits};
use ghost_operations::mail::Chain;
use ghost_operations::schedules::{self, NewSchedule};
use ghost_operations::{clock, grants, retention, sessions};
use ghost_store::tables::BudgetFilter;
use uuid::Uuid;

use super::helpers::{TWO, TestWorld, id, operator, read, say, settle, while_time_passes, write};
use crate::World;

const MINUTE: Duration = Duration::from_secs(60);
const DAY_MS: i64 = 86_400_000;
/// A loop looks at the clock once a second, and time passes in steps of two.
const SLACK: Duration = Duration::from_secs(8);

async fn set(world: &Arc<World>, kind: ScheduleKind, name: &str, when: When) -> Schedule {
    let name = name.to_owned();
    write!(world, |w| {
        let new = NewSchedule {
            kind,
            agent_id: id("ada"),
            name,
            when,
            message: "look".into(),
            missed: Missed::Skip,
            mode: Default::default(),
            enabled: true,
            chain: Chain::root(w.ctx),
            baseline: None,
        };
        schedules::set(w, &operator(), new)
    })
    .unwrap()
}

async fn pass(test_world: &TestWorld, time: Duration) {
    let mut left = time;
    while !left.is_zero() {
        let step = left.min(Duration::from_secs(2));
        test_world.clock.advance(step);
        left -= step;
        settle().await;
    }
}

async fn restarted(test_world: &TestWorld, world: Arc<World>, between: impl FnOnce()) -> Arc<World> {
    while_time_passes(test_world, world.shutdown("test")).await;
    drop(world);
    between();
    test_world.boot(|_| say("done")).await.0
}

async fn events(world: &World, kind: EventKind) -> Vec<Event> {
    let all = read!(world, |r| r.event_list(0, &Default::default(), u32::MAX)?).0;
    all.into_iter().filter(|event| event.kind == kind).collect()
}

async fn next_of(world: &World, schedule: &Schedule) -> Option<Timestamp> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_get(schedule_id)?)?.next_at
}

fn started() -> TestWorld {
    let test_world = TestWorld::new(TWO);
    test_world.clock.advance(instant("t", "2026-11-21T09:58:30Z").unwrap().since(Timestamp(1_000_000)));
    test_world
}

// covers: SCHED-02
#[tokio::test]
async fn a_clock_that_was_ahead_for_a_moment_delays_no_schedule() {
    for (days, restart) in [(1, false), (400, false), (1, true), (400, true)] {
        let test_world = started();
        let (mut world, _) = test_world.boot(|_| say("done")).await;
        let five = When::Cron { expression: "*/5 * * * *".into(), zone: None };
        let cron = set(&world, ScheduleKind::Cron, "five", five).await;
        let noon =
            set(&world, ScheduleKind::Cron, "noon", When::Cron { expression: "0 12 * * *".into(), zone: None }).await;
        let every = When::Every { every_ms: 420_000, anchor: world.ctx().now() };
        let every = set(&world, ScheduleKind::Cron, "seven", every).await;
        pass(&test_world, Duration::from_secs(10)).await;
        test_world.clock.jump(days * DAY_MS);
        pass(&test_world, Duration::from_secs(13)).await;
        let warned = read!(world, |r| clock::state(r)?).warning().unwrap();
        assert!(warned.contains("forward"), "{warned}");
        // What is set by a wrong clock, is right later, too.
        let made_then = When::Every { every_ms: 420_000, anchor: world.ctx().now() };
        let made_then = set(&world, ScheduleKind::Cron, "then", made_then).await;
        let back = || test_world.clock.jump(-days * DAY_MS);
        if restart {
            world = restarted(&test_world, world, back).await;
        } else {
            back();
        }
        pass(&test_world, Duration::from_secs(4)).await;
        let now = world.ctx().now();
        assert_eq!(next_of(&world, &cron).await, Some(instant("t", "2026-11-21T10:00:00Z").unwrap()));
        assert_eq!(next_of(&world, &noon).await, Some(instant("t", "2026-11-21T12:00:00Z").unwrap()));
        for every in [every, made_then] {
            assert!(next_of(&world, &every).await.is_some_and(|at| at > now && at <= now.plus(MINUTE * 7)));
        }
        let before = events(&world, EventKind::ScheduleFired).await.len();
        pass(&test_world, MINUTE * 8).await;
        assert!(events(&world, EventKind::ScheduleFired).await.len() >= before + 3, "{days} d, restart {restart}");
        // The log of the agent's work is in order, with what ended by the wrong clock in its place.
        let log = read!(world, |r| sessions::history(r, &id("ada"), None, None, 100)?);
        assert!(log.entries.len() >= 8 && log.entries.is_sorted_by_key(|entry| entry.turn_id), "{log:?}");
        let now = world.ctx().now();
        let turns = read!(world, |r| r.turn_list(&Default::default())?);
        assert!(turns.iter().all(|turn| turn.ended_at.is_none_or(|at| at <= now)));
        let jumps = events(&world, EventKind::WorldClockJumped).await;
        assert_eq!(jumps.len(), 2);
        assert_eq!(jumps[0].payload["by_ms"], days * DAY_MS);
        assert!(jumps[1].payload["by_ms"].as_i64().unwrap() <= 1 - days * DAY_MS);
    }
}

/// Random numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn between(&mut self, least: i64, most: i64) -> i64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        least + i64::try_from((mixed ^ (mixed >> 31)) % most.abs_diff(least)).unwrap()
    }

    fn seconds(&mut self, least: i64, most: i64) -> Duration {
        Duration::from_secs(self.between(least, most).unsigned_abs())
    }
}

/// What waits in the world, with the steady time at which it is over.
struct Waiting {
    timer: Schedule,
    ask: AskId,
    approval: ApprovalId,
    grant: GrantId,
    due: Timestamp,
}

const WAITS: Duration = Duration::from_secs(100);

async fn begin(world: &Arc<World>, test_world: &TestWorld, n: u128) -> Waiting {
    use ghost_domain::Clock as _;
    let timer = When::after(WAITS, world.ctx().now());
    let timer = set(world, ScheduleKind::Timer, &format!("tea {n}"), timer).await;
    let (ask, approval, grant) = write!(world, |w| {
        let now = w.ctx.now();
        // Nobody answers it.
        let asker = Asker { party: operator(), turn_id: None, call_id: None, provider_call_id: None };
        let question = (id("ben"), MessageId(Uuid::from_u128(n + 1)));
        let ask = Ask::new(AskId(Uuid::from_u128(n + 1)), asker, question, now, now.plus(WAITS));
        w.ask_put(&ask)?;
        let turn = Turn::new(TurnId(Uuid::from_u128(n + 1)), id("ada"), RootId(Uuid::nil()), now);
        let call = ("c".to_owned(), ApprovalPlan { tool: "tool.cli".into(), ..ApprovalPlan::default() });
        let approval = Approval::new(ApprovalId(Uuid::from_u128(n + 1)), &turn, call, now, now.plus(WAITS));
        w.approval_put(&approval)?;
        let new = NewGrant {
            agent_id: id("ada"),
            prefix: "shared/".into(),
            source: GrantSource::Manual,
            reason: None,
            lasts: WAITS,
        };
        let grant = grants::add(w, &operator(), new)?;
        Ok::<_, ghost_domain::Refusal>((ask.ask_id, approval.approval_id, grant.grant_id))
    })
    .unwrap();
    Waiting { timer, ask, approval, grant, due: test_world.clock.steady().plus(WAITS) }
}

/// What is lost or late of what waits.
async fn wrongs(world: &World, waiting: &Waiting, left: Duration) -> Vec<String> {
    let now = world.ctx().now();
    let (ask, approval, grant) = (waiting.ask, waiting.approval, waiting.grant);
    let (ask, approval, grant) = read!(world, |r| (r.ask_get(ask)?, r.approval_get(approval)?, r.grant_get(grant)?));
    let timer = next_of(world, &waiting.timer).await;
    let over = left.is_zero();
    let is = |what: &str, open: bool, ends: Option<Timestamp>| {
        let wrong = match (open, ends) {
            (true, _) if over => Some("is still there"),
            (false, _) if !over => Some("is gone too early"),
            (true, Some(at)) if at > now.plus(left).plus(SLACK) => Some("is late"),
            (true, Some(at)) if at.plus(SLACK) < now.plus(left) => Some("is early"),
            _ => None,
        };
        wrong.map(|wrong| format!("the {what} {wrong}: {ends:?} at {now} with {left:?} left"))
    };
    let (ask, approval) = (ask.unwrap(), approval.unwrap());
    let live = grant.as_ref().is_some_and(|grant| grant.is_live(now));
    [
        is("timer", timer.is_some(), timer),
        is("ask", ask.status == AskStatus::Open, Some(ask.deadline_at)),
        is("approval", approval.status == ApprovalStatus::Pending, Some(approval.expires_at)),
        is("grant", live, grant.map(|grant| grant.expires_at)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[tokio::test]
async fn two_hundred_jumps_lose_nothing_and_delay_nothing() {
    use ghost_domain::Clock as _;
    let test_world = started();
    let short = "heartbeat: { every: 11m, target: none }\nlimits: { journal_days: 1, requests_days: 1 }\n";
    test_world.plan(&format!("{TWO}{short}"));
    let (mut world, _) = test_world.boot(|_| say("HEARTBEAT_OK")).await;
    let mut dice = Dice(42);
    let cron =
        set(&world, ScheduleKind::Cron, "five", When::Cron { expression: "*/5 * * * *".into(), zone: None }).await;
    let every = When::Every { every_ms: 420_000, anchor: world.ctx().now() };
    let every = set(&world, ScheduleKind::Cron, "seven", every).await;
    let date = world.ctx().now().plus(Duration::from_secs(900 * 86_400));
    let date = set(&world, ScheduleKind::Timer, "birthday", When::At { at: date }).await;
    let day = Scope::Agent(id("ada")).daily().unwrap();
    let (scope, limits) = (day.clone(), NewLimits { tokens: Some(Some(1_000_000)), money: None });
    write!(world, |w| {
        budgets::set(w, &operator(), &scope, limits)?;
        let mut account = w.budget_get(&scope)?.unwrap();
        account.spent_tokens = 777;
        w.budget_put(&account)?;
        Ok::<_, ghost_domain::Refusal>(())
    })
    .unwrap();
    let began = test_world.clock.steady();
    let (mut found, mut turns) = (Vec::new(), 0);
    for n in 0..200_u128 {
        pass(&test_world, dice.seconds(1, 30)).await;
        let waiting = begin(&world, &test_world, n).await;
        pass(&test_world, dice.seconds(0, 20)).await;
        let by = match dice.between(0, 4) {
            0 => dice.between(-4_000 * DAY_MS, 0),
            1 => dice.between(0, 400 * DAY_MS),
            2 => dice.between(-DAY_MS, DAY_MS),
            _ => dice.between(-120_000, 120_000),
        };
        test_world.clock.jump(by);
        pass(&test_world, dice.seconds(0, 30)).await;
        retention::sweep(world.store(), world.ctx()).await.unwrap();
        // A clock that was ahead may be put right while no daemon runs.
        if by > 60_000 && dice.between(0, 3) == 0 {
            world = restarted(&test_world, world, || test_world.clock.jump(-by)).await;
        } else {
            test_world.clock.jump(-by);
        }
        pass(&test_world, Duration::from_secs(4)).await;
        retention::sweep(world.store(), world.ctx()).await.unwrap();
        let now = world.ctx().now();
        for (schedule, interval) in [(&cron, MINUTE * 5), (&every, MINUTE * 7)] {
            if next_of(&world, schedule).await.is_none_or(|at| at > now.plus(interval + MINUTE)) {
                found.push(format!("{n}: after {by} ms {} is late", schedule.name));
            }
        }
        let mut left = waiting.due.since(test_world.clock.steady());
        found.extend(wrongs(&world, &waiting, left).await.into_iter().map(|wrong| format!("{n} by {by} ms: {wrong}")));
        left += SLACK + MINUTE + MINUTE;
        pass(&test_world, left).await;
        found.extend(
            wrongs(&world, &waiting, Duration::ZERO).await.into_iter().map(|wrong| format!("{n} by {by} ms: {wrong}")),
        );
        let before = turns;
        turns = read!(world, |r| r.turn_list(&Default::default())?).len();
        if turns < before {
            found.push(format!("{n}: {} turns were deleted", before - turns));
        }
        let (accounts, filter) = (day.clone(), BudgetFilter { limited: true, ..BudgetFilter::default() });
        let account = read!(world, |r| r.budget_list(&filter)?).into_iter().find(|one| one.scope == accounts).unwrap();
        let today = now.0.div_euclid(DAY_MS);
        if account.day > today || (account.day == today && account.spent_tokens < 777 && now.since(began) < MINUTE * 60)
        {
            found.push(format!("{n}: the day's budget is {account:?}"));
        }
    }
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(next_of(&world, &date).await, date.next_at, "a date never moves");
    let first = read!(world, |r| r.event_bounds()?).0;
    assert_eq!(first, 1, "no event was deleted");
}
