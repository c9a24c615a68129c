//! Pacing: the deltas of a reply gathered into fewer, larger ones. Nothing is lost and nothing
//! changes its place; what is not gathered passes as it came.
//!
//! A [`Pacer`] stands between whoever reads a reply and whoever shows it. Each kind of delta has a
//! [`Pace`]. What it holds is let go where that pace says so, before any event of another kind or
//! another block, and at the end. There is no clock here: the caller says what time it is, counted
//! from any point that stays the same, and asks for the [`Pacer::deadline`] to wake up at.
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
//! // Reasoning goes out in sentences, unless it is told otherwise.
//! let mut pacer = Pacer::new(Pacing::default());
//! for (milliseconds, text) in [(0, "It is"), (20, " 3.14."), (40, " Or"), (60, " is it? No")] {
//!     pacer.push(thinking(text), Duration::from_millis(milliseconds), &mut show);
//! }
//! pacer.finish(&mut show);
//! assert_eq!(shown, ["It is 3.14. ", "Or is it? ", "No"]);
//!
//! // A window: no more than 16 bytes at once, no later than 80 ms after they came.
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

use throughline_canonical::{Delta, Event};

use boundary::{Boundaries, Json, Paragraph, Sentence};
use held::Held;

/// So many bytes are held at most. A sentence, a paragraph or a string that is longer is let go in
/// parts.
pub const HELD_MOST: usize = 64 * 1024;

/// When what was gathered goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once, as it came.
    Immediate,
    /// Sentence by sentence, as soon as the next one begins. A sentence ends behind a stop, or
    /// several, with the quotes or brackets that close there, if white space follows; or at the end
    /// of a line. The white space belongs to it.
    Sentence,
    /// Paragraph by paragraph, as soon as the next one begins. A paragraph ends behind a blank line;
    /// all line breaks there belong to it.
    Paragraph,
    /// As far as there is JSON up to a bracket, or to a quote that begins or ends a string.
    JsonBoundary,
    /// When there is enough of it, or when it has waited long enough.
    Window {
        /// How long the first byte may wait.
        after: Duration,
        /// How many bytes are enough. No delta is longer, unless it is a single character; no
        /// character is cut. Counts as [`HELD_MOST`] where it is more.
        bytes: usize,
    },
}

/// A pace for each kind of delta.
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
    /// Everything at once.
    pub const IMMEDIATE: Self =
        Self { text: Pace::Immediate, thinking: Pace::Immediate, tool_args: Pace::Immediate };

    fn of(&self, kind: Kind) -> Pace {
        match kind {
            Kind::Text => self.text,
            Kind::Thinking => self.thinking,
            Kind::ToolArguments => self.tool_args,
        }
    }
}

impl Default for Pacing {
    /// Text at once, reasoning in sentences, arguments in pieces that end at brackets and quotes.
    fn default() -> Self {
        Self { text: Pace::Immediate, thinking: Pace::Sentence, tool_args: Pace::JsonBoundary }
    }
}

/// The kinds of delta that are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolArguments,
}

impl Kind {
    fn delta(self, text: &str) -> Delta<'_> {
        let text = Cow::Borrowed(text);
        match self {
            Self::Text => Delta::Text(text),
            Self::Thinking => Delta::Thinking(text),
            Self::ToolArguments => Delta::ToolArguments(text),
        }
    }
}

/// The stage: events go in, the same events with larger deltas come out.
#[derive(Debug)]
pub struct Pacer {
    pacing: Pacing,
    held: Held,
    /// What is known of the block that grows. `None` where its pace looks for no boundaries.
    boundaries: Option<Boundaries>,
}

impl Pacer {
    /// A stage for one reply.
    pub fn new(pacing: Pacing) -> Self {
        Self { pacing, held: Held::default(), boundaries: None }
    }

