//! Keeps ghostd's workspace and the server's copy of it in agreement. Nothing is written here but entries that the server listed
//! below the places of a running command, with the sizes that it listed. One exchange runs at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};

use super::exchange::{Server, unavailable};
use super::node::{Change, Node, Nodes, Places, is_below};
use super::protocol::{Content, ENTRIES_MAX, LINE_MAX, Read, VERSION, What};
use super::transfer::Want;
use super::tree::{Hashes, Tree, TreeError};
use super::{node, transfer};

/// How long one agreement may take.
const AGREE_MAX: Duration = Duration::from_secs(600);
/// How often it is tried again because something changed meanwhile.
const ROUNDS: usize = 4;
/// Notes for an agent.
const NOTES_MAX: usize = 10;

/// The two copies.
pub(crate) struct Mirror {
    server: Arc<Server>,
    world: String,
    tree: Arc<Tree>,
    /// Bytes that one command may add.
    disk_bytes: u64,
    clock: Arc<dyn Clock>,
    state: tokio::sync::Mutex<State>,
    /// The places of running commands. When a command ends, nothing of it is brought back any more.
    pub(crate) active: Places,
}

#[derive(Default)]
struct State {
    /// Which life of the server's copy this is about.
    epoch: String,
    /// What both copies had when they agreed last.
    agreed: Nodes,
    /// What the server is believed to have.
    there: Nodes,
    hashes: Hashes,
    /// Links that were noted.
    noted: BTreeSet<String>,
}

/// What one round left undone: paths with reasons.
type Open = Vec<(String, String)>;

impl Mirror {
    pub(crate) fn new(server: Arc<Server>, world: String, tree: Tree, disk_bytes: u64, clock: Arc<dyn Clock>) -> Self {
        let (tree, state, active) = (Arc::new(tree), tokio::sync::Mutex::default(), Places::default());
        Self { server, world, tree, disk_bytes, clock, state, active }
    }

    /// Makes the copies agree below `scope`. Returns notes: what is not as one might expect.
    ///
    /// # Errors
    /// `TooLarge` if the workspace or what commands wrote is; `Unavailable` if the server fails. Then a part may have been
    /// sent and brought back, and every file is whole.
    pub(crate) async fn agree(&self, scope: &str, own: &[String]) -> Result<Vec<String>, Refusal> {
        let work = async {
            let mut state = self.state.lock().await;
            let (mut notes, mut open) = (Vec::new(), Vec::new());
            // The bound of a command is measured now and then, so it may have written more.
            let mut room = self.disk_bytes.saturating_mul(2).saturating_mul(self.active.count() as u64);
            for _ in 0..ROUNDS {
                open = self.round(scope, &mut state, &mut notes, &mut room).await?;
                if open.is_empty() {
                    return Ok(notes);
                }
            }
            // A command that runs may change its files faster than they are brought back. What other agents left there
            // must not end this agent's commands; only its own places must agree.
            let places = self.active.all();
            for (path, why) in open {
                let is_in = |places: &[String]| places.iter().any(|place| is_below(&path, place));
                if is_in(own) && !is_in(&places) {
                    return Err(unavailable(format!("does not take `{path}`: {why}")));
                }
                if notes.len() < NOTES_MAX {
                    notes.push(format!("`{path}` is not the same on both sides: {why}"));
                }
            }
            Ok(notes)
        };
        Server::within(&*self.clock, AGREE_MAX, work).await
    }

