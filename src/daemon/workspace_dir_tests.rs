//! Tests of the claim on a workspace outside of the data directory.

use ghost_domain::testing::ManualClock;
use tempfile::TempDir;

use super::*;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        for dir in ["one", "two"] {
            let dir = home.path(dir);
            std::fs::create_dir_all(dir.join("archetype/clerk")).unwrap();
            for name in ["soul.md", "goal.md"] {
                std::fs::write(dir.join("archetype/clerk").join(name), "I am.").unwrap();
            }
        }
        home.world("one", "desk", "");
        home.world("two", "news", "");
        home
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    /// Writes a world file.
    fn world(&self, dir: &str, id: &str, more: &str) {
        let text = format!(
            "world: {{ id: {id} }}\nagents: [{{ id: ada, archetype: clerk }}]\n\
             llm: {{ default_provider: scripted, default_model: clerk }}\n{more}"
        );
        std::fs::write(self.path(dir).join("world-config.yaml"), text).unwrap();
    }

    async fn data(&self, name: &str) -> DataDir {
        DataDir::lock(&self.path(name), &*ManualClock::at(0)).await.unwrap()
    }

    /// Claims the workspace `given` for the world in `dir`.
    async fn claim(&self, data: &DataDir, dir: &str, given: &str, adopt: bool) -> Result<WorkspaceDir, Refusal> {
        let plan = ghost_config::load(&self.path(dir), &|_| None).unwrap();
        let given = Some(self.path(given)).filter(|_| !given.is_empty());
        let clock = ManualClock::at(0);
        let claim = WorkspaceDir::claim(data, &plan, given.as_deref(), adopt, &*clock);
        tokio::pin!(claim);
        for _ in 0..KILLED_TRIES {
            if let std::task::Poll::Ready(claim) = futures_util::poll!(&mut claim) {
                return claim;
            }
            clock.advance(AGAIN);
        }
        claim.await
    }

    async fn refused(&self, data: &DataDir, dir: &str, given: &str, adopt: bool) -> Code {
        let refusal = self.claim(data, dir, given, adopt).await.unwrap_err();
        assert!(refusal.hint.is_some(), "{refusal}");
        refusal.code
    }
}

// covers: WORLD-04, STORE-04
#[tokio::test]
async fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
    let home = Home::new();
    let data = home.data("data").await;
    let dir = home.claim(&data, "one", "", false).await.unwrap();
    assert_eq!((dir.path(), dir.is_apart()), (data.path().join(WORKSPACE).as_path(), false));
    home.world("one", "desk", "workspace_dir: ../apart/files\n");
    let dir = home.claim(&data, "one", "", false).await.unwrap();
    assert_eq!((dir.path(), dir.is_apart()), (home.path("apart/files").as_path(), true));
    // What is not kept leaves nothing behind.
    assert!(home.path("apart/files").join(MARK).is_file());
    drop(dir);
    assert!(!home.path("apart").exists());
    let dir = home.claim(&data, "one", "data/files", false).await.unwrap();
    assert_eq!((dir.path(), dir.is_apart()), (home.path("data/files").as_path(), false));
}

// covers: STORE-04
#[tokio::test]
async fn a_workspace_belongs_to_one_world_and_its_data() {
    let home = Home::new();
    let (first, second) = (home.data("data").await, home.data("other").await);
    let dir = home.claim(&first, "one", "files", false).await.unwrap();
    dir.keep();
    assert!(!dir.has_files(), "the mark is not a file of agents");
    // It is in use.
    assert_eq!(home.refused(&second, "two", "files", true).await, Code::Conflict);
    drop(dir);
    // The directory of the first world is locked again without a word.
    first.keep("desk", &home.path("one"));
    home.claim(&first, "one", "files", false).await.unwrap();
    assert!(home.path("files").join(MARK).is_file());
    // Another world never gets it; other data of the same world only with `--adopt`.
    for adopt in [false, true] {
        assert_eq!(home.refused(&second, "two", "files", adopt).await, Code::Conflict);
    }
    assert_eq!(home.refused(&second, "one", "files", false).await, Code::Conflict);
    home.claim(&second, "one", "files", true).await.unwrap();
    // Nor a directory in it, or in the data directory of another world.
    assert_eq!(home.refused(&second, "two", "files/projects", true).await, Code::Conflict);
    assert_eq!(home.refused(&second, "two", "data/workspace", true).await, Code::Conflict);
    assert!(!home.path("files/projects").exists() && !home.path("data/workspace").exists());

    // The same data at a new place is still the same.
    drop(first);
    std::fs::rename(home.path("data"), home.path("moved")).unwrap();
    let moved = home.data("moved").await;
    let dir = home.claim(&moved, "one", "files", false).await.unwrap();
    dir.keep();
    drop(dir);
    assert_eq!(home.refused(&second, "one", "files", false).await, Code::Conflict);
    // A mark that was cut off names no world.
    std::fs::write(home.path("files").join(MARK), "desk\n/som").unwrap();
    assert_eq!(home.refused(&moved, "one", "files", true).await, Code::Conflict);
    // An empty one is from a start that was killed.
    std::fs::write(home.path("files").join(MARK), "").unwrap();
    home.claim(&second, "two", "files", false).await.unwrap();
}

#[tokio::test]
async fn a_workspace_that_shares_files_with_the_world_or_is_missing_is_refused() {
    let home = Home::new();
    let data = home.data("data").await;
    for place in ["one", "one/archetype", "data", "data/agents"] {
        assert_eq!(home.refused(&data, "one", place, false).await, Code::InvalidArguments, "{place}");
    }
    let dir = home.claim(&data, "one", "files", false).await.unwrap();
    assert_eq!(dir.check_kept().unwrap_err().code, Code::Unavailable, "it did not exist");
    drop(dir);
    std::fs::create_dir(home.path("files")).unwrap();
    home.claim(&data, "one", "files", false).await.unwrap().check_kept().unwrap();
    assert!(!home.path("files").join(MARK).exists());
    // If a world has run, a missing workspace is not made.
    data.keep("desk", &home.path("one"));
    assert_eq!(home.refused(&data, "one", "mount/files", false).await, Code::Unavailable);
    assert!(!home.path("mount").exists());
    std::fs::write(home.path("plain"), "").unwrap();
    assert_eq!(home.refused(&data, "one", "plain", false).await, Code::Unavailable);
}
