//! The state machine for a model's text: answer, reasoning and calls.
//!
//! One machine handles all three, because the meaning of a marker depends on where it occurs: a tag
//! in a call's arguments is data, a call in reasoning is part of the reasoning, and for some models
//! it ends the reasoning.
//!
//! - [`states`]: the states and the loop over them.
//! - [`answer`], [`reasoning`], [`block`], [`header`], [`fenced`]: one state each.

mod answer;
mod block;
mod fenced;
mod header;
mod reasoning;
mod states;

use self::states::Core;
use super::event::{Event, Out};
use super::recipe::{Options, Recipe};
use super::turn_end::TurnEnds;
use super::utf8::Utf8Decoder;

/// Reads one text, piece by piece.
///
/// ```
/// use throughline_codec::text::{EndReason, Event, Options, Reader, Recipe};
///
/// let recipe = Recipe::family("qwen3")?;
/// let mut reader = Reader::new(&recipe, Options::default());
/// let (mut reasoning, mut answer, mut end) = (String::new(), String::new(), None);
/// let mut out = |event: Event<'_>| match event {
///     Event::Reasoning(text) => reasoning.push_str(text),
///     Event::Content(text) => answer.push_str(text),
///     Event::Ended(reason) => end = Some(reason),
///     _ => {}
/// };
/// for piece in ["<thi", "nk>Two and two", "</think>\n", "4"] {
///     reader.push_str(piece, &mut out);
/// }
/// reader.finish(&mut out);
/// assert_eq!((&*reasoning, &*answer, end), ("Two and two", "4", Some(EndReason::Stop)));
/// # Ok::<(), throughline_codec::text::UnknownName>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    decoder: Utf8Decoder,
    /// Text that cannot be classified before more text arrives.
    held: String,
    core: Core,
    turn_ends: TurnEnds,
}

impl Reader {
    /// Creates a reader for one text.
    pub fn new(recipe: &Recipe, options: Options) -> Self {
        Self {
            decoder: Utf8Decoder::default(),
            held: String::with_capacity(128),
            core: Core::new(recipe, options),
            turn_ends: TurnEnds::new(recipe),
        }
    }

