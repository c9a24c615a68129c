//! Calls as Python dicts: `[{'name': 'search', 'arguments': {'query': 'x'}}]`.

use super::draft::{Draft, push_limited};
use super::json_writer::JsonWriter;
use super::literal::{Literal, MAX_WORD, Opening, PYTHON};
use super::malformed::{Malformed, MalformedEnd};
use super::quoted::{Quoted, StringProgress};
use super::{Progress, Sink};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Expects the list, or the only call.
    Begin,
    /// Expects a call. After a call, the end may follow.
    Call,
    /// Expects a key or the end of the call.
    Key,
    InKey(Quoted),
    Colon,
    /// Expects the value of the last key.
    Value,
    InName(Quoted),
    /// Arguments as a dict.
    Arguments,
    /// In malformed arguments, which are content.
    Malformed,
    /// Expects the closing brace of malformed arguments.
    MalformedEnd,
    /// The malformed arguments do not end in this line.
    Abandoned,
    /// Arguments as a string that contains JSON.
    InArguments(Quoted),
    /// Arguments that may be `None`.
    NoArguments,
    /// A value that is ignored.
    Skipped,
    /// Expects a comma or the end of the call.
    AfterValue,
    /// Expects a comma or the end of the list.
    AfterCall,
    Complete,
}

/// Reads such calls. After the end of a list, another may follow.
#[derive(Debug)]
pub(crate) struct DictCalls {
    declared_only: bool,
    state: State,
    in_list: bool,
    /// Whether a call was read.
    has_calls: bool,
    call: Draft,
    /// The current key, name or constant.
    text: String,
    /// Whether it is over the limit.
    too_long: bool,
    /// The first character of arguments that are a string, if it was read.
    first_character: Option<char>,
    literal: Literal,
    malformed: Malformed,
    buffer: String,
}

impl DictCalls {
    /// Creates a reader. With `declared_only`, no marker comes before the list, so it may be plain
    /// text: a call must then have arguments, and name an offered tool if the tools are known.
    pub(crate) fn new(declared_only: bool) -> Self {
        Self {
            declared_only,
            state: State::Begin,
            in_list: false,
            has_calls: false,
            call: Draft::new(declared_only),
            text: String::new(),
            too_long: false,
            first_character: None,
            literal: Literal::new(&PYTHON),
            malformed: Malformed::default(),
            buffer: String::new(),
        }
    }

