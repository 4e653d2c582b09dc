//! Tasks whose owner is deleted, and the agent that is created in its place.

use ghost_domain::{AgentKind, Code, EventKind, Kind, Party, Task, TaskId, TaskStatus};

use super::rig::{Rig, code, id, new_agent, operator, party, read, write};
use crate::agents::{self, NewAgent};
use crate::mail::Chain;
use crate::tasks::{self, NewTask};

async fn task(rig: &Rig, by: Party, title: &str, depends_on: &[TaskId]) -> Task {
    let (title, depends_on) = (title.to_owned(), depends_on.to_vec());
    write!(rig, |w, ctx| {
        let new = NewTask {
            title,
            description: "all of it".into(),
            owner: id("bob"),
            priority: 0,
            depends_on,
            parent_id: None,
            due_at: None,
            chain: Chain { root_id: ghost_domain::RootId(uuid::Uuid::from_u128(7)), hop: 1 },
        };
        tasks::create(w, &ctx, &by, new).await
    })
    .unwrap()
}

async fn delete(rig: &Rig, name: &'static str) {
    write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id(name)).await).unwrap();
}

async fn held_up(rig: &Rig, task: &Task) -> Option<String> {
    let root_id = task.root_id;
    read!(rig, |r| tasks::held_up(r, root_id).await?)
}

#[tokio::test]
async fn whoever_gave_a_deleted_agent_work_is_told_and_its_successor_gets_it() {
    let rig = Rig::new().await;
    let first = task(&rig, party("ada"), "count", &[]).await;
    let second = task(&rig, party("ada"), "sum up", &[first.task_id]).await;
    let own = task(&rig, operator(), "rest", &[]).await;
    let letter = rig.send("bob", "are you there?").await;
    assert_eq!(held_up(&rig, &first).await.as_deref(), Some("3 tasks are open"));
    delete(&rig, "bob").await;

    // They are open still, and say why nothing becomes of them.
    for (task, status) in [(&first, TaskStatus::Pending), (&second, TaskStatus::Blocked), (&own, TaskStatus::Pending)] {
        let task_id = task.task_id;
        let (now, history) = read!(rig, |r| (r.task_get(task_id).await?.unwrap(), r.task_events(task_id, 9).await?));
        assert_eq!((now.status, now.owner), (status, id("bob")));
        assert_eq!(history.last().unwrap().note.as_deref(), Some("its owner bob was deleted"));
    }
    let mail = rig.inbox("ada").await;
    assert_eq!(mail.len(), 1, "one letter for one chain of work");
    assert_eq!((mail[0].kind, &mail[0].from, mail[0].root_id), (Kind::Task, &Party::System, first.root_id));
    assert_eq!(mail[0].subject.as_deref(), Some("bob was deleted with 2 tasks of yours"));
    for task in [&first, &second] {
        assert!(mail[0].body.contains(&task.task_id.to_string()), "{}", mail[0].body);
    }
    let ends = rig.events().await;
    let end = ends.iter().find(|event| event.kind == EventKind::AgentDeleted).unwrap();
    assert_eq!((&end.payload["tasks_left"], &end.payload["mail_dropped"]), (&3.into(), &3.into()));
    assert!(end.payload["messages"].to_string().contains(&letter.message_id.to_string()), "{}", end.payload);
    assert!(end.payload["tasks"].to_string().contains(&own.task_id.to_string()), "{}", end.payload);
    let words = held_up(&rig, &first).await.unwrap();
    assert!(words.starts_with("3 tasks are open: bob is deleted and owns 3 tasks ("), "{words}");
    assert!(words.contains(&first.task_id.to_string()), "{words}");
    // A job that goes on reminds the others of theirs.
    assert_eq!(remind(&rig, &first).await, 0);

    // Whoever bears the id now is told of what can be worked on.
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&rig.ctx, "bob") };
    write!(rig, |w, ctx| agents::create(w, &ctx, &Party::System, named).await).unwrap();
    let subjects: Vec<String> = rig.inbox("bob").await.into_iter().filter_map(|mail| mail.subject).collect();
    assert_eq!(subjects, ["Task for you: count", "Task for you: rest"]);
    assert_eq!(held_up(&rig, &first).await.as_deref(), Some("3 tasks are open"));
}

