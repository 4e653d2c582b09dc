//! Tasks whose owner is deleted, and the later agent with the same id.

use super::operation_world::*;

async fn task(world: &OperationWorld, by: Party, title: &str, depends_on: &[TaskId]) -> Task {
    let new = new_task("bob", title, at_hop(RootId(Uuid::from_u128(7)), 1));
    let new = NewTask { depends_on: depends_on.to_vec(), ..new };
    run!(world, |w| tasks::create(w, &by, new)).unwrap()
}

world_test!(the_creators_of_a_deleted_agents_tasks_are_notified_and_a_later_agent_gets_them, async |world| {
    let first = task(&world, party("ada"), "count", &[]).await;
    let second = task(&world, party("ada"), "sum up", &[first.task_id]).await;
    let own = task(&world, operator(), "rest", &[]).await;
    let letter = world.send("bob", "are you there?").await;
    delete(&world, "bob").await;

    // They are still open, and the report says why they make no progress.
    for (task, status) in [(&first, TaskStatus::Pending), (&second, TaskStatus::Blocked), (&own, TaskStatus::Pending)] {
        let task_id = task.task_id;
        let (now, history) = read!(world, |r| (r.task_get(task_id)?.unwrap(), r.task_events(task_id, 9)?));
        assert_eq!((now.status, now.owner), (status, id("bob")));
        assert!(history.last().unwrap().note.as_ref().unwrap().contains("bob"));
    }
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1, "one letter for one chain of work");
    assert_eq!((mail[0].kind, &mail[0].from, mail[0].root_id), (Kind::Task, &Party::System, first.root_id));
    let subject = mail[0].subject.as_deref().unwrap();
    assert!(subject.contains("bob") && subject.contains('2'), "{subject}");
    for task in [&first, &second] {
        assert!(mail[0].body.contains(&task.task_id.to_string()), "{}", mail[0].body);
    }
    let end = world.event(EventKind::AgentDeleted).await;
    assert_eq!((&end.payload["tasks_left"], &end.payload["mail_dropped"]), (&3.into(), &3.into()));
    assert!(end.payload["messages"].to_string().contains(&letter.message_id.to_string()), "{}", end.payload);
    assert!(end.payload["tasks"].to_string().contains(&own.task_id.to_string()), "{}", end.payload);
    // A job that goes on reminds the others of theirs.
    assert_eq!(remind(&world, &first).await, 0);

    // The new agent with the id gets the tasks that are ready.
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "bob") };
    run!(world, |w| agents::create(w, &Party::System, named)).unwrap();
    let subjects: Vec<String> = world.inbox("bob").await.into_iter().filter_map(|mail| mail.subject).collect();
    assert!(subjects.len() == 2 && subjects[0].ends_with(": count") && subjects[1].ends_with(": rest"), "{subjects:?}");
});

/// Reminds the owners of the tasks of this root.
async fn remind(world: &OperationWorld, task: &Task) -> usize {
    let root_id = task.root_id;
    run!(world, |w| tasks::remind(w, root_id)).unwrap()
}

/// `count` tasks of bob, created by ada in one chain of work.
async fn many(world: &OperationWorld, count: i32) -> Task {
    let first = task(world, party("ada"), "one of many", &[]).await;
    let model = first.clone();
    run!(world, |w| {
        for n in 1..count {
            let task_id = TaskId(w.ctx.id());
            // Newer tasks have a higher priority.
            w.task_put(&Task { task_id, title: format!("number {n}"), priority: n, ..model.clone() })?;
        }
        Ok::<_, Refusal>(())
    })
    .unwrap();
    first
}

