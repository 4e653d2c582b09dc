//! Keeps the file of artifacts beside their table: made anew at the start, then extended by a line for each
//! event. One loop writes it, so that lines never mix.
//!
//! A failure to write the file must never fail anything else: it is logged, and the next event makes the file anew.

use std::sync::Arc;

use ghost_domain::event::EventFilter;
use ghost_operations::feed::Subscription;
use ghost_tools::manifest;

use crate::loops::MANIFEST;
use crate::tree::Tree;

/// Lines that are added before the file is made anew, which drops those that no longer hold.
const LINES_MAX: usize = 10_000;

/// Follows the feed until the store closes.
pub(crate) async fn rounds(tree: Arc<Tree>) -> Result<(), String> {
    let services = &tree.engine.services;
    loop {
        let filter = EventFilter { kinds: vec!["artifact.".to_owned()], ..EventFilter::default() };
        // Opened before the table is read, so that no event falls between the two.
        let opened = Subscription::open(&services.store, None, filter, true).await;
        let mut feed = opened.map_err(|refusal| refusal.in_words())?;
        let mut whole = manifest::rewrite(services).await.map(drop);
        tree.loops.round(MANIFEST);
        for _ in 0..LINES_MAX {
            if let Err(refusal) = &whole {
                tracing::warn!(%refusal, file = manifest::INDEX, "the index of artifacts is not up to date");
            }
            let event = match feed.next().await {
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                // It fell behind: the table has what it missed.
                Err(_) => break,
            };
            whole = match (&whole, manifest::line_of(&event)) {
                (Ok(()), Some(line)) => manifest::append(services, line).await,
                (Ok(()), None) => Ok(()),
                (Err(_), _) => manifest::rewrite(services).await.map(drop),
            };
        }
    }
}