/// Reminds everyone but cyd of the tasks of this one's root.
async fn remind(rig: &Rig, task: &Task) -> usize {
    let root_id = task.root_id;
    write!(rig, |w, ctx| tasks::remind(w, &ctx, root_id, &id("cyd")).await).unwrap()
}

/// `count` tasks of bob's, which ada has given it, in one chain of work.
async fn many(rig: &Rig, count: i32) -> Task {
    let first = task(rig, party("ada"), "one of many", &[]).await;
    let model = first.clone();
    write!(rig, |w, ctx| {
        for n in 1..count {
            let task_id = TaskId(ctx.id());
            // Those that are younger come first.
            w.task_put(&Task { task_id, title: format!("number {n}"), priority: n, ..model.clone() }).await?;
        }
        Ok::<_, ghost_domain::Refusal>(())
    })
    .unwrap();
    first
}

#[tokio::test]
async fn however_many_tasks_a_deleted_agent_leaves_none_is_left_out() {
    let rig = Rig::new().await;
    let first = many(&rig, 1_500).await;
    assert_eq!(held_up(&rig, &first).await.as_deref(), Some("1500 tasks are open"));
    let gone = write!(rig, |w, ctx| agents::delete(w, &ctx, &operator(), &id("bob")).await).unwrap();
    assert_eq!(gone.left.tasks_left, 1_500);
    let ends = rig.events().await;
    let end = ends.iter().find(|event| event.kind == EventKind::AgentDeleted).unwrap();
    assert_eq!(end.payload["tasks_left"], 1_500);
    let unsaid = read!(rig, |r| {
        let (mut unsaid, mut after) = (0, None);
        loop {
            let page = r.tasks_open(None, after, 500).await?;
            let Some(last) = page.last() else { break unsaid };
            after = Some(last.task_id);
            for task in &page {
                let history = r.task_events(task.task_id, 9).await?;
                let note = history.last().and_then(|event| event.note.clone());
                unsaid += u32::from(note.as_deref() != Some("its owner bob was deleted"));
            }
        }
    });
    assert_eq!(unsaid, 0);
    let mail = rig.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert_eq!(mail[0].subject.as_deref(), Some("bob was deleted with 1500 tasks of yours"));
    assert!(mail[0].body.contains("title: number 1499\n") && mail[0].body.contains("\n1480 more are on the board.\n"));
    let words = held_up(&rig, &first).await.unwrap();
    assert!(words.starts_with("1500 tasks are open: bob is deleted and owns 1500 tasks ("), "{words}");
    assert!(words.ends_with(", ...)"), "{words}");

    // Its successor gets those that come first whole, and of the rest a list.
    write!(rig, |w, ctx| agents::create(w, &ctx, &operator(), new_agent(&ctx, "bob")).await).unwrap();
    let mail = rig.inbox("bob").await;
    let last = mail.last().unwrap();
    assert_eq!((mail.len(), mail[0].subject.as_deref()), (201, Some("Task for you: number 1499")));
    assert_eq!(last.subject.as_deref(), Some("1300 tasks more for you"));
    assert!(last.body.contains("title: number 1299\n") && last.body.contains("\n1280 more are on the board.\n"));
    assert_eq!((last.kind, last.root_id), (Kind::Task, first.root_id));

    // So it does when a job is got going again.
    assert_eq!(remind(&rig, &first).await, 1_500);
    let mail = rig.inbox("bob").await.split_off(201);
    let last = mail.last().unwrap();
    assert_eq!((mail.len(), mail[0].subject.as_deref()), (201, Some("Task for you: number 1499")));
    assert_eq!((last.subject.as_deref(), last.root_id), (Some("1300 tasks more for you"), first.root_id));
    assert!(last.body.starts_with("These tasks are yours, too, ") && last.body.contains("title: number 1299\n"));
}