    /// Takes the next event and gives what may go on by now. A delta without text is left out.
    pub fn push(&mut self, event: Event<'_>, now: Duration, out: &mut dyn FnMut(Event<'_>)) {
        let (index, kind, text) = match &event {
            Event::BlockDelta { index, delta } => match delta {
                Delta::Text(text) => (*index, Kind::Text, text),
                Delta::Thinking(text) => (*index, Kind::Thinking, text),
                Delta::ToolArguments(text) => (*index, Kind::ToolArguments, text),
                Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => {
                    return self.pass(event, out);
                }
            },
            Event::Transformed { .. }
            | Event::Usage(_)
            | Event::EndExplained(_)
            | Event::Fault(_) => {
                return self.pass(event, out);
            }
            Event::MessageStarted { .. }
            | Event::BlockStarted { .. }
            | Event::BlockEnded { .. }
            | Event::Ended { .. } => {
                self.pass(event, out);
                // The next delta is of another block, even if its number comes again.
                self.held.place = None;
                return;
            }
        };
        if text.is_empty() {
            return self.tick(now, out);
        }
        let pace = self.pacing.of(kind);
        if self.held.place != Some((index, kind)) {
            self.held.release(out);
            self.held.place = Some((index, kind));
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
                self.held.fill(text, bytes.clamp(1, HELD_MOST), due, out);
                self.tick(now, out);
            }
            (_, Some(boundaries)) => {
                let mut from = 0;
                boundaries.find(text, &mut |at| {
                    self.held.release_with(&text[from..at], out);
                    from = at;
                });
                self.held.keep(&text[from..], out);
            }
            (_, None) => out(event),
        }
    }

    /// When [`Pacer::tick`] is due, if nothing comes before. Only windows wait for a time.
    pub fn deadline(&self) -> Option<Duration> {
        self.held.deadline
    }

    /// Gives what has waited long enough.
    pub fn tick(&mut self, now: Duration, out: &mut dyn FnMut(Event<'_>)) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.held.release(out);
        }
    }

    /// Gives what is left. The stage can be used for another reply then.
    pub fn finish(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        self.held.release(out);
        self.held.place = None;
    }

    /// An event that is not gathered: what came before it goes first.
    fn pass(&mut self, event: Event<'_>, out: &mut dyn FnMut(Event<'_>)) {
        self.held.release(out);
        if let Some(boundaries) = &mut self.boundaries {
            boundaries.let_go();
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

    fn delta(index: u32, kind: Kind, text: &str) -> Event<'_> {
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

    fn text(event: &Event<'_>) -> Option<(u32, Kind, String)> {
        let Event::BlockDelta { index, delta } = event else {
            return None;
        };
        let (kind, text) = match delta {
            Delta::Text(text) => (Kind::Text, text),
            Delta::Thinking(text) => (Kind::Thinking, text),
            Delta::ToolArguments(text) => (Kind::ToolArguments, text),
            Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => return None,
        };
        Some((*index, kind, text.to_string()))
    }

    /// The pieces that come out of one block, with what is given only at the end behind them.
    fn paced(pace: Pace, kind: Kind, pieces: &[&str]) -> Vec<String> {
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
        let gathered = paced(window(1000, 16), Kind::Thinking, &pieces);
        let lengths: Vec<usize> = gathered.iter().map(String::len).collect();
        assert_eq!(lengths, [16, 16, 8]);
        assert_eq!(gathered.concat(), pieces.concat());
        assert_eq!(paced(Pace::Immediate, Kind::Thinking, &pieces), pieces);
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
            let found = paced(window(1000, bytes), Kind::Text, pieces);
            assert_eq!(found, expected, "{bytes}");
        }
    }

    #[test]
    fn a_window_waits_no_longer_than_it_may() {
        let at = Duration::from_millis;
        let mut out = Vec::new();
        let mut pacer = Pacer::new(every(window(80, 8)));
        let push = |pacer: &mut Pacer, piece: &str, now| {
            let mut count = 0;
            pacer.push(delta(0, Kind::Text, piece), at(now), &mut |_| count += 1);
            count
        };
        assert_eq!(pacer.deadline(), None);
        assert_eq!(push(&mut pacer, "ab", 10), 0);
        assert_eq!(push(&mut pacer, "cd", 60), 0);
        // Counted from the first byte that waits.
        assert_eq!(pacer.deadline(), Some(at(90)));
        pacer.tick(at(89), &mut |_| unreachable!());
        pacer.tick(at(90), &mut |event| out.push(text(&event).unwrap().2));
        assert_eq!(out, ["abcd"]);
        assert_eq!(pacer.deadline(), None);
        pacer.tick(at(999), &mut |_| unreachable!());
        // What is left of a delta came when the delta came.
        assert_eq!(push(&mut pacer, "abcd", 100), 0);
        assert_eq!(push(&mut pacer, "efghij", 150), 1);
        assert_eq!(pacer.deadline(), Some(at(230)));
        // Whoever is late need not tick first.
        assert_eq!(push(&mut pacer, "k", 300), 1);
        assert_eq!(pacer.deadline(), None);
        // A window for ever, and one that does not wait.
        let for_ever = Pace::Window { after: Duration::MAX, bytes: 8 };
        let mut pacer = Pacer::new(every(for_ever));
        assert_eq!(push(&mut pacer, "a", 1), 0);
        assert_eq!(pacer.deadline(), None);
        let mut pacer = Pacer::new(every(window(0, 8)));
        assert_eq!(push(&mut pacer, "a", 1), 1);
    }

    /// Covers: S2-38, S2-39, S2-40, C-13
    #[test]
    fn each_kind_has_its_pace() {
        let mut out = Vec::new();
        let mut pacer = Pacer::new(Pacing::default());
        for (index, kind, piece) in [
            (0, Kind::Thinking, "First. Th"),
            (0, Kind::Thinking, "en. La"),
            (0, Kind::Thinking, "st"),
            (1, Kind::Text, "To"),
            (1, Kind::Text, "ken. "),
            (2, Kind::ToolArguments, "{\"pa"),
            (2, Kind::ToolArguments, "th\": 1"),
            (2, Kind::ToolArguments, "2}"),
        ] {
            pacer.push(delta(index, kind, piece), START, &mut |event| {
                out.push(text(&event).unwrap());
            });
            assert_eq!(pacer.deadline(), None);
        }
        pacer.finish(&mut |event| panic!("{event:?} is late"));
        let expected = [
            (0, Kind::Thinking, "First. "),
            (0, Kind::Thinking, "Then. "),
            (0, Kind::Thinking, "Last"),
            (1, Kind::Text, "To"),
            (1, Kind::Text, "ken. "),
            (2, Kind::ToolArguments, "{\""),
            (2, Kind::ToolArguments, "path\""),
            (2, Kind::ToolArguments, ": 12}"),
        ];
        let expected = expected.map(|(index, kind, piece)| (index, kind, piece.to_owned()));
        assert_eq!(out, expected);
    }

    /// Covers: S0-64
    #[test]
    fn answer_and_thinking_can_both_come_in_paragraphs() {
        for kind in [Kind::Text, Kind::Thinking] {
            let pieces = ["On", "e\nline\n", "\n", "Two\n\n", "  Th", "ree"];
            let found = paced(Pace::Paragraph, kind, &pieces);
            assert_eq!(found, ["One\nline\n\n", "Two\n\n", "  Three"]);
        }
    }

    #[test]
    fn every_other_event_comes_after_what_is_held() {
        for other in [
            Event::Usage(Usage::default()),
            Event::BlockEnded { index: 0 },
            Event::Ended { reason: EndReason::Cut },
            Event::BlockDelta { index: 0, delta: Delta::Signature("".into()) },
            delta(1, Kind::Thinking, "x. y"),
        ] {
            let mut out = Vec::new();
            let mut gather = |event: Event<'_>| out.push(owned(event));
            let mut pacer = Pacer::new(Pacing::default());
            pacer.push(delta(0, Kind::Thinking, "held."), START, &mut gather);
            pacer.push(delta(0, Kind::Thinking, ""), START, &mut gather);
            pacer.push(delta(1, Kind::Text, ""), START, &mut gather);
            pacer.push(other.clone(), START, &mut gather);
            pacer.finish(&mut gather);
            assert_eq!(out[0], delta(0, Kind::Thinking, "held."));
            let rest: String = out[1..].iter().filter_map(text).map(|text| text.2).collect();
            assert_eq!(rest, text(&other).map_or(String::new(), |text| text.2));
        }
    }

    #[test]
    fn a_sentence_begins_anew_and_a_string_goes_on_behind_another_event() {
        for (kind, pieces, expected) in [
            (Kind::Thinking, ["Held.", " More. X"], &["Held.", " More. ", "X"][..]),
            (Kind::ToolArguments, [r#"{"a{"#, r#"b{c": 1}"#], &[r#"{""#, "a{", r#"b{c": 1}"#]),
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
        // A block that was cut in a string says nothing of the next one of its number.
        let mut out = Vec::new();
        let mut gather = |event: Event<'_>| out.extend(text(&event).map(|text| text.2));
        let mut pacer = Pacer::new(Pacing::default());
        pacer.push(delta(0, Kind::ToolArguments, "{\"a"), START, &mut gather);
        pacer.push(Event::BlockEnded { index: 0 }, START, &mut gather);
        pacer.push(delta(0, Kind::ToolArguments, "{b"), START, &mut gather);
        assert_eq!(out, ["{\"", "a", "{"]);
    }

    #[test]
    fn what_never_ends_is_held_to_a_bound() {
        let word = "word ";
        for pace in [Pace::Sentence, Pace::Paragraph, Pace::JsonBoundary, window(1000, usize::MAX)]
        {
            let (mut gone, mut pushed) = (0, 0);
            let mut pacer = Pacer::new(every(pace));
            for _ in 0..100_000 {
                let event = delta(0, Kind::Text, word);
                pacer.push(event, START, &mut |event| {
                    gone += text(&event).unwrap().2.len();
                });
                pushed += word.len();
                assert!(pushed - gone <= HELD_MOST, "{pace:?} holds {}", pushed - gone);
            }
            assert!(pushed - gone > 0);
            let long = word.repeat(HELD_MOST);
            let pieces = [word, &long, word];
            assert_eq!(paced(pace, Kind::Text, &pieces).concat(), pieces.concat());
        }
    }

    #[test]
    fn what_goes_at_once_is_not_copied() {
        let text = String::from("Whole. Sentence. ");
        for pacing in [Pacing::IMMEDIATE, every(Pace::JsonBoundary), every(window(9, 3))] {
            let inside = text.as_bytes().as_ptr_range();
            Pacer::new(pacing).push(delta(0, Kind::Text, &text), START, &mut |event| {
                let Event::BlockDelta { delta: Delta::Text(Cow::Borrowed(part)), .. } = event
                else {
                    panic!("{event:?}");
                };
                assert!(inside.contains(&part.as_ptr()));
            });
        }
    }
}
