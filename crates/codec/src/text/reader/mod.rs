//! The state machine of a model's text: answer, reasoning, calls.
//!
//! One machine for all three, since what a marker means depends on where it stands: a tag in a
//! call's arguments is data, a call in reasoning is a thought, and for some models the end of it.
//!
//! - [`states`]: the states, and the loop over them;
//! - [`answer`], [`thought`], [`block`], [`header`]: one state each.

mod answer;
mod block;
mod header;
mod states;
mod thought;

use self::states::Core;
use super::event::Event;
use super::recipe::{Options, Recipe};
use super::utf8::Characters;

/// Reads one text, piece by piece.
///
/// ```
/// use throughline_codec::text::{EndReason, Event, Options, Reader, Recipe};
///
/// let recipe = Recipe::family("qwen3")?;
/// let mut reader = Reader::new(&recipe, Options::default());
/// let (mut thought, mut answer, mut end) = (String::new(), String::new(), None);
/// let mut out = |event: Event<'_>| match event {
///     Event::Reasoning(text) => thought.push_str(text),
///     Event::Content(text) => answer.push_str(text),
///     Event::Ended(reason) => end = Some(reason),
///     _ => {}
/// };
/// for piece in ["<thi", "nk>Two and two", "</think>\n", "4"] {
///     reader.push_str(piece, &mut out);
/// }
/// reader.finish(&mut out);
/// assert_eq!((&*thought, &*answer, end), ("Two and two", "4", Some(EndReason::Stop)));
/// # Ok::<(), throughline_codec::text::UnknownName>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    characters: Characters,
    /// Text that waits for what follows it.
    held: String,
    core: Core,
}

impl Reader {
    /// A reader for one text.
    pub fn new(recipe: &Recipe, options: Options) -> Self {
        Self {
            characters: Characters::default(),
            held: String::with_capacity(128),
            core: Core::new(recipe, options),
        }
    }

    /// Takes the next bytes; characters may be cut.
    pub fn push(&mut self, bytes: &[u8], mut out: impl FnMut(Event<'_>)) {
        let (held, core) = (&mut self.held, &mut self.core);
        self.characters.push(bytes, |text| push(held, core, text, &mut out));
    }

    /// Takes the next text.
    pub fn push_str(&mut self, text: &str, mut out: impl FnMut(Event<'_>)) {
        push(&mut self.held, &mut self.core, text, &mut out);
    }

    /// Takes text that the worker itself marked as reasoning: it is, whatever it says.
    pub fn push_reasoning(&mut self, text: &str, mut out: impl FnMut(Event<'_>)) {
        if self.core.has_ended() {
            return;
        }
        self.flush(&mut out);
        self.core.flagged(text, &mut out);
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

    /// Lets go of what waits for its rest, since something other than text comes between.
    pub fn flush(&mut self, mut out: impl FnMut(Event<'_>)) {
        let (held, core) = (&mut self.held, &mut self.core);
        self.characters.finish(|text| push(held, core, text, &mut out));
        let held = std::mem::take(&mut self.held);
        self.core.interrupt(&held, &mut out);
    }

    /// The text has ended.
    pub fn finish(&mut self, mut out: impl FnMut(Event<'_>)) {
        let (held, core) = (&mut self.held, &mut self.core);
        self.characters.finish(|text| push(held, core, text, &mut out));
        let held = std::mem::take(&mut self.held);
        self.core.finish(&held, &mut out);
    }
}

fn push(held: &mut String, core: &mut Core, text: &str, out: &mut dyn FnMut(Event<'_>)) {
    if core.has_ended() {
        return;
    }
    let waited = !held.is_empty();
    if waited {
        held.push_str(text);
    }
    let shown = if waited { held.as_str() } else { text };
    let used = core.run(shown, false, out);
    if waited {
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

    /// What is told of pieces, each a text and whether the worker flagged it as reasoning.
    fn told(recipe: &Recipe, options: Options, pieces: &[(&str, bool)]) -> Vec<String> {
        let mut reader = Reader::new(recipe, options);
        let mut told = Vec::new();
        let mut out = |event: Event<'_>| told.push(format!("{event:?}"));
        for &(text, flagged) in pieces {
            if flagged {
                reader.push_reasoning(text, &mut out);
            } else {
                reader.push_str(text, &mut out);
            }
        }
        reader.finish(&mut out);
        told
    }

    /// Covers: S2-16, S2-17
    #[test]
    fn what_the_worker_flags_is_reasoning_whatever_it_says() {
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
            told(&recipe, Options::default(), &pieces),
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
    fn arguments_are_told_as_they_are_written() {
        let recipe = Recipe::family("hermes").unwrap();
        let mut reader = Reader::new(&recipe, Options::default());
        let mut told = |piece: &str| {
            let mut told = Vec::new();
            reader.push_str(piece, |event| told.push(format!("{event:?}")));
            told
        };
        assert_eq!(told("<tool_call>{\"name\": \"f"), [""; 0]);
        assert_eq!(told("\", \"arguments\": "), [""; 0]);
        assert_eq!(
            told("{\"a\": [1, "),
            [
                r#"CallStarted { index: 0, id: "call_0", name: "f" }"#,
                r#"CallArguments { index: 0, delta: "{\"a\": [1, " }"#
            ]
        );
        assert_eq!(
            told("2]}}</tool"),
            [r#"CallArguments { index: 0, delta: "2]}" }"#, "CallEnded { index: 0 }"]
        );
        assert_eq!(told("_call>"), [""; 0]);
    }

    #[test]
    fn a_fault_names_the_format_and_the_reason() {
        let recipe = Recipe::family("qwen3").unwrap();
        let options = Options { on_error: OnError::Error, ..Options::default() };
        let told = told(&recipe, options, &[("<tool_call>oops</tool_call>x", false)]);
        assert_eq!(
            told,
            [
                r#"Fault { message: "a tool call (hermes) could not be read: the call is not valid JSON" }"#,
                r#"Content("x")"#,
                &format!("Ended({:?})", EndReason::Error),
            ]
        );
    }

    #[test]
    fn nothing_is_told_after_the_end() {
        let recipe = Recipe::family("qwen3").unwrap();
        let mut reader = Reader::new(&recipe, Options::default());
        let mut ends = 0;
        reader.finish(|_| ends += 1);
        reader.push_str("late", |_| ends += 1);
        reader.finish(|_| ends += 1);
        assert_eq!(ends, 1);
    }
}