    /// Takes the next bytes. Characters may be cut.
    pub fn push(&mut self, bytes: &[u8], mut out: impl FnMut(Event<'_>)) {
        let Self { decoder, held, core, turn_ends } = self;
        decoder.push(bytes, |text| push(held, core, turn_ends, text, &mut out));
    }

    /// Takes the next text.
    pub fn push_str(&mut self, text: &str, mut out: impl FnMut(Event<'_>)) {
        push(&mut self.held, &mut self.core, &self.turn_ends, text, &mut out);
    }

    /// Takes text that the model server flagged as reasoning. Markers in it have no meaning.
    pub fn push_reasoning(&mut self, text: &str, mut out: impl FnMut(Event<'_>)) {
        if self.core.has_ended() {
            return;
        }
        self.flush(&mut out);
        self.core.push_flagged(text, &mut out);
    }

    /// Whether the prompt has opened the reasoning, so that the text begins inside it.
    pub fn begins_in_reasoning(&self) -> bool {
        self.core.begins_in_reasoning()
    }

    /// The server separates reasoning itself: text from here on is the answer.
    pub fn begin_answer(&mut self, mut out: impl FnMut(Event<'_>)) {
        self.flush(&mut out);
        self.core.begin_answer();
    }

    /// Emits the held text, because something other than text comes next.
    pub fn flush(&mut self, mut out: impl FnMut(Event<'_>)) {
        let held = self.take_held(&mut out);
        self.core.interrupt(&held, &mut out);
    }

    /// Ends the text.
    pub fn finish(&mut self, mut out: impl FnMut(Event<'_>)) {
        let mut held = self.take_held(&mut out);
        held.truncate(held.len() - self.turn_ends.length(&held));
        self.core.finish(&held, &mut out);
    }

    /// Takes all text that is still held, with a character that was cut.
    fn take_held(&mut self, out: Out<'_>) -> String {
        let Self { decoder, held, core, turn_ends } = self;
        decoder.finish(|text| push(held, core, turn_ends, text, out));
        std::mem::take(held)
    }
}

fn push(held: &mut String, core: &mut Core, turn_ends: &TurnEnds, text: &str, out: Out<'_>) {
    if core.has_ended() {
        return;
    }
    let was_held = !held.is_empty();
    if was_held {
        held.push_str(text);
    }
    let unread = if was_held { held.as_str() } else { text };
    // A token at the end may be the end of the turn.
    let readable = unread.len() - turn_ends.partial_length(unread);
    let used = core.run(&unread[..readable], false, out);
    if was_held {
        held.drain(..used);
    } else if used < text.len() {
        held.push_str(&text[used..]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::EndReason;
    use super::super::recipe::OnError;
    use super::*;

    /// The events for these pieces. Each piece has a flag: whether the server marked it as
    /// reasoning.
    fn events(recipe: &Recipe, options: Options, pieces: &[(&str, bool)]) -> Vec<String> {
        let mut reader = Reader::new(recipe, options);
        let mut events = Vec::new();
        let mut out = |event: Event<'_>| events.push(format!("{event:?}"));
        for &(text, flagged) in pieces {
            if flagged {
                reader.push_reasoning(text, &mut out);
            } else {
                reader.push_str(text, &mut out);
            }
        }
        reader.finish(&mut out);
        events
    }

    /// Covers: S2-16, S2-17
    #[test]
    fn text_flagged_by_the_server_is_always_reasoning() {
        let recipe = Recipe::family("qwen3").unwrap();
        let pieces = [
            ("plan", true),
            (" </think> <tool_call>", true),
            (" ans", false),
            ("wer <thi", false),
            ("more", true),
            ("s", false),
        ];
        assert_eq!(
            events(&recipe, Options::default(), &pieces),
            [
                r#"Reasoning("plan")"#,
                r#"Reasoning(" </think> <tool_call>")"#,
                r#"Content("ans")"#,
                r#"Content("wer ")"#,
                r#"Content("<thi")"#,
                r#"Reasoning("more")"#,
                r#"Content("s")"#,
                "Ended(Stop)",
            ]
        );
    }

    /// Covers: S2-22, S2-27, S2-49
    #[test]
    fn arguments_are_emitted_as_the_model_writes_them() {
        let recipe = Recipe::family("hermes").unwrap();
        let mut reader = Reader::new(&recipe, Options::default());
        let mut events = |piece: &str| {
            let mut events = Vec::new();
            reader.push_str(piece, |event| events.push(format!("{event:?}")));
            events
        };
        assert_eq!(events("<tool_call>{\"name\": \"f"), [""; 0]);
        assert_eq!(events("\", \"arguments\": "), [""; 0]);
        assert_eq!(
            events("{\"a\": [1, "),
            [
                r#"CallStarted { index: 0, id: "call_0", name: "f" }"#,
                r#"CallArguments { index: 0, delta: "{\"a\": [1, " }"#
            ]
        );
        assert_eq!(
            events("2]}}</tool"),
            [r#"CallArguments { index: 0, delta: "2]}" }"#, "CallEnded { index: 0 }"]
        );
        assert_eq!(events("_call>"), [""; 0]);
    }

    #[test]
    fn a_fault_names_the_format_and_the_reason() {
        let recipe = Recipe::family("qwen3").unwrap();
        let options = Options { on_error: OnError::Error, ..Options::default() };
        let events = events(&recipe, options, &[("<tool_call>oops</tool_call>x", false)]);
        assert_eq!(
            events,
            [
                r#"Fault { message: "a tool call (hermes) could not be read: the call is not valid JSON" }"#,
                r#"Content("x")"#,
                &format!("Ended({:?})", EndReason::Error),
            ]
        );
    }

    #[test]
    fn no_events_follow_the_end() {
        let recipe = Recipe::family("qwen3").unwrap();
        let mut reader = Reader::new(&recipe, Options::default());
        let mut ends = 0;
        reader.finish(|_| ends += 1);
        reader.push_str("late", |_| ends += 1);
        reader.finish(|_| ends += 1);
        assert_eq!(ends, 1);
    }
}
