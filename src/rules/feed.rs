//! Reading the event feed: from storage up to the present, then live, in one order without gap or double (promise 5).

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

use ghost_domain::event::{Event, EventFilter};
use ghost_domain::{Code, Refusal};
use ghost_store::{Store, StoreError};
use serde_json::json;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::Result;

/// Events read from storage at a time.
const PAGE: u32 = 256;

/// An event of a batch that all readers share: to hold it copies nothing.
#[derive(Clone, Debug)]
pub struct FeedEvent {
    batch: Arc<[Event]>,
    at: usize,
}

impl Deref for FeedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        // Made in this file alone, from places that the batch has.
        &self.batch[self.at]
    }
}

/// One reader of the feed. Its memory is bounded: a page, or one live batch.
pub struct Subscription {
    store: Store,
    filter: EventFilter,
    live: broadcast::Receiver<Arc<[Event]>>,
    ready: VecDeque<FeedEvent>,
    /// The last sequence that was looked at.
    seen: i64,
    /// Where the feed stood when the reader began to listen: up to here it reads from storage.
    stored_until: i64,
    follow: bool,
    /// Wants the oldest that is kept and was given nothing yet: what retention takes meanwhile is none of its gaps.
    oldest: bool,
    /// Fell too far behind while looking for what is ready; said by the next `next`.
    behind: bool,
}

impl Subscription {
    /// Starts to read after `after` (0 is the first event that is still kept; `None` is the present). With `follow` it
    /// goes on with what happens; without, it ends with what had happened when it began.
    pub async fn open(store: &Store, after: Option<i64>, filter: EventFilter, follow: bool) -> Result<Self> {
        // Listening begins before the end of storage is looked at, so that nothing falls between the two.
        let live = store.feed();
        let (first, last) =
            store.read(|r| Box::pin(async move { r.event_bounds().await })).await.map_err(Refusal::from)?;
        let seen = match after {
            None => last,
            Some(0) => first - 1,
            Some(after) if after > last => {
                return Err(Refusal::new(Code::CursorAhead, format!("the feed has reached {last}, not {after}"))
                    .hint("resume from a sequence that you have seen")
                    .details(json!({ "first_seq": first, "last_seq": last })));
            }
            Some(after) if after < 0 => {
                return Err(Refusal::new(Code::InvalidArguments, format!("{after} is not a sequence"))
                    .hint("resume from the seq of an event, or from 0"));
            }
            Some(after) if after + 1 < first => {
                return Err(expired(after, first, last));
            }
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

    /// The last sequence that was looked at: where to resume.
    #[must_use]
    pub fn seen(&self) -> i64 {
        self.seen
    }

    /// The next event, or nothing at the end of a read without `follow` or when the store closes. A reader that fell too
    /// far behind is refused with the sequence to resume from, and one that retention has overtaken with the oldest that
    /// is kept. Cancel-safe.
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

    /// What is ready now, without waiting: for writing several events at once.
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
                // The channel says it only once, so it is kept for the next `next`.
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
            let shared = || FeedEvent { batch: Arc::clone(batch), at };
            if event.kind.is_ephemeral() {
                if event.seq >= self.seen && self.filter.matches(event) {
                    self.ready.push_back(shared());
                }
            } else if event.seq > self.seen {
                self.seen = event.seq;
                if self.filter.matches(event) {
                    self.ready.push_back(shared());
                }
            }
        }
    }

    async fn read_page(&mut self) -> Result<()> {
        let (after, filter) = (self.seen, self.filter.clone());
        // In one reading: retention may take events between two pages, but not between the bounds and the page.
        let (bounds, (events, looked_at)) = self
            .store
            .read(move |r| {
                Box::pin(async move {
                    let page = r.event_list(after, &filter, PAGE).await.map_err(unreadable)?;
                    // Whoever is given the next event has missed none.
                    let next = page.0.first().is_some_and(|event| event.seq == after + 1);
                    let bounds = if next { None } else { Some(r.event_bounds().await?) };
                    Ok::<_, Refusal>((bounds, page))
                })
            })
            .await?;
        if let Some((first, last)) = bounds.filter(|(first, _)| after + 1 < *first)
            && !self.oldest
        {
            return Err(expired(after, first, last));
        }
        self.oldest &= events.is_empty();
        // A page may reach past the point where live reading takes over; `seen` keeps the two from overlapping.
        self.seen = looked_at.max(self.seen);
        if events.is_empty() && looked_at <= after {
            self.seen = self.stored_until;
        }
        let page: Arc<[Event]> = events.into();
        self.ready.extend((0..page.len()).map(|at| FeedEvent { batch: Arc::clone(&page), at }));
        Ok(())
    }

    /// Says that the reader fell behind. What it missed is in storage, and it is read from there should it go on all the
    /// same.
    fn lagged(&mut self) -> Refusal {
        self.stored_until = self.store.last_seq();
        Refusal::new(Code::RateLimited, format!("this reader fell too far behind after sequence {}", self.seen))
            .hint("resume from that sequence; nothing is lost")
            .details(json!({ "lagged": true, "last_seq": self.seen }))
    }
}

/// Says how to go on behind an event that does not read back.
fn unreadable(error: StoreError) -> Refusal {
    let seq = match &error {
        StoreError::Row { key, .. } => key.parse::<i64>().ok(),
        _ => None,
    };
    let refusal = Refusal::from(error);
    match seq {
        Some(seq) => refusal.hint(format!(
            "this event is damaged, and only a backup of the database has it: read on after {seq} to pass it over, as in \
             `ghostctl events --after {seq}`"
        )),
        None => refusal,
    }
}

/// Says that what follows `after` is gone, in part or all of it.
fn expired(after: i64, first: i64, last: i64) -> Refusal {
    Refusal::new(
        Code::CursorExpired,
        format!("events after {after} are no longer kept; the oldest one kept is {first}"),
    )
    .hint(format!("resume after {} or from `oldest`, and know that what was before it is missing", first - 1))
    .details(json!({ "first_seq": first, "last_seq": last }))
}
