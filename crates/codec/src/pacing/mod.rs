//! Joins the deltas of a reply into fewer, larger ones. Nothing is lost and the order stays the
//! same. Events that are not deltas of text pass unchanged.
//!
//! A [`Pacer`] sits between the reader of a reply and the writer that shows it. Each kind of delta
//! has a [`Pace`]. Held text is released when its pace allows, before any event of another kind or
//! another block, and at the end. There is no clock here: the caller passes the time as a duration
//! since a fixed point of its choice, and asks [`Pacer::deadline`] when to wake up.
//!
//! ```
//! use std::time::Duration;
//! use throughline_canonical::{Delta, Event};
//! use throughline_codec::pacing::{Pace, Pacer, Pacing};
//!
//! let thinking = |text: &'static str| Event::BlockDelta {
//!     index: 0,
//!     delta: Delta::Thinking(text.into()),
//! };
//! let mut shown = Vec::new();
//! let mut show = |event: Event<'_>| {
//!     if let Event::BlockDelta { delta: Delta::Thinking(text), .. } = event {
//!         shown.push(text.into_owned());
//!     }
//! };
//!
//! // By default, reasoning is released in sentences.
//! let mut pacer = Pacer::new(Pacing::default());
//! for (milliseconds, text) in [(0, "It is"), (20, " 3.14."), (40, " Or"), (60, " is it? No")] {
//!     pacer.push(thinking(text), Duration::from_millis(milliseconds), &mut show);
//! }
//! pacer.finish(&mut show);
//! assert_eq!(shown, ["It is 3.14. ", "Or is it? ", "No"]);
//!
//! // A window: at most 16 bytes at once, at most 80 ms after they arrived.
//! let window = Pace::Window { after: Duration::from_millis(80), bytes: 16 };
//! let mut pacer = Pacer::new(Pacing { thinking: window, ..Pacing::default() });
//! pacer.push(thinking("Wait."), Duration::from_millis(500), &mut |_| unreachable!());
//! assert_eq!(pacer.deadline(), Some(Duration::from_millis(580)));
//! let mut late = 0;
//! pacer.tick(Duration::from_millis(580), &mut |_| late += 1);
//! assert_eq!((late, pacer.deadline()), (1, None));
//! ```

mod boundary;
mod held;

use std::borrow::Cow;
use std::time::Duration;

use throughline_canonical::{Delta, Event, Out};

use boundary::{Boundaries, Json, Paragraph, Sentence};
use held::Held;

/// Limit for held bytes. A longer sentence, paragraph or string is released in parts.
pub const MAX_HELD_BYTES: usize = 64 * 1024;

/// When held text is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once, delta by delta.
    Immediate,
    /// Sentence by sentence, when the next one begins. A sentence ends after one or more stops,
    /// with the quotes or brackets that close there, if white space follows; or at the end of a
    /// line. The white space belongs to the sentence.
    Sentence,
    /// Paragraph by paragraph, when the next one begins. A paragraph ends after a blank line. All
    /// line breaks there belong to it.
    Paragraph,
    /// Up to the last bracket, or the last quote that begins or ends a string in JSON.
    JsonBoundary,
    /// When there are enough bytes, or when they have waited long enough.
    Window {
        /// How long the first byte may wait.
        after: Duration,
        /// Size of a delta. No delta is longer, unless it is a single character; no character is
        /// cut. Values above [`MAX_HELD_BYTES`] count as that limit.
        bytes: usize,
    },
}

/// The pace of each kind of delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Answer text.
    pub text: Pace,
    /// Reasoning.
    pub thinking: Pace,
    /// The arguments of tool calls.
    pub tool_args: Pace,
}

impl Pacing {
    /// Releases everything at once.
    pub const IMMEDIATE: Self =
        Self { text: Pace::Immediate, thinking: Pace::Immediate, tool_args: Pace::Immediate };

    fn of(&self, kind: DeltaKind) -> Pace {
        match kind {
            DeltaKind::Text => self.text,
            DeltaKind::Thinking => self.thinking,
            DeltaKind::ToolArguments => self.tool_args,
        }
    }
}