    async fn round(
        &self,
        scope: &str,
        state: &mut State,
        notes: &mut Vec<String>,
        room: &mut u64,
    ) -> Result<Open, Refusal> {
        let places = self.active.all();
        let mut here = self.here(scope, state).await?;
        self.there(scope, state).await?;
        let within = |nodes: &Nodes| -> Nodes {
            nodes
                .iter()
                .filter(|(path, _)| is_below(path, scope))
                .map(|(path, node)| (path.clone(), node.clone()))
                .collect()
        };
        let (agreed, mut there) = (within(&state.agreed), within(&state.there));
        let may_change = |path: &str| places.iter().any(|place| is_below(path, place));
        let steps = node::steps(&agreed, &here, &there, &may_change);
        let mut open = Vec::new();
        for link in &steps.stays {
            if state.noted.insert(link.clone()) && notes.len() < NOTES_MAX {
                notes.push(format!("`{link}` is a link; it stays on the toolbox server"));
            }
        }
        state.noted.retain(|path| there.contains_key(path));

        let (wants, plain): (Vec<Change>, Vec<Change>) =
            steps.fetch.into_iter().partition(|change| matches!(change.to, Some(Node::File { .. })));
        let mut wants: Vec<Want> = wants.into_iter().filter_map(Want::in_place).collect();
        for (path, file) in &steps.beside {
            let want = Want::beside(path, file);
            let name = want.target();
            if here.get(&name) != Some(file) {
                if notes.len() < NOTES_MAX {
                    notes.push(format!("`{path}` changed on both sides; the version of the command is `{name}`"));
                }
                wants.push(want);
            }
        }
        wants.retain(|want| match room.checked_sub(want.growth()) {
            Some(left) => {
                *room = left;
                true
            }
            None => {
                open.push((want.target(), "commands wrote more than sandbox.disk_mb".to_owned()));
                false
            }
        });
        for (change, done) in transfer::change_here(&self.tree, plain).await? {
            note(&mut here, &mut open, change, done);
        }
        for (want, done) in transfer::bring(&self.server, &self.world, &self.tree, wants).await? {
            note(&mut here, &mut open, want.change(), done);
        }
        for (change, done) in transfer::send(&self.server, &self.world, &self.tree, steps.send).await? {
            note(&mut there, &mut open, change, done);
        }

        let paths: BTreeSet<String> =
            agreed.into_keys().chain(here.keys().cloned()).chain(there.keys().cloned()).collect();
        for path in paths {
            match (here.get(&path), there.get(&path)) {
                (Some(one), Some(other)) if one == other => drop(state.agreed.insert(path, one.clone())),
                (None, None) => drop(state.agreed.remove(&path)),
                // They do not agree, so what they agreed on last counts.
                _ => {}
            }
        }
        state.there.retain(|path, _| !is_below(path, scope));
        state.there.append(&mut there);
        Ok(open)
    }

    /// What is here.
    async fn here(&self, scope: &str, state: &mut State) -> Result<Nodes, Refusal> {
        let (tree, scope, now) = (Arc::clone(&self.tree), scope.to_owned(), self.clock.now().0);
        let mut hashes = std::mem::take(&mut state.hashes);
        let listed = transfer::blocking(move || {
            let listed = tree.list(&scope, &mut hashes, &[], now);
            (listed, hashes)
        });
        let (listed, hashes) = listed.await?;
        state.hashes = hashes;
        match listed {
            Ok((nodes, 0)) => Ok(nodes),
            Ok((nodes, left_out)) => {
                tracing::debug!(left_out, "names of the workspace that are no text are not sent to the toolbox server");
                Ok(nodes)
            }
            Err(error @ TreeError::Io { .. }) => {
                Err(Refusal::new(Code::Unavailable, error.to_string()).hint("try again"))
            }
            Err(error) => Err(Refusal::new(
                Code::TooLarge,
                format!("{error}, so it cannot be sent to the toolbox server"),
            )
            .hint(
                "remove files that are not needed; with `sandbox.workspace_access: none` only the agent's own are sent",
            )),
        }
    }

    /// Learns what the server has.
    async fn there(&self, scope: &str, state: &mut State) -> Result<(), Refusal> {
        let known = node::digest(state.there.iter().filter(|(path, _)| is_below(path, scope)));
        let what = What::List { scope: scope.to_owned(), known: Some(known) };
        let mut answer =
            self.server.ask("/workspace/read", &Read { version: VERSION, world: self.world.clone(), what }).await?;
        let Content::List { epoch, same } = answer.part(LINE_MAX).await? else {
            return Err(unavailable("gave no list"));
        };
        if epoch.len() > 128 {
            return Err(unavailable("gave no list"));
        }
        if epoch != state.epoch {
            // It has lost its copy. Nothing that is missing there was deleted by a command.
            (state.agreed, state.epoch) = (Nodes::new(), epoch);
        }
        let mut found = Nodes::new();
        loop {
            match answer.part(LINE_MAX).await? {
                Content::End => break,
                Content::Entry(path, node) if !same && is_entry(scope, &path, &node) && found.len() < ENTRIES_MAX => {
                    found.insert(path, node);
                }
                _ => return Err(unavailable("gave a list that no workspace has")),
            }
        }
        if !same {
            state.there.retain(|path, _| !is_below(path, scope));
            state.there.append(&mut found);
        }
        Ok(())
    }
}

/// Whether an entry that a server listed can be one.
fn is_entry(scope: &str, path: &str, node: &Node) -> bool {
    let is_hash = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    node::is_plain(path)
        && is_below(path, scope)
        && !path.split('/').any(ghost_domain::write_acl::is_reserved)
        && match node {
            Node::File { sha256, .. } => is_hash(sha256),
            Node::Link { target } => target.len() <= node::PATH_MAX,
            Node::Dir | Node::Other => true,
        }
}

/// Records a change that was made, or why it was not.
fn note(nodes: &mut Nodes, open: &mut Open, change: Change, done: Result<(), String>) {
    match (done, change.to) {
        (Err(why), _) => open.push((change.path, why)),
        (Ok(()), Some(node)) => drop(nodes.insert(change.path, node)),
        (Ok(()), None) => drop(nodes.remove(&change.path)),
    }
}
