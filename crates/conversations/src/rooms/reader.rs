//! A reader of a room: first what is stored after its cursor, then what happens.

use std::collections::VecDeque;
use std::sync::Arc;

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

/// A reader of a room.
#[derive(Debug)]
pub struct RoomReader {
    rooms: Arc<Rooms>,
    home: RoomHome,
    live: Arc<LiveRoom>,
    changed: watch::Receiver<u64>,
    /// Whether the reader gets what models think.
    thinking: bool,
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
        Ok(RoomReader {
            rooms: self.clone(),
            home: open.home,
            live,
            changed,
            thinking,
            after,
            stored_until: start.last,
            stored: VecDeque::new(),
            open: start.open.into(),
            position: start.position,
        })
    }
}

impl RoomReader {
    /// The next event. `None` at the end: the reader was too slow, the room is gone, or the key of a sealed
    /// project may not be used any more.
    pub async fn next(&mut self) -> Option<Frame> {
        let seal = self.home.seal.clone();
        loop {
            let frame = tokio::select! {
                frame = self.next_frame() => frame?,
                () = seal.revoked() => return None,
            };
            if frame.is_thinking && !self.thinking {
                continue;
            }
            match frame.seq {
                Some(seq) if seq <= self.after => {}
                Some(seq) => {
                    self.after = seq;
                    return Some(frame);
                }
                None => return Some(frame),
            }
        }
    }

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
