//! A reader of a room: first what is stored after its cursor, then what happens.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use throughline_canonical::Fault;
use tokio::sync::watch;

use super::Rooms;
use super::event::{Frame, StoredEvent};
use super::feed::Next;
use super::room::Category;
use super::task::LiveRoom;
use crate::projects::Caller;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::sealed_store::UNREADABLE;

/// Entries that are read at a time.
const LOG_PAGE: usize = 100;

/// Ready when a reader is no member of the project any more.
struct Removal(BoxFuture<'static, Fault>);

impl fmt::Debug for Removal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Removal").finish_non_exhaustive()
    }
}

/// A reader of a room.
#[derive(Debug)]
pub struct RoomReader {
    source: Source,
    /// Whether the reader gets what models think.
    thinking: bool,
    /// `None` for the owner.
    removal: Option<Removal>,
    is_over: bool,
}

/// The events of a room, first those that are stored.
#[derive(Debug)]
struct Source {
    rooms: Arc<Rooms>,
    home: RoomHome,
    live: Arc<LiveRoom>,
    changed: watch::Receiver<u64>,
    /// The number of the last stored event that the reader got.
    after: u64,
    /// What comes first: stored events up to this number.
    stored_until: u64,
    stored: VecDeque<Frame>,
    /// What comes then: thinking that has not ended.
    open: VecDeque<Frame>,
    /// The position in the feed, which comes last.
    position: u64,
}

impl Rooms {
    /// A reader after a cursor, for a channel of the room or for the caller.
    pub async fn read(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        channel: Option<&str>,
        after: u64,
    ) -> Result<RoomReader, Problem> {
        let open = self.open(caller, id).await?;
        let thinking = match channel {
            None => true,
            Some(channel) => {
                let binding = open.content.binding(channel);
                let binding =
                    binding.ok_or_else(|| Problem::not_found("channel in this room", channel))?;
                let thinking = binding.metadata.thinking;
                thinking.unwrap_or(binding.category == Category::Intelligence)
            }
        };
        let removal = self.projects.end_of_membership(caller, &open.home.project.id).await?;
        let live = self.live(&open.home).await?;
        // The task sees the reader before it begins, so that it does not end.
        let changed = live.feed.watch();
        let last = self.sealed_store.store.last_entry(id).await?;
        if after > last {
            let wrong = format!("there is no event {after}; the last one is {last}");
            return Err(Problem::invalid("after", wrong)
                .hint("send the `seq` of an event that you received"));
        }
        live.wake();
        let start = live.feed.join(id);
        let source = Source {
            rooms: self.clone(),
            home: open.home,
            live,
            changed,
            after,
            stored_until: start.last,
            stored: VecDeque::new(),
            open: start.open.into(),
            position: start.position,
        };
        let removal = removal.map(Removal);
        Ok(RoomReader { source, thinking, removal, is_over: false })
    }
}

impl RoomReader {
    /// The next event. `None` at the end: the reader was too slow or is no member any more, the room is
    /// gone, or the key of a sealed project may not be used any more or was changed.
    pub async fn next(&mut self) -> Option<Frame> {
        while !self.is_over {
            let Self { source, removal, .. } = self;
            let seal = source.home.seal.clone();
            let removed = async {
                match removal {
                    Some(Removal(removal)) => drop(removal.await),
                    None => pending().await,
                }
            };
            let frame = tokio::select! {
                biased;
                () = removed => None,
                () = seal.revoked() => None,
                frame = source.next_frame() => frame,
            };
            self.is_over = frame.is_none();
            let frame = frame?;
            if frame.is_thinking && !self.thinking {
                continue;
            }
            match frame.seq {
                Some(seq) if seq <= self.source.after => {}
                Some(seq) => {
                    self.source.after = seq;
                    return Some(frame);
                }
                None => return Some(frame),
            }
        }
        None
    }
}

impl Source {
    async fn next_frame(&mut self) -> Option<Frame> {
        if self.stored.is_empty() && self.after < self.stored_until {
            self.read_stored().await?;
        }
        if let Some(frame) = self.stored.pop_front().or_else(|| self.open.pop_front()) {
            return Some(frame);
        }
        loop {
            match self.live.feed.at(self.position) {
                Next::Frame(frame) => {
                    self.position += 1;
                    return Some(frame);
                }
                Next::End => return None,
                Next::Wait => {
                    self.changed.changed().await.ok()?;
                }
            }
        }
    }

    /// Reads the next stored events.
    async fn read_stored(&mut self) -> Option<()> {
        let store = &self.rooms.sealed_store.store;
        let page = match store.room_log(&self.home.room, self.after, LOG_PAGE).await {
            Ok(page) => page,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(room = self.home.room, error, "cannot read the log of a room");
                return None;
            }
        };
        let mut frames = VecDeque::new();
        let until = self.stored_until;
        for entry in page.into_iter().filter(|entry| entry.number <= until) {
            let event = self.home.open(&entry).unwrap_or_else(|error| {
                // The events after it are still shown.
                let message = crate::sealed_store::fault(error).message;
                StoredEvent::error(UNREADABLE, &message, None, None)
            });
            match self.rooms.shown_event(&self.home, entry.number, event).await {
                Ok(event) => frames.push_back(Frame::new(&event)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(room = self.home.room, error, "cannot open an event of a room");
                    return None;
                }
            }
        }
        if frames.is_empty() {
            // Entries are never removed one by one, so there is nothing to wait for.
            self.stored_until = self.after;
        }
        self.stored = frames;
        Some(())
    }
}