impl Default for Pacing {
    /// Text at once, reasoning by sentence, arguments in pieces that end at brackets and quotes.
    fn default() -> Self {
        Self { text: Pace::Immediate, thinking: Pace::Sentence, tool_args: Pace::JsonBoundary }
    }
}

/// The kinds of delta that are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeltaKind {
    Text,
    Thinking,
    ToolArguments,
}

impl DeltaKind {
    fn delta(self, text: &str) -> Delta<'_> {
        let text = Cow::Borrowed(text);
        match self {
            Self::Text => Delta::Text(text),
            Self::Thinking => Delta::Thinking(text),
            Self::ToolArguments => Delta::ToolArguments(text),
        }
    }
}

/// Takes events and emits the same events with larger deltas.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
    held: Held,
    /// Boundary search in the current block. `None` if its pace needs no boundaries.
    boundaries: Option<Boundaries>,
}

impl Pacer {
    /// Creates a pacer for one reply.
    pub fn new(pacing: Pacing) -> Self {
        Self { pacing, held: Held::default(), boundaries: None }
    }

    /// Takes the next event and emits what may be released now. Empty deltas are dropped.
    pub fn push(&mut self, event: Event<'_>, now: Duration, out: Out<'_>) {
        let (index, kind, text) = match &event {
            Event::BlockDelta { index, delta } => match delta {
                Delta::Text(text) => (*index, DeltaKind::Text, text),
                Delta::Thinking(text) => (*index, DeltaKind::Thinking, text),
                Delta::ToolArguments(text) => (*index, DeltaKind::ToolArguments, text),
                Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => {
                    return self.pass_through(event, out);
                }
            },
            Event::Transformed { .. }
            | Event::Usage(_)
            | Event::EndExplained(_)
            | Event::Lost { .. }
            | Event::Fault(_) => {
                return self.pass_through(event, out);
            }
            Event::MessageStarted { .. }
            | Event::BlockStarted { .. }
            | Event::BlockEnded { .. }
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. }
            | Event::Ended { .. } => {
                self.pass_through(event, out);
                // The next delta belongs to another block, even if the index is used again.
                self.held.block = None;
                return;
            }
        };
        if text.is_empty() {
            return self.tick(now, out);
        }
        let pace = self.pacing.of(kind);
        if self.held.block != Some((index, kind)) {
            self.held.release(out);
            self.held.block = Some((index, kind));
            self.boundaries = match pace {
                Pace::Sentence => Some(Boundaries::Sentence(Sentence::default())),
                Pace::Paragraph => Some(Boundaries::Paragraph(Paragraph::default())),
                Pace::JsonBoundary => Some(Boundaries::Json(Json::default())),
                Pace::Immediate | Pace::Window { .. } => None,
            };
        }
        match (pace, &mut self.boundaries) {
            (Pace::Window { after, bytes }, _) => {
                let due = now.checked_add(after);
                self.held.fill(text, bytes.clamp(1, MAX_HELD_BYTES), due, out);
                self.tick(now, out);
            }
            (_, Some(boundaries)) => {
                let mut from = 0;
                boundaries.find(text, &mut |at| {
                    self.held.release_with(&text[from..at], out);
                    from = at;
                });
                self.held.hold(&text[from..], out);
            }
            (_, None) => out(event),
        }
    }

    /// When to call [`Pacer::tick`] if no event arrives before. Only windows have a deadline.
    pub fn deadline(&self) -> Option<Duration> {
        self.held.deadline
    }

    /// Emits text whose deadline has passed.
    pub fn tick(&mut self, now: Duration, out: Out<'_>) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.held.release(out);
        }
    }

    /// Emits the rest. The pacer can then be used for another reply.
    pub fn finish(&mut self, out: Out<'_>) {
        self.held.release(out);
        self.held.block = None;
    }

    /// Emits the held text, then an event that is not joined.
    fn pass_through(&mut self, event: Event<'_>, out: Out<'_>) {
        self.held.release(out);
        if let Some(boundaries) = &mut self.boundaries {
            boundaries.restart();
        }
        out(event);
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::{BlockStart, EndReason, Usage};

    use super::*;

    const START: Duration = Duration::ZERO;

    fn every(pace: Pace) -> Pacing {
        Pacing { text: pace, thinking: pace, tool_args: pace }
    }

    fn window(milliseconds: u64, bytes: usize) -> Pace {
        Pace::Window { after: Duration::from_millis(milliseconds), bytes }
    }

    fn delta(index: u32, kind: DeltaKind, text: &str) -> Event<'_> {
        Event::BlockDelta { index, delta: kind.delta(text) }
    }

    fn owned(event: Event<'_>) -> Event<'static> {
        let Event::BlockDelta { index, delta } = event else {
            return match event {
                Event::BlockEnded { index } => Event::BlockEnded { index },
                Event::Usage(usage) => Event::Usage(usage),
                Event::Ended { reason } => Event::Ended { reason },
                Event::BlockStarted { index, .. } => {
                    Event::BlockStarted { index, block: BlockStart::Text { text: "".into() } }
                }
                other => panic!("{other:?}"),
            };
        };
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let delta = match delta {
            Delta::Text(text) => Delta::Text(own(text)),
            Delta::Thinking(text) => Delta::Thinking(own(text)),
            Delta::ToolArguments(text) => Delta::ToolArguments(own(text)),
            Delta::Signature(text) => Delta::Signature(own(text)),
            Delta::Citation(citation) => Delta::Citation(citation),
            Delta::Opaque(text) => Delta::Opaque(own(text)),
        };
        Event::BlockDelta { index, delta }
    }

    fn text(event: &Event<'_>) -> Option<(u32, DeltaKind, String)> {
        let Event::BlockDelta { index, delta } = event else {
            return None;
        };
        let (kind, text) = match delta {
            Delta::Text(text) => (DeltaKind::Text, text),
            Delta::Thinking(text) => (DeltaKind::Thinking, text),
            Delta::ToolArguments(text) => (DeltaKind::ToolArguments, text),
            Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => return None,
        };
        Some((*index, kind, text.to_string()))
    }

    /// The deltas that one block becomes, including those released at the end.
    fn paced(pace: Pace, kind: DeltaKind, pieces: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        let mut gather = |event: Event<'_>| out.push(text(&event).unwrap().2);
        let mut pacer = Pacer::new(every(pace));
        for piece in pieces {
            pacer.push(delta(0, kind, piece), START, &mut gather);
        }
        pacer.finish(&mut gather);
        out
    }

    /// Covers: case 45, X-12
    #[test]
    fn ten_deltas_in_a_window_become_three() {
        let pieces =
            ["one ", "two ", "thre", "e fo", "ur f", "ive ", "six ", "seve", "n ei", "ght "];
        let gathered = paced(window(1000, 16), DeltaKind::Thinking, &pieces);
        let lengths: Vec<usize> = gathered.iter().map(String::len).collect();
        assert_eq!(lengths, [16, 16, 8]);
        assert_eq!(gathered.concat(), pieces.concat());
        assert_eq!(paced(Pace::Immediate, DeltaKind::Thinking, &pieces), pieces);
    }

    #[test]
    fn windows_count_bytes_and_cut_between_characters() {
        for (bytes, pieces, expected) in [
            (4, &["abcdefghij"][..], &["abcd", "efgh", "ij"][..]),
            (4, &["ab", "cdef"], &["abcd", "ef"]),
            // The second `ä` would be bytes 4 and 5.
            (4, &["aäbä", "c"], &["aäb", "äc"]),
            (4, &["abc", "€€"], &["abc", "€", "€"]),
            (2, &["€", "a"], &["€", "a"]),
            (0, &["ab"], &["a", "b"]),
        ] {
            let found = paced(window(1000, bytes), DeltaKind::Text, pieces);
            assert_eq!(found, expected, "{bytes}");
        }
    }

    #[test]
    fn a_window_releases_text_at_its_deadline() {
        let at = Duration::from_millis;
        let mut out = Vec::new();
        let mut pacer = Pacer::new(every(window(80, 8)));
        let push = |pacer: &mut Pacer, piece: &str, now| {
            let mut count = 0;
            pacer.push(delta(0, DeltaKind::Text, piece), at(now), &mut |_| count += 1);
            count
        };
        assert_eq!(pacer.deadline(), None);
        assert_eq!(push(&mut pacer, "ab", 10), 0);
        assert_eq!(push(&mut pacer, "cd", 60), 0);
        // Counted from the first waiting byte.
        assert_eq!(pacer.deadline(), Some(at(90)));
        pacer.tick(at(89), &mut |_| unreachable!());
        pacer.tick(at(90), &mut |event| out.push(text(&event).unwrap().2));
        assert_eq!(out, ["abcd"]);
        assert_eq!(pacer.deadline(), None);
        pacer.tick(at(999), &mut |_| unreachable!());
        // The rest of a delta waits since the delta arrived.
        assert_eq!(push(&mut pacer, "abcd", 100), 0);
        assert_eq!(push(&mut pacer, "efghij", 150), 1);
        assert_eq!(pacer.deadline(), Some(at(230)));
        // A late push releases without a tick.
        assert_eq!(push(&mut pacer, "k", 300), 1);
        assert_eq!(pacer.deadline(), None);
        // A window without end, and one that does not wait.
        let for_ever = Pace::Window { after: Duration::MAX, bytes: 8 };
        let mut pacer = Pacer::new(every(for_ever));
        assert_eq!(push(&mut pacer, "a", 1), 0);
        assert_eq!(pacer.deadline(), None);
        let mut pacer = Pacer::new(every(window(0, 8)));
        assert_eq!(push(&mut pacer, "a", 1), 1);
    }

    /// Covers: S2-38, S2-39, S2-40, C-13
    #[test]
    fn each_kind_of_delta_has_its_own_pace() {
        let mut out = Vec::new();
        let mut pacer = Pacer::new(Pacing::default());
        for (index, kind, piece) in [
            (0, DeltaKind::Thinking, "First. Th"),
            (0, DeltaKind::Thinking, "en. La"),
            (0, DeltaKind::Thinking, "st"),
            (1, DeltaKind::Text, "To"),
            (1, DeltaKind::Text, "ken. "),
            (2, DeltaKind::ToolArguments, "{\"pa"),
            (2, DeltaKind::ToolArguments, "th\": 1"),
            (2, DeltaKind::ToolArguments, "2}"),
        ] {
            pacer.push(delta(index, kind, piece), START, &mut |event| {
                out.push(text(&event).unwrap());
            });
            assert_eq!(pacer.deadline(), None);
        }
        pacer.finish(&mut |event| panic!("{event:?} is late"));
        let expected = [
            (0, DeltaKind::Thinking, "First. "),
            (0, DeltaKind::Thinking, "Then. "),
            (0, DeltaKind::Thinking, "Last"),
            (1, DeltaKind::Text, "To"),
            (1, DeltaKind::Text, "ken. "),
            (2, DeltaKind::ToolArguments, "{\""),
            (2, DeltaKind::ToolArguments, "path\""),
            (2, DeltaKind::ToolArguments, ": 12}"),
        ];
        let expected = expected.map(|(index, kind, piece)| (index, kind, piece.to_owned()));
        assert_eq!(out, expected);
    }

    /// Covers: S0-64
    #[test]
    fn text_and_thinking_can_be_paced_by_paragraph() {
        for kind in [DeltaKind::Text, DeltaKind::Thinking] {
            let pieces = ["On", "e\nline\n", "\n", "Two\n\n", "  Th", "ree"];
            let found = paced(Pace::Paragraph, kind, &pieces);
            assert_eq!(found, ["One\nline\n\n", "Two\n\n", "  Three"]);
        }
    }

    #[test]
    fn other_events_come_after_the_held_text() {
        for other in [
            Event::Usage(Usage::default()),
            Event::BlockEnded { index: 0 },
            Event::Ended { reason: EndReason::Cut },
            Event::BlockDelta { index: 0, delta: Delta::Signature("".into()) },
            delta(1, DeltaKind::Thinking, "x. y"),
        ] {
            let mut out = Vec::new();
            let mut gather = |event: Event<'_>| out.push(owned(event));
            let mut pacer = Pacer::new(Pacing::default());
            pacer.push(delta(0, DeltaKind::Thinking, "held."), START, &mut gather);
            pacer.push(delta(0, DeltaKind::Thinking, ""), START, &mut gather);
            pacer.push(delta(1, DeltaKind::Text, ""), START, &mut gather);
            pacer.push(other.clone(), START, &mut gather);
            pacer.finish(&mut gather);
            assert_eq!(out[0], delta(0, DeltaKind::Thinking, "held."));
            let rest: String = out[1..].iter().filter_map(text).map(|text| text.2).collect();
            assert_eq!(rest, text(&other).map_or(String::new(), |text| text.2));
        }
    }

    #[test]
    fn after_another_event_a_sentence_restarts_and_a_string_continues() {
        for (kind, pieces, expected) in [
            (DeltaKind::Thinking, ["Held.", " More. X"], &["Held.", " More. ", "X"][..]),
            (DeltaKind::ToolArguments, [r#"{"a{"#, r#"b{c": 1}"#], &[r#"{""#, "a{", r#"b{c": 1}"#]),
        ] {
            let mut out = Vec::new();
            let mut gather = |event: Event<'_>| out.extend(text(&event).map(|text| text.2));
            let mut pacer = Pacer::new(Pacing::default());
            pacer.push(delta(0, kind, pieces[0]), START, &mut gather);
            pacer.push(Event::Usage(Usage::default()), START, &mut gather);
            pacer.push(delta(0, kind, pieces[1]), START, &mut gather);
            pacer.finish(&mut gather);
            assert_eq!(out, expected);
        }
        // A block that ends inside a string does not affect the next block with its index.
        let mut out = Vec::new();
        let mut gather = |event: Event<'_>| out.extend(text(&event).map(|text| text.2));
        let mut pacer = Pacer::new(Pacing::default());
        pacer.push(delta(0, DeltaKind::ToolArguments, "{\"a"), START, &mut gather);
        pacer.push(Event::BlockEnded { index: 0 }, START, &mut gather);
        pacer.push(delta(0, DeltaKind::ToolArguments, "{b"), START, &mut gather);
        assert_eq!(out, ["{\"", "a", "{"]);
    }

    #[test]
    fn endless_text_is_held_up_to_the_limit() {
        let word = "word ";
        for pace in [Pace::Sentence, Pace::Paragraph, Pace::JsonBoundary, window(1000, usize::MAX)]
        {
            let (mut released, mut pushed) = (0, 0);
            let mut pacer = Pacer::new(every(pace));
            for _ in 0..100_000 {
                let event = delta(0, DeltaKind::Text, word);
                pacer.push(event, START, &mut |event| {
                    released += text(&event).unwrap().2.len();
                });
                pushed += word.len();
                assert!(
                    pushed - released <= MAX_HELD_BYTES,
                    "{pace:?} holds {}",
                    pushed - released
                );
            }
            assert!(pushed - released > 0);
            let long = word.repeat(MAX_HELD_BYTES);
            let pieces = [word, &long, word];
            assert_eq!(paced(pace, DeltaKind::Text, &pieces).concat(), pieces.concat());
        }
    }

    #[test]
    fn text_released_at_once_is_not_copied() {
        let text = String::from("Whole. Sentence. ");
        for pacing in [Pacing::IMMEDIATE, every(Pace::JsonBoundary), every(window(9, 3))] {
            let inside = text.as_bytes().as_ptr_range();
            Pacer::new(pacing).push(delta(0, DeltaKind::Text, &text), START, &mut |event| {
                let Event::BlockDelta { delta: Delta::Text(Cow::Borrowed(part)), .. } = event
                else {
                    panic!("{event:?}");
                };
                assert!(inside.contains(&part.as_ptr()));
            });
        }
    }
}
