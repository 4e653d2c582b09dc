use super::name;
use crate::operation_tests::operation_world::*;

/// No posts.
const NONE: [i64; 0] = [];

fn query(limit: u32, before_seq: Option<i64>, after_seq: Option<i64>) -> HistoryQuery {
    HistoryQuery { channel: name("room"), limit, before_seq, after_seq }
}

async fn with_posts(count: i64) -> OperationWorld {
    let world = OperationWorld::new().await;
    world.open_channel("ada", "room", &["bob"], true).await.unwrap();
    for n in 1..=count {
        world.post_in("ada", "room", &format!("post {n}")).await.unwrap();
        world.pass(Duration::from_secs(1));
    }
    world
}

async fn refused(world: &OperationWorld, query: HistoryQuery) -> (Code, Value) {
    let refusal = world.history("", query).await.unwrap_err();
    assert!(refusal.hint.is_some());
    (refusal.code, refusal.details.unwrap())
}

// covers: CHAT-08
#[tokio::test]
async fn pages_go_back_from_the_newest_and_forward_from_a_cursor() {
    let world = with_posts(9).await;
    let of = async |limit, before, after| world.history("bob", query(limit, before, after)).await.unwrap();
    assert_eq!(of(3, None, None).await, [7, 8, 9]);
    assert_eq!(of(3, Some(7), None).await, [4, 5, 6]);
    assert_eq!(of(3, Some(1), None).await, NONE);
    assert_eq!(of(3, Some(10), None).await, [7, 8, 9]);
    assert_eq!(of(3, None, Some(0)).await, [1, 2, 3]);
    assert_eq!(of(3, None, Some(8)).await, [9]);
    assert_eq!(of(3, None, Some(9)).await, NONE);
    assert_eq!(of(500, Some(6), Some(3)).await, [4, 5]);
    assert_eq!(of(500, Some(3), Some(6)).await, NONE);
}

// covers: CHAT-13
#[tokio::test]
async fn only_members_the_creator_and_operators_read_a_channel() {
    let world = with_posts(2).await;
    assert_eq!(code(world.history("cyd", query(50, None, None)).await), Code::AccessDenied);
    world.invite("ada", "room", "cyd").await.unwrap();
    assert_eq!(world.history("cyd", query(50, None, None)).await.unwrap(), [1, 2], "posts from before it joined");
    world.expel("ada", "room", "cyd").await.unwrap();
    assert_eq!(code(world.history("cyd", query(50, None, None)).await), Code::AccessDenied, "CHAT-13");
    world.expel("", "room", "ada").await.unwrap();
    assert_eq!(world.history("ada", query(50, None, None)).await.unwrap(), [1, 2], "its creator reads it");
    let elsewhere = HistoryQuery { channel: name("rooms"), ..query(50, None, None) };
    assert_eq!(code(world.history("", elsewhere).await), Code::NotFound);
}

#[tokio::test]
async fn each_invalid_cursor_is_refused_with_its_own_code() {
    let world = with_posts(5).await;
    for (bad, problem) in [
        (query(5, Some(7), None), Code::CursorAhead),
        (query(5, None, Some(6)), Code::CursorAhead),
        (query(5, None, Some(i64::MAX)), Code::CursorAhead),
        (query(5, Some(0), None), Code::InvalidArguments),
        (query(5, None, Some(-1)), Code::InvalidArguments),
    ] {
        let (code, details) = refused(&world, bad).await;
        assert_eq!(code, problem);
        assert_eq!(details["last_seq"], 5);
    }
    for limit in [0, 501] {
        assert_eq!(code(world.history("", query(limit, None, None)).await), Code::InvalidArguments);
    }
}

#[tokio::test]
async fn a_cursor_before_the_oldest_kept_post_is_refused_with_its_sequence() {
    let world = with_posts(9).await;
    let before = world.ctx.now().minus(Duration::from_millis(5_500));
    let gone = run!(world, |w| w.prune(Family::ChatPosts, before, 100)).unwrap();
    assert_eq!(gone, 4);
    assert_eq!(world.history("", query(50, None, None)).await.unwrap(), [5, 6, 7, 8, 9]);
    assert_eq!(world.history("", query(50, None, Some(4))).await.unwrap(), [5, 6, 7, 8, 9]);
    assert_eq!(world.history("", query(50, Some(6), None)).await.unwrap(), [5]);
    assert_eq!(world.history("", query(50, Some(1), None)).await.unwrap(), NONE, "there never was anything before it");
    for bad in [query(5, None, Some(3)), query(5, None, Some(0)), query(5, Some(5), None), query(5, Some(2), None)] {
        let (code, details) = refused(&world, bad).await;
        assert_eq!(code, Code::CursorExpired);
        assert_eq!(details["oldest_seq"], 5);
    }
    // Pruning does not change the next sequence.
    let now = world.ctx.now();
    run!(world, |w| w.prune(Family::ChatPosts, now, 100)).unwrap();
    assert_eq!(world.history("", query(50, None, None)).await.unwrap(), NONE);
    let (code, details) = refused(&world, query(5, None, Some(3))).await;
    assert_eq!((code, &details["oldest_seq"]), (Code::CursorExpired, &Value::Null));
    assert_eq!(world.post_in("ada", "room", "ten").await.unwrap().post.seq, 10);
}
