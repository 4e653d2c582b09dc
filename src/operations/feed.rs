//! Reads the event feed: from storage up to the present, then live. Events come in one order,
//! without gaps or duplicates (promise 5).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use ghost_domain::event::EventFilter;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::prelude::*;

/// The number of events read from storage at a time.
const PAGE: u32 = 256;

/// An event in a batch that all readers share. Keeping it copies nothing.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    batch: Arc<[Event]>,
    at: usize,
}

impl Deref for FeedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        // Only this file creates such values, with indexes that the batch has.
        &self.batch[self.at]
    }
}

/// One reader of the feed. It holds at most one page or one live batch in memory.
pub struct Subscription {
    store: Store,
    filter: EventFilter,
    live: broadcast::Receiver<Arc<[Event]>>,
    ready: VecDeque<FeedEvent>,
    /// The last sequence that was read, whether or not the filter matched.
    seen: i64,
    /// The last sequence when the subscription began. Up to here it reads from storage.
    stored_until: i64,
    follow: bool,
    /// The reader asked for the oldest events and has received none yet. Events that retention
    /// deletes meanwhile are then no gap.
    oldest: bool,
    /// Set by `try_next` if the reader fell too far behind. The following `next` reports it.
    behind: bool,
}

impl Subscription {
    /// Starts to read after sequence `after`: 0 means the oldest event that is kept, `None` means
    /// the present. With `follow` it continues with new events; without, it ends at the last event
    /// that existed when it began.
    ///
    /// # Errors
    /// `CursorAhead` if `after` is in the future; `CursorExpired` if events after it were deleted;
    /// `InvalidArguments` if it is negative.
    pub async fn open(store: &Store, after: Option<i64>, filter: EventFilter, follow: bool) -> Result<Self> {
        // The live feed is subscribed before the end of storage is read, so that no event falls
        // between the two.
        let live = store.feed();
        let (first, last) = store.read(|r| r.event_bounds()).await.map_err(Refusal::from)?;
        let seen = match after {
            None => last,
            Some(0) => first - 1,
            Some(after) if after > last => {
                return Err(refusal!(CursorAhead, "the feed has reached {last}, not {after}")
                    .hint("resume from a sequence that you have seen")
                    .details(json!({ "first_seq": first, "last_seq": last })));
            }
            Some(after) if after < 0 => {
                return Err(refusal!(InvalidArguments, "{after} is not a sequence")
                    .hint("resume from the seq of an event, or from 0"));
            }
            Some(after) if after + 1 < first => return Err(expired(after, first, last)),
            Some(after) => after,
        };
        Ok(Self {
            store: store.clone(),
            filter,
            live,
            ready: VecDeque::new(),
            seen,
            stored_until: last,
            follow,
            oldest: after == Some(0),
            behind: false,
        })
    }

    /// The last sequence that was read. A reader resumes from here.
    #[must_use]
    pub fn seen(&self) -> i64 {
        self.seen
    }

    /// Returns the next event, or `None` at the end of a read without `follow` or when the store
    /// closes. Cancel-safe.
    ///
    /// # Errors
    /// `RateLimited` if the reader fell too far behind, with the sequence to resume from;
    /// `CursorExpired` if retention deleted events that it had not read yet.
    pub async fn next(&mut self) -> Result<Option<FeedEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if std::mem::take(&mut self.behind) {
                return Err(self.lagged());
            }
            if self.seen < self.stored_until {
                self.read_page().await?;
                continue;
            }
            if !self.follow {
                return Ok(None);
            }
            match self.live.recv().await {
                Ok(batch) => self.take_batch(&batch),
                Err(RecvError::Closed) => return Ok(None),
                Err(RecvError::Lagged(_)) => return Err(self.lagged()),
            }
        }
    }

    /// Returns an event that is ready without waiting, so that several events can be written at
    /// once.
    pub fn try_next(&mut self) -> Option<FeedEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.seen < self.stored_until || !self.follow || self.behind {
                return None;
            }
            match self.live.try_recv() {
                Ok(batch) => self.take_batch(&batch),
                // The channel reports this only once, so it is kept for the following `next`.
                Err(TryRecvError::Lagged(_)) => {
                    self.behind = true;
                    return None;
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }

    fn take_batch(&mut self, batch: &Arc<[Event]>) {
        for (at, event) in batch.iter().enumerate() {
            let stored = !event.kind.is_ephemeral();
            let is_new = event.seq > self.seen || (event.seq == self.seen && !stored);
            if stored {
                self.seen = self.seen.max(event.seq);
            }
            if is_new && self.filter.matches(event) {
                self.ready.push_back(FeedEvent { batch: Arc::clone(batch), at });
            }
        }
    }

    async fn read_page(&mut self) -> Result<()> {
        let (after, filter) = (self.seen, self.filter.clone());
        // One read for both, because retention may delete events between two reads.
        let (bounds, (events, read_to)) = self
            .store
            .read(move |r| {
                let page = r.event_list(after, &filter, PAGE).map_err(unreadable)?;
                // If the next event in order is in the page, no event is missing.
                let next = page.0.first().is_some_and(|event| event.seq == after + 1);
                let bounds = if next { None } else { Some(r.event_bounds()?) };
                Ok::<_, Refusal>((bounds, page))
            })
            .await?;
        if let Some((first, last)) = bounds.filter(|(first, _)| after + 1 < *first)
            && !self.oldest
        {
            return Err(expired(after, first, last));
        }
        self.oldest &= events.is_empty();
        // A page may reach past the point where live reading takes over; `seen` prevents
        // duplicates.
        self.seen = read_to.max(self.seen);
        if events.is_empty() && read_to <= after {
            self.seen = self.stored_until;
        }
        let page: Arc<[Event]> = events.into();
        self.ready.extend((0..page.len()).map(|at| FeedEvent { batch: Arc::clone(&page), at }));
        Ok(())
    }

    /// Builds the refusal for a reader that fell behind. The missed events are in storage, and the
    /// reader gets them from there if it continues.
    fn lagged(&mut self) -> Refusal {
        self.stored_until = self.store.last_seq();
        refusal!(RateLimited, "this reader fell too far behind after sequence {}", self.seen)
            .hint("resume from that sequence; nothing is lost")
            .details(json!({ "lagged": true, "last_seq": self.seen }))
    }
}

/// Adds to the error about a damaged event how to continue after it.
fn unreadable(error: StoreError) -> Refusal {
    let hint = match &error {
        StoreError::Row { key, .. } if key.parse::<i64>().is_ok() => format!(
            "this event is damaged and only a backup of the database can restore it; skip it by reading after {key}, \
             as in `ghostctl events --after {key}`"
        ),
        _ => return error.into(),
    };
    Refusal::from(error).hint(hint)
}

/// Builds the refusal for a reader whose next events were deleted.
fn expired(after: i64, first: i64, last: i64) -> Refusal {
    refusal!(CursorExpired, "events after {after} are no longer kept; the oldest one kept is {first}")
        .hint(format!("resume after {} or from `oldest`; earlier events were deleted", first - 1))
        .details(json!({ "first_seq": first, "last_seq": last }))
}