world_test!(all_tasks_of_a_deleted_agent_are_reported_however_many, async |world| {
    let first = many(&world, 1_500).await;
    assert_eq!(delete(&world, "bob").await.left.tasks_left, 1_500);
    assert_eq!(world.event(EventKind::AgentDeleted).await.payload["tasks_left"], 1_500);
    let unsaid = read!(world, |r| {
        let (mut unsaid, mut after) = (0, None);
        loop {
            let page = r.tasks_open(None, after, 500)?;
            let Some(last) = page.last() else { break unsaid };
            after = Some(last.task_id);
            for task in &page {
                let history = r.task_events(task.task_id, 9)?;
                let note = history.last().and_then(|event| event.note.clone());
                unsaid += u32::from(!note.is_some_and(|note| note.contains("bob")));
            }
        }
    });
    assert_eq!(unsaid, 0);
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    let says = |text: &str, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    assert!(says(mail[0].subject.as_deref().unwrap(), &["bob", "1500"]));
    assert!(says(&mail[0].body, &["title: number 1499\n", "\n1480 more "]), "{}", mail[0].body);

    // The later agent gets the first tasks in full and the rest in a list.
    world.add_agent(new_agent(&world.ctx, "bob")).await;
    let mail = world.inbox("bob").await;
    let last = mail.last().unwrap();
    assert!(mail.len() == 201 && says(mail[0].subject.as_deref().unwrap(), &["number 1499"]));
    assert!(says(last.subject.as_deref().unwrap(), &["1300 "]));
    assert!(says(&last.body, &["title: number 1299\n", "\n1280 more "]), "{}", last.body);
    assert_eq!((last.kind, last.root_id), (Kind::Task, first.root_id));

    // The same happens when a job is continued.
    assert_eq!(remind(&world, &first).await, 1_500);
    let mail = world.inbox("bob").await.split_off(201);
    let last = mail.last().unwrap();
    assert!(mail.len() == 201 && says(mail[0].subject.as_deref().unwrap(), &["number 1499"]));
    assert!(says(last.subject.as_deref().unwrap(), &["1300 "]) && last.root_id == first.root_id);
    assert!(says(&last.body, &["title: number 1299\n"]), "{}", last.body);
});

world_test!(many_reminded_owners_share_the_tasks_that_are_sent_in_full, async |world| {
    let first = many(&world, 300).await;
    let one = task(&world, party("bob"), "small", &[]).await;
    let root_id = first.root_id;
    run!(world, |w| {
        for n in 0..300 {
            let task_id = TaskId(w.ctx.id());
            w.task_put(&Task { task_id, owner: id("cyd"), title: format!("number {n}"), ..first.clone() })?;
        }
        w.task_put(&Task { owner: id("ada"), ..one })
    })
    .unwrap();
    let known = (world.inbox("ada").await.len(), world.inbox("bob").await.len());
    let count = run!(world, |w| tasks::remind(w, root_id)).unwrap();
    assert_eq!((count, world.inbox("bob").await.len()), (601, known.1 + 67));
    let subjects = |mail: Vec<Envelope>| -> Vec<String> { mail.into_iter().filter_map(|mail| mail.subject).collect() };
    let told = subjects(world.inbox("ada").await.split_off(known.0));
    assert!(told.len() == 1 && told[0].ends_with(": small"), "{told:?}");
    let reminded = subjects(world.inbox("cyd").await);
    assert!(reminded.len() == 67 && reminded[66].contains("234 "), "{reminded:?}");
});

world_test!(a_deleted_creator_or_a_full_inbox_does_not_prevent_a_deletion, async |world| {
    task(&world, party("ada"), "count", &[]).await;
    task(&world, party("bob"), "note", &[]).await;
    delete(&world, "ada").await;
    delete(&world, "bob").await;
    assert!(world.inbox("cyd").await.is_empty());
});

world_test!(creating_the_same_agent_again_returns_the_existing_one, async |world| {
    let once = async |by: Party, new: NewAgent| run!(world, |w| agents::create_once(w, &by, new));
    let (dan, new) = once(party("ada"), new_agent(&world.ctx, "dan")).await.unwrap();
    assert!(new);
    let (again, new) = once(party("ada"), new_agent(&world.ctx, "dan")).await.unwrap();
    assert_eq!((again.incarnation, new), (dan.incarnation, false));
    assert!(!once(operator(), new_agent(&world.ctx, "dan")).await.unwrap().1);
    // An agent of another creator, a different one, or one with a goal is not the same.
    let refused = once(party("cyd"), new_agent(&world.ctx, "dan")).await.unwrap_err();
    assert_eq!((refused.code, &refused.details.unwrap()["status"]), (Code::Conflict, &"running".into()));
    let other = NewAgent { archetype: "boss".into(), ..new_agent(&world.ctx, "dan") };
    assert_eq!(code(once(party("ada"), other).await), Code::Conflict);
    let goal = NewAgent { goal: Some("count".into()), ..new_agent(&world.ctx, "dan") };
    assert_eq!(code(once(party("ada"), goal).await), Code::Conflict);
    let narrowed = NewAgent { overrides: serde_json::json!({ "max_tokens": 5 }), ..new_agent(&world.ctx, "dan") };
    assert_eq!(code(once(party("ada"), narrowed).await), Code::Conflict);
    // Reserved names are refused.
    for name in ["system", "all"] {
        assert_eq!(code(once(operator(), new_agent(&world.ctx, name)).await), Code::InvalidArguments);
    }
});