#[tokio::test]
async fn many_owners_that_are_reminded_share_what_is_told_whole() {
    let rig = Rig::new().await;
    let first = many(&rig, 300).await;
    let one = task(&rig, party("bob"), "small", &[]).await;
    let root_id = first.root_id;
    write!(rig, |w, ctx| {
        for n in 0..300 {
            let task_id = TaskId(ctx.id());
            w.task_put(&Task { task_id, owner: id("cyd"), title: format!("number {n}"), ..first.clone() }).await?;
        }
        w.task_put(&Task { owner: id("ada"), ..one }).await
    })
    .unwrap();
    let known = (rig.inbox("ada").await.len(), rig.inbox("bob").await.len());
    // Whoever is told otherwise has no share.
    let told = write!(rig, |w, ctx| tasks::remind(w, &ctx, root_id, &id("bob")).await).unwrap();
    assert_eq!((told, rig.inbox("bob").await.len()), (301, known.1));
    let subjects = |mail: Vec<ghost_domain::Envelope>| -> Vec<String> {
        mail.into_iter().filter_map(|mail| mail.subject).collect()
    };
    assert_eq!(subjects(rig.inbox("ada").await.split_off(known.0)), ["Task for you: small"]);
    let told = subjects(rig.inbox("cyd").await);
    assert_eq!((told.len(), told.last().map(String::as_str)), (101, Some("200 tasks more for you")));
}

#[tokio::test]
async fn a_creator_that_is_gone_too_or_has_no_room_keeps_nobody_from_being_deleted() {
    let rig = Rig::new().await;
    task(&rig, party("ada"), "count", &[]).await;
    task(&rig, party("bob"), "note", &[]).await;
    delete(&rig, "ada").await;
    delete(&rig, "bob").await;
    assert!(rig.inbox("cyd").await.is_empty());
}

#[tokio::test]
async fn an_agent_that_is_to_be_there_is_created_once_and_told_of_as_it_stands() {
    let rig = Rig::new().await;
    let once = async |by: Party, new: NewAgent| write!(rig, |w, ctx| agents::create_once(w, &ctx, &by, new).await);
    let (dan, new) = once(party("ada"), new_agent(&rig.ctx, "dan")).await.unwrap();
    assert!(new);
    let (again, new) = once(party("ada"), new_agent(&rig.ctx, "dan")).await.unwrap();
    assert_eq!((again.incarnation, new), (dan.incarnation, false));
    assert!(!once(operator(), new_agent(&rig.ctx, "dan")).await.unwrap().1);
    // Another's, another one, or one that is to be told something, is not the same.
    let refused = once(party("cyd"), new_agent(&rig.ctx, "dan")).await.unwrap_err();
    assert_eq!((refused.code, &refused.details.unwrap()["status"]), (Code::Conflict, &"running".into()));
    let other = NewAgent { archetype: "boss".into(), ..new_agent(&rig.ctx, "dan") };
    assert_eq!(code(once(party("ada"), other).await), Code::Conflict);
    let goal = NewAgent { goal: Some("count".into()), ..new_agent(&rig.ctx, "dan") };
    assert_eq!(code(once(party("ada"), goal).await), Code::Conflict);
    let narrowed = NewAgent { overrides: serde_json::json!({ "max_tokens": 5 }), ..new_agent(&rig.ctx, "dan") };
    assert_eq!(code(once(party("ada"), narrowed).await), Code::Conflict);
    // Nobody is called like the supervisor, or like everyone.
    for name in ["system", "all"] {
        assert_eq!(code(once(operator(), new_agent(&rig.ctx, name)).await), Code::InvalidArguments);
    }
}
