//! What the readers of a room see. Each event is written once, into a bounded queue that all readers of
//! the room share; each one reads it at its own pace. A reader that is too slow loses its home and is
//! detached: it can resume with its cursor. So slow readers cost nothing, and never delay others.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::event::{Frame, shown};
use super::machine::Shown;

/// How many events the queue has at most.
const MAX_FRAMES: usize = 4_096;
/// How many bytes they have at most, not counting the newest one.
const MAX_BYTES: usize = 8 << 20;

/// The events of a room, for readers of this instance.
#[derive(Debug)]
pub(super) struct Feed {
    queue: Mutex<Queue>,
    /// The position after the newest event. Changes also when the feed is closed.
    end: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The position of the first event.
    first: u64,
    frames: VecDeque<Frame>,
    bytes: usize,
    /// The number of the last stored event.
    last: u64,
    /// Thinking that has not ended, by its run: the member, and the text so far.
    open: BTreeMap<String, (String, String)>,
    is_closed: bool,
}

impl Queue {
    /// Adds an event. Returns the position after it.
    fn push(&mut self, frame: Frame) -> u64 {
        if let Some(seq) = frame.seq {
            self.last = self.last.max(seq);
        }
        while self.frames.len() >= MAX_FRAMES || self.bytes > MAX_BYTES {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.json.len();
            self.first += 1;
        }
        self.bytes += frame.json.len();
        self.frames.push_back(frame);
        self.first + self.frames.len() as u64
    }

    /// Remembers thinking that has not ended, for new readers.
    fn remember(&mut self, run: &str, member: &str, what: &Shown) {
        match what {
            Shown::ThinkingStarted => {
                self.open.insert(run.to_owned(), (member.to_owned(), String::new()));
            }
            Shown::ThinkingDelta { text } => {
                if let Some((_, so_far)) = self.open.get_mut(run) {
                    so_far.push_str(text);
                }
            }
            Shown::ThinkingEnded { .. } => {
                self.open.remove(run);
            }
            Shown::Typing { .. } => {}
        }
    }

    /// What a new reader sees of this thinking.
    fn open_thinking(&self, room: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (run, (member, text)) in &self.open {
            let so_far = Shown::ThinkingDelta { text: text.clone() };
            let parts = [Some(Shown::ThinkingStarted), (!text.is_empty()).then_some(so_far)];
            let events = parts.iter().flatten().map(|what| shown(room, run, member, what));
            frames.extend(events.map(|event| Frame::new(&event)));
        }
        frames
    }
}

/// What a reader gets next.
#[derive(Debug)]
pub(super) enum Next {
    /// An event.
    Frame(Frame),
    /// Nothing yet.
    Wait,
    /// Nothing more: the reader was too slow, or the room is closed.
    End,
}

/// Where a new reader begins.
#[derive(Debug)]
pub(super) struct Start {
    /// The position of the next event.
    pub(super) position: u64,
    /// The number of the last stored event before it.
    pub(super) last: u64,
    /// What the reader sees first.
    pub(super) open: Vec<Frame>,
}

impl Feed {
    /// A feed after the stored event of this number.
    pub(super) fn new(last: u64) -> Self {
        let queue = Queue { last, ..Queue::default() };
        Self { queue: Mutex::new(queue), end: watch::Sender::new(0) }
    }

    /// Adds an event.
    pub(super) fn push(&self, frame: Frame) {
        let end = self.queue.lock().push(frame);
        self.wake(end);
    }

    /// Adds what is shown and not stored.
    pub(super) fn show(&self, room: &str, run: &str, member: &str, what: &Shown) {
        let frame = Frame::new(&shown(room, run, member, what));
        // A reader that joins sees both changes, or none.
        let end = {
            let mut queue = self.queue.lock();
            queue.remember(run, member, what);
            queue.push(frame)
        };
        self.wake(end);
    }

    /// Wakes the readers.
    fn wake(&self, end: u64) {
        self.end.send_modify(|known| *known = end.max(*known));
    }

    /// Where a new reader begins.
    pub(super) fn join(&self, room: &str) -> Start {
        let queue = self.queue.lock();
        Start {
            position: queue.first + queue.frames.len() as u64,
            last: queue.last,
            open: queue.open_thinking(room),
        }
    }

