//! The arguments of a call, as one object in a syntax that is not JSON.

use super::json_writer::JsonWriter;
use super::literal::{Literal, Syntax};
use super::{Progress, Sink};

/// Reads arguments, from their `{` to their `}`. Another object may follow.
#[derive(Debug)]
pub(crate) struct LiteralArguments {
    literal: Literal,
    /// Whether the opening brace was read.
    has_started: bool,
    buffer: String,
}

impl LiteralArguments {
    /// Creates a reader for this syntax.
    pub(crate) const fn new(syntax: &'static Syntax) -> Self {
        Self { literal: Literal::new(syntax), has_started: false, buffer: String::new() }
    }

    /// Reads the next text, and writes the arguments of the open call.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        if !self.has_started {
            let at = text.len() - text.trim_ascii_start().len();
            match text.as_bytes().get(at) {
                None => return Progress::More(at),
                Some(b'{') => {
                    // The call starts with this brace and cannot be taken back, so its content must
                    // fit.
                    match text[at + 1..].trim_ascii_start().as_bytes().first() {
                        None if !last => return Progress::More(at),
                        Some(b'"' | b'{' | b'[') => {
                            return Progress::Broken(at, "the arguments are no object");
                        }
                        _ => self.has_started = true,
                    }
                }
                Some(_) => return Progress::Broken(at, "the arguments are no object"),
            }
        }
        let mut out = |delta: &str| sink.write_arguments(delta);
        let mut json = JsonWriter::new(&mut self.buffer, &mut out);
        let progress = self.literal.read(text, last, &mut json);
        json.flush();
        if matches!(progress, Progress::Ended(_)) {
            self.has_started = false;
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::every_cut::{Read, read_every_cut};
    use super::super::literal::{FUNCTION_GEMMA, GEMMA};
    use super::super::rendered::{Choices, arguments, gemma};
    use super::*;

    fn machine(syntax: &'static Syntax) -> impl Fn() -> Read<'static> {
        move || {
            let mut arguments = LiteralArguments::new(syntax);
            Box::new(move |text, last, sink| arguments.read(text, last, sink))
        }
    }

    fn read(text: &str) -> (String, Progress) {
        read_every_cut(machine(&GEMMA), text, None)
    }

    #[test]
    fn arguments_end_directly_after_their_bracket() {
        let (json, progress) = read("{k:<|\"|>a}<|\"|>,n:42}<tool_call|>");
        assert_eq!(json, r#"{"k":"a}","n":42}"#);
        assert_eq!(progress, Progress::Ended(21));
        assert_eq!(read(" {} "), ("{}".into(), Progress::Ended(3)));
    }

    #[test]
    fn rejects_arguments_that_are_no_object() {
        let why = "the arguments are no object";
        assert_eq!(read("[1]"), (String::new(), Progress::Broken(0, why)));
        assert_eq!(read(" 1"), (String::new(), Progress::Broken(1, why)));
        assert_eq!(read(" "), (String::new(), Progress::More(1)));
    }

    #[test]
    fn one_reader_reads_several_objects() {
        let both = || -> Read<'static> {
            let mut arguments = LiteralArguments::new(&GEMMA);
            let mut bodies = 0;
            Box::new(move |text, last, sink| {
                let mut at = 0;
                loop {
                    match arguments.read(&text[at..], last, sink) {
                        Progress::Ended(used) if bodies == 0 => at += used,
                        progress => return progress.offset_by(at),
                    }
                    bodies += 1;
                }
            })
        };
        let (json, progress) = read_every_cut(both, "{a:1}{b:2}", None);
        assert_eq!((json.as_str(), progress), ("{\"a\":1}{\"b\":2}", Progress::Ended(10)));
        let (json, progress) = read_every_cut(both, "{a:1}[2]", None);
        let broken = Progress::Broken(5, "the arguments are no object");
        assert_eq!((json.as_str(), progress), ("{\"a\":1}", broken));
    }

    proptest! {
        // Each text is cut at every position.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn gemma_arguments_round_trip(arguments in arguments(), seed: u64) {
            let expected = Value::Object(arguments);
            for (syntax, quote) in [(&GEMMA, "<|\"|>"), (&FUNCTION_GEMMA, "<escape>")] {
                let mut text = String::new();
                gemma(&expected, quote, &mut Choices(seed), &mut text);
                let end = text.len();
                text.push_str("<end");
                let (json, progress) = read_every_cut(machine(syntax), &text, None);
                prop_assert_eq!(json, expected.to_string());
                prop_assert_eq!(progress, Progress::Ended(end));
            }
        }

        #[test]
        fn a_cut_text_gives_a_prefix_of_the_whole(arguments in arguments(), seed: u64, cut: prop::sample::Index) {
            let expected = Value::Object(arguments);
            let mut text = String::new();
            gemma(&expected, "<|\"|>", &mut Choices(seed), &mut text);
            let cut = text.floor_char_boundary(cut.index(text.len() + 1));
            let (json, _) = read(&text[..cut]);
            // A float that lost its digits gets a zero. A partial quote is text.
            let json = json.strip_suffix(".0").unwrap_or(&json);
            let json = json.trim_end_matches(['<', '|', '\\', '"']);
            prop_assert!(expected.to_string().starts_with(json), "{}", json);
        }
    }
}