    /// Reads the next text, and writes the calls.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            match self.state {
                State::Malformed => return self.read_malformed(text, last),
                State::Abandoned => return Progress::Broken(at, "the arguments do not end"),
                _ => {}
            }
            if !self.keeps_white_space() {
                at = text.len() - text[at..].trim_ascii_start().len();
            }
            if at == text.len() {
                return Progress::More(at);
            }
            let ended = sink.ended_count();
            match self.step(&text[at..], last, sink) {
                Progress::Ended(used)
                | Progress::Called(used)
                | Progress::Stray(used)
                | Progress::Text(used) => {
                    at += used;
                    if sink.ended_count() > ended {
                        return Progress::Called(at);
                    }
                }
                // Something partial at the end of the text cannot be classified.
                Progress::More(_) if last => return Progress::More(text.len()),
                Progress::Broken(used, why) => return self.handle_error(at + used, why, sink),
                progress => return progress.offset_by(at),
            }
        }
        self.state = State::Begin;
        self.has_calls = false;
        Progress::Ended(at)
    }

    /// The text does not fit. The arguments of a call that has started become content, and the list
    /// goes on after them.
    fn handle_error(&mut self, at: usize, why: &'static str, sink: &mut Sink<'_>) -> Progress {
        let tolerated = self.state == State::Arguments && sink.is_tolerant();
        if !tolerated || !self.call.abandon(sink) {
            return Progress::Broken(at, why);
        }
        self.state = State::Malformed;
        // The outermost container is the arguments.
        self.malformed = Malformed::new(b'}', self.literal.closers().skip(1).collect());
        self.literal = Literal::new(&PYTHON);
        Progress::Called(at)
    }

    /// Reads malformed arguments up to their closing brace.
    fn read_malformed(&mut self, text: &str, last: bool) -> Progress {
        let (end, progress) = self.malformed.read(text, last);
        self.state = match end {
            None => State::Malformed,
            Some(MalformedEnd::Closed) => State::MalformedEnd,
            Some(MalformedEnd::Other(b']')) if self.in_list => State::AfterCall,
            Some(MalformedEnd::Other(_)) => State::Abandoned,
        };
        progress
    }

    /// Whether white space may be part of the current value.
    const fn keeps_white_space(&self) -> bool {
        matches!(
            self.state,
            State::InKey(_)
                | State::InName(_)
                | State::InArguments(_)
                | State::Arguments
                | State::NoArguments
                | State::Skipped
        )
    }

    /// Reads the start of a text, which is not empty. `Ended` is the end of this step.
    fn step(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let byte = text.as_bytes()[0];
        match (self.state, byte) {
            (State::Begin, b'[') => {
                self.in_list = true;
                self.advance_to(State::Call)
            }
            (State::Begin, b'{') => {
                self.in_list = false;
                self.advance_to(State::Key)
            }
            (State::Call, b'{') => self.advance_to(State::Key),
            (State::Call, b']') if self.has_calls => self.advance_to(State::Complete),
            (State::Begin | State::Call, _) => Progress::Broken(0, "a call was expected"),
            (State::Key | State::AfterValue, b'}') => self.close(sink),
            (State::Key, _) => match PYTHON.opening(text, last) {
                Opening::No => Progress::Broken(0, "a key was expected"),
                Opening::Partial => Progress::More(0),
                Opening::Quote(quote) => self.open_string(quote, State::InKey),
            },
            (State::InKey(quoted), _) => match self.read_text(quoted, text, last) {
                StringProgress::Inside(used) => Progress::More(used),
                StringProgress::Closed(used) => {
                    self.state = State::Colon;
                    Progress::Ended(used)
                }
            },
            (State::Colon, b':') => self.advance_to(State::Value),
            (State::Colon, _) => Progress::Broken(0, "a colon was expected"),
            (State::Value, _) => self.begin_value(text, last),
            (State::InName(quoted), _) => match self.read_text(quoted, text, last) {
                StringProgress::Inside(used) => Progress::More(used),
                StringProgress::Closed(used) => match self.finish_name(sink) {
                    Ok(()) => Progress::Ended(used),
                    Err(why) => Progress::Broken(used, why),
                },
            },
            (State::InArguments(quoted), _) => match self.read_string(quoted, text, last, sink) {
                StringProgress::Inside(used) => Progress::More(used),
                StringProgress::Closed(used) => match self.first_character {
                    Some('{') => self.finish_arguments(used, sink),
                    Some(_) => Progress::Broken(used, "the arguments are no object"),
                    None => self.no_arguments(used, sink),
                },
            },
            (State::Arguments, _) => match self.read_dict(text, last, sink) {
                Progress::Ended(used) => self.finish_arguments(used, sink),
                progress => progress,
            },
            (State::NoArguments | State::Skipped, _) => self.skip(text, last, sink),
            (State::AfterValue, b',') => self.advance_to(State::Key),
            // The brace of the call is missing.
            (State::AfterValue, b']') if self.in_list && sink.is_tolerant() => {
                match self.close(sink) {
                    Progress::Ended(_) => Progress::Ended(0),
                    progress => progress,
                }
            }
            (State::AfterValue, _) => {
                Progress::Broken(0, "a comma or a closing bracket was expected")
            }
            (State::AfterCall, b',') => self.advance_to(State::Call),
            (State::AfterCall, b']') => self.advance_to(State::Complete),
            // A bracket that nothing opened. The list goes on.
            (State::AfterCall, b')' | b'}') if sink.is_tolerant() => {
                self.advance_to(State::AfterCall)
            }
            (State::AfterCall, _) => {
                Progress::Broken(0, "a comma or the end of the list was expected")
            }
            (State::MalformedEnd, _) => self.advance_to(State::AfterValue),
            (State::Malformed | State::Abandoned | State::Complete, _) => Progress::Ended(0),
        }
    }

    /// Decides how to read the value of the current key.
    fn begin_value(&mut self, text: &str, last: bool) -> Progress {
        let key = if self.too_long { "" } else { self.text.as_str() };
        let is_name = key == "name" && !self.call.has_name();
        let is_arguments = matches!(key, "arguments" | "parameters") && !self.call.has_arguments();
        if !is_name && !is_arguments {
            self.state = State::Skipped;
            return Progress::Ended(0);
        }
        match (PYTHON.opening(text, last), text.as_bytes()[0]) {
            (Opening::Partial, _) => return Progress::More(0),
            (Opening::Quote(quote), _) if is_name => return self.open_string(quote, State::InName),
            (Opening::Quote(quote), _) => return self.open_string(quote, State::InArguments),
            (Opening::No, _) if is_name => {
                return Progress::Broken(0, "a call's name is no string");
            }
            (Opening::No, b'[' | b'(') => {
                return Progress::Broken(0, "the arguments are no object");
            }
            (Opening::No, b'{') => self.state = State::Arguments,
            (Opening::No, _) => {
                self.text.clear();
                self.state = State::NoArguments;
            }
        }
        Progress::Ended(0)
    }

    fn open_string(&mut self, quote: &'static str, state: fn(Quoted) -> State) -> Progress {
        self.text.clear();
        self.too_long = false;
        self.first_character = None;
        self.state = state(PYTHON.quoted(quote, false));
        Progress::Ended(quote.len())
    }

    /// Reads the next text of a key or a name.
    fn read_text(&mut self, quoted: Quoted, text: &str, last: bool) -> StringProgress {
        let (held, too_long) = (&mut self.text, &mut self.too_long);
        let mut out = |delta: &str| push_limited(delta, held, MAX_WORD, too_long);
        let mut json = JsonWriter::new(&mut self.buffer, &mut out);
        let end = quoted.read(text, last, &mut json);
        json.flush();
        end
    }

    /// Reads the next text of arguments that are a dict.
    fn read_dict(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let call = &mut self.call;
        let mut out = |delta: &str| call.push_arguments(delta, sink);
        let mut json = JsonWriter::new(&mut self.buffer, &mut out);
        let progress = self.literal.read(text, last, &mut json);
        json.flush();
        progress
    }

    /// Reads the next text of arguments that are a string. Its content is emitted unchanged if it
    /// starts like an object. Otherwise nothing is emitted.
    fn read_string(
        &mut self,
        quoted: Quoted,
        text: &str,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> StringProgress {
        let (call, first_character) = (&mut self.call, &mut self.first_character);
        let mut out = |delta: &str| {
            let delta = match first_character {
                None => delta.trim_ascii_start(),
                Some(_) => delta,
            };
            *first_character = first_character.or(delta.chars().next());
            if *first_character == Some('{') {
                call.push_arguments(delta, sink);
            }
        };
        let mut json = JsonWriter::new(&mut self.buffer, &mut out);
        let end = quoted.read(text, last, &mut json);
        json.flush();
        end
    }

    /// Reads the next text of a value that is not emitted.
    fn skip(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let (held, too_long) = (&mut self.text, &mut self.too_long);
        let mut out = |delta: &str| push_limited(delta, held, MAX_WORD, too_long);
        let mut json = JsonWriter::new(&mut self.buffer, &mut out);
        let progress = self.literal.read(text, last, &mut json);
        json.flush();
        match progress {
            Progress::Ended(used) if self.state == State::Skipped => {
                self.state = State::AfterValue;
                Progress::Ended(used)
            }
            Progress::Ended(used) if self.text == "null" => self.no_arguments(used, sink),
            Progress::Ended(used) => Progress::Broken(used, "the arguments are no object"),
            progress => progress,
        }
    }

    /// The name is complete.
    fn finish_name(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.too_long {
            return Err("a name is too long");
        }
        if self.text.is_empty() {
            return Err("a call's name is empty");
        }
        if self.declared_only && sink.tools().is_some_and(|tools| !tools.declares(&self.text)) {
            return Err("no such tool was offered");
        }
        self.call.set_name(&self.text, sink);
        self.state = State::AfterValue;
        Ok(())
    }

    /// The arguments are empty.
    fn no_arguments(&mut self, used: usize, sink: &mut Sink<'_>) -> Progress {
        self.call.push_arguments("{}", sink);
        self.finish_arguments(used, sink)
    }

    fn finish_arguments(&mut self, used: usize, sink: &mut Sink<'_>) -> Progress {
        self.state = State::AfterValue;
        match self.call.finish_arguments(sink) {
            Ok(()) => Progress::Ended(used),
            Err(why) => Progress::Broken(used, why),
        }
    }

    /// Handles the closing brace of the call.
    fn close(&mut self, sink: &mut Sink<'_>) -> Progress {
        if let Err(why) = self.call.finish(sink) {
            return Progress::Broken(1, why);
        }
        self.has_calls = true;
        self.advance_to(match self.in_list {
            true => State::AfterCall,
            false => State::Complete,
        })
    }

    fn advance_to(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::Ended(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::super::schema::Tools;
    use super::super::MAX_HELD;
    use super::super::every_cut::{Read, read_every_cut, read_pieces};
    use super::super::rendered::{Choices, arguments, python, values};
    use super::*;

    fn machine(declared_only: bool) -> impl Fn() -> Read<'static> {
        move || {
            let mut calls = DictCalls::new(declared_only);
            Box::new(move |text, last, sink| calls.read(text, last, sink))
        }
    }

    fn read(text: &str) -> (String, Progress) {
        read_every_cut(machine(false), text, None)
    }

    #[test]
    fn reads_dicts_as_calls() {
        for (text, expected) in [
            (
                "[{'name': 'f', 'arguments': {'a': 1, 'b': ['x', None]}}]",
                "f{\"a\":1,\"b\":[\"x\",null]};",
            ),
            (" [ {\"name\": \"f\", \"parameters\": {}} ,\n{'name': 'g'},]", "f{};g{};"),
            (
                "[{'arguments': {'a': 'it\\'s'}, 'id': [{'name': 1}], 'name': 'f'}]",
                "f{\"a\":\"it's\"};",
            ),
            ("{'name': 'f', 'arguments': None}", "f{};"),
            ("{'arguments': null, 'name': 'f'}", "f{};"),
            (
                "{'name': 'f', 'arguments': ' {\"a\": \"\\\\n\"}', 'type': 'function',}",
                "f{\"a\": \"\\n\"};",
            ),
            ("{'arguments': '{\"a\": 1}', 'name': 'f'}", "f{\"a\": 1};"),
            ("{'name': 'f', 'arguments': ''}", "f{};"),
            (
                "{'name': 'f', 'name': 1, 'arguments': {'a': 1}, 'parameters': {'b': 2}}",
                "f{\"a\":1};",
            ),
            ("{'na\\x6de': '''f\\\n''', 'arguments': {}}", "f{};"),
        ] {
            let progress = Progress::Ended(text.len());
            let (output, end) = read(&format!("{text}]\n"));
            assert_eq!((output.as_str(), end), (expected, progress), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_call_starts_no_call() {
        let no_object = "the arguments are no object";
        for (text, at, why) in [
            ("text", 0, "a call was expected"),
            ("[1]", 1, "a call was expected"),
            ("[]", 1, "a call was expected"),
            ("[{'a': 1}]", 9, "a call has no name"),
            ("[{}, {'name': 'f'}]", 3, "a call has no name"),
            ("{'name': 1}", 9, "a call's name is no string"),
            ("{'name': ''}", 11, "a call's name is empty"),
            ("{'arguments': [1], 'name': 'f'}", 14, no_object),
            ("{'arguments': 1, 'name': 'f'}", 15, no_object),
            ("{'arguments': 'text', 'name': 'f'}", 20, no_object),
            ("{name: 'f'}", 1, "a key was expected"),
            ("{'name' 'f'}", 8, "a colon was expected"),
        ] {
            let expected = (String::new(), Progress::Broken(at, why));
            assert_eq!(read(text), expected, "{text}");
        }
        let long = "f".repeat(MAX_WORD + 1);
        let (output, progress) = read(&format!("{{'{long}': 1, 'name': '{long}'}}"));
        let broken = Progress::Broken(MAX_WORD * 2 + 20, "a name is too long");
        assert_eq!((output.as_str(), progress), ("", broken));
    }

    #[test]
    fn errors_give_their_position() {
        for (text, output, at, why) in [
            ("[{'name': 'f', 'arguments': [1]}]", "f", 28, "the arguments are no object"),
            (
                "[{'name': 'f' 'arguments': {}}]",
                "f",
                14,
                "a comma or a closing bracket was expected",
            ),
            ("[{'name': 'f'} {}]", "f{};", 15, "a comma or the end of the list was expected"),
        ] {
            let expected = (output.to_owned(), Progress::Broken(at, why));
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn malformed_arguments_are_content_and_the_list_goes_on() {
        for (text, output) in [
            ("[{'name': 'f', 'arguments': {'a': x}}]", "f{\"a\":x"),
            ("[{'name': 'f', 'arguments': {'a': 1 b}, 'id': 2}, {'name': 'g'}]", "f{\"a\":1bg{};"),
            ("[{'name': 'f', 'arguments': {'a': [1 (b)]}}]", "f{\"a\":[1(b)"),
            ("[{'name': 'f', 'arguments': {'a': [1}}, {'name': 'g'}]", "f{\"a\":[1g{};"),
            ("[{'name': 'f', 'arguments': {'a': 1]}}, {'name': 'g'}]", "f{\"a\":1g{};"),
        ] {
            assert_eq!(read(text), (output.to_owned(), Progress::Ended(text.len())), "{text}");
        }
        let text = "[{'name': 'f', 'arguments': {'a': x\n";
        let broken = Progress::Broken(text.len() - 1, "the arguments do not end");
        assert_eq!(read(text), ("f{\"a\":x".to_owned(), broken));
    }

    #[test]
    fn a_cut_keeps_the_emitted_output() {
        for (text, output) in [
            ("[{'name': 'f", ""),
            ("[{'name': 'f'", "f"),
            ("[{'name': 'f', 'arguments': {'a': 'x", "f{\"a\":\"x"),
            ("[{'name': 'f', 'arguments': {}", "f{};"),
            ("[{'name': 'f', 'arguments': No", "f"),
            ("[{'arguments': {'a': 1}, ", ""),
            ("[{'name': 'f'}", "f{};"),
        ] {
            let expected = (output.to_owned(), Progress::More(text.len()));
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn without_a_marker_a_call_needs_arguments_and_an_offered_tool() {
        let tools = Tools::read(br#"[{"name":"f"}]"#).unwrap();
        let read = |text| read_every_cut(machine(true), text, Some(&tools));
        let broken = |at, why| (String::new(), Progress::Broken(at, why));
        assert_eq!(
            read("[{'name': 'g', 'arguments': {}}]"),
            broken(13, "no such tool was offered")
        );
        assert_eq!(read("[{'name': 'f'}]"), broken(14, "a call has no arguments"));
        assert_eq!(read("[{'name': 'f', 'arguments': "), (String::new(), Progress::More(28)));
        assert_eq!(read("[{'name': 'f', 'arguments': {"), ("f{".into(), Progress::More(29)));
        for text in [
            "[{'name': 'f', 'arguments': {'a':1}}]",
            "[{'arguments': {'a':1}, 'name': 'f'}]",
            "[{'name': 'f', 'arguments': '{\"a\":1}'}]",
        ] {
            assert_eq!(read(text), ("f{\"a\":1};".into(), Progress::Ended(text.len())));
        }
    }

    #[test]
    fn arguments_before_the_name_are_limited() {
        let read = |length: usize| {
            let text = format!("{{'arguments': {{'a': '{}'}}, 'name': 'f'}}", "x".repeat(length));
            read_pieces(machine(false)(), &[&text[..99], &text[99..]], None)
        };
        let around = "{\"a\":\"\"}".len();
        let (output, progress) = read(MAX_HELD - around);
        assert_eq!(output.len(), MAX_HELD + 2);
        assert!(matches!(progress, Progress::Ended(_)));
        let (output, progress) = read(MAX_HELD - around + 1);
        let why = "the arguments before the name are too long";
        assert_eq!((output.as_str(), progress), ("", Progress::Broken(MAX_HELD + 16, why)));
    }

    proptest! {
        // Each text is cut at every position.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn calls_round_trip(arguments in arguments(), other in values(), order in Just([0, 1, 2]).prop_shuffle(), seed: u64) {
            let arguments = Value::Object(arguments);
            let entries = [("name", json!("f.g")), ("arguments", arguments.clone()), ("other", other)];
            let mut choices = Choices(seed);
            let mut text = String::from("[{");
            for place in order {
                let (key, value) = &entries[place];
                python(&json!(key), &mut choices, &mut text);
                text.push_str(choices.space());
                text.push(':');
                text.push_str(choices.space());
                python(value, &mut choices, &mut text);
                text.push(',');
            }
            text.push_str("}]");
            let (output, progress) = read(&text);
            prop_assert_eq!(output, format!("f.g{arguments};"));
            prop_assert_eq!(progress, Progress::Ended(text.len()));
        }

        #[test]
        fn splits_do_not_change_the_output(text in "\\[?\\{('name': 'f'|'arguments': |[,'\"\\\\\\[\\]{}:x1.\n u-]){0,20}") {
            read(&text);
        }
    }
}