    /// The event at a position.
    pub(super) fn at(&self, position: u64) -> Next {
        let queue = self.queue.lock();
        let Some(index) = position.checked_sub(queue.first) else {
            return Next::End;
        };
        match usize::try_from(index).ok().and_then(|index| queue.frames.get(index)) {
            Some(frame) => Next::Frame(frame.clone()),
            None if queue.is_closed => Next::End,
            None => Next::Wait,
        }
    }

    /// Tells about new events.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// The number of readers.
    pub(super) fn readers(&self) -> usize {
        self.end.receiver_count()
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.queue.lock().is_closed = true;
        self.end.send_modify(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(seq: Option<u64>, bytes: usize) -> Frame {
        Frame { seq, is_thinking: false, json: "x".repeat(bytes).into() }
    }

    #[test]
    fn slow_reader_is_detached_and_others_are_not() {
        let feed = Feed::new(7);
        let slow = feed.join("room");
        assert_eq!((slow.position, slow.last), (0, 7));
        for _ in 0..MAX_FRAMES {
            feed.push(frame(None, 1));
        }
        assert!(matches!(feed.at(slow.position), Next::Frame(_)), "all of them fit");
        feed.push(frame(Some(8), 1));
        assert!(matches!(feed.at(slow.position), Next::End));
        assert!(matches!(feed.at(slow.position + 1), Next::Frame(_)));
        let late = feed.join("room");
        assert_eq!(late.last, 8);
        assert!(matches!(feed.at(late.position), Next::Wait));
        feed.close();
        assert!(matches!(feed.at(late.position), Next::End));
    }

    #[test]
    fn new_reader_sees_the_thinking_so_far() {
        let feed = Feed::new(0);
        let delta = |text: &str| Shown::ThinkingDelta { text: text.to_owned() };
        for what in [Shown::ThinkingStarted, delta("Hm, "), delta("so")] {
            feed.show("room", "run", "a", &what);
        }
        let seen: Vec<String> =
            feed.join("room").open.iter().map(|frame| frame.json.to_string()).collect();
        assert_eq!(seen.len(), 2);
        assert!(seen[0].contains("THINKING_START") && seen[1].contains("Hm, so"), "{seen:?}");
        let ended = Shown::ThinkingEnded { text: "Hm, so".to_owned(), tokens: None };
        feed.show("room", "run", "a", &ended);
        assert!(feed.join("room").open.is_empty());
    }

    /// What a reader gets that joins now and reads on.
    fn read(feed: &Feed) -> String {
        let Start { mut position, open, .. } = feed.join("room");
        let mut seen: String = open.iter().map(|frame| frame.json.to_string()).collect();
        while let Next::Frame(frame) = feed.at(position) {
            seen.push_str(&frame.json);
            position += 1;
        }
        seen
    }

    #[test]
    fn reader_that_joins_during_thinking_gets_each_part_once() {
        const PARTS: usize = 300;
        let feed = Feed::new(0);
        feed.show("room", "run", "a", &Shown::ThinkingStarted);
        std::thread::scope(|scope| {
            let thinking = scope.spawn(|| {
                for number in 0..PARTS {
                    let text = format!("<{number}>");
                    feed.show("room", "run", "a", &Shown::ThinkingDelta { text });
                }
            });
            while !thinking.is_finished() {
                let seen = read(&feed);
                let parts: Vec<usize> = seen
                    .split('<')
                    .skip(1)
                    .filter_map(|part| part.split('>').next()?.parse().ok())
                    .collect();
                assert!(parts.iter().copied().eq(0..parts.len()), "{parts:?}");
            }
        });
    }

    #[test]
    fn queue_holds_a_bounded_number_of_bytes() {
        let feed = Feed::new(0);
        for _ in 0..20 {
            feed.push(frame(None, 1 << 20));
        }
        let queue = feed.queue.lock();
        assert!(queue.bytes <= MAX_BYTES + (1 << 20), "{}", queue.bytes);
        assert_eq!(queue.bytes, queue.frames.len() << 20);
    }
}
