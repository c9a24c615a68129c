//! Calls written as Python dicts: `[{'name': 'search', 'arguments': {'query': 'x'}}]`.

use super::draft::{Draft, hold};
use super::json_writer::JsonWriter;
use super::literal::{LONGEST_WORD, Literal, Opening, PYTHON};
use super::quoted::{Quoted, Reached};
use super::{Progress, Sink};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The list must begin, or the only call.
    Begin,
    /// A call must come. Where one came already, the end may.
    Call,
    /// A key or the end of the call must come.
    Key,
    InKey(Quoted),
    Colon,
    /// The value of the key that was read must come.
    Value,
    InName(Quoted),
    /// Arguments written as a dict.
    Arguments,
    /// Arguments written as a string that holds JSON.
    InArguments(Quoted),
    /// Arguments that may be `None`.
    NoArguments,
    /// A value that means nothing here.
    Skipped,
    /// A comma or the end of the call must come.
    BehindValue,
    /// A comma or the end of the list must come.
    BehindCall,
    Complete,
}

/// Reads such calls. When a list has ended, another may follow.
#[derive(Debug)]
pub(crate) struct DictCalls {
    declared_only: bool,
    state: State,
    in_list: bool,
    /// Whether a call was read.
    any: bool,
    call: Draft,
    /// The key, the name or the constant that is read.
    text: String,
    /// Whether it is longer than may be.
    too_long: bool,
    /// The first character of arguments written as a string, if it was seen.
    first: Option<char>,
    literal: Literal,
    gathered: String,
}

impl DictCalls {
    /// Reads calls. With `declared_only` the list may be plain text as well, since no marker stands
    /// before it: then a call has arguments, and is of a tool that was offered, where that is known.
    pub(crate) const fn new(declared_only: bool) -> Self {
        Self {
            declared_only,
            state: State::Begin,
            in_list: false,
            any: false,
            call: Draft::new(declared_only),
            text: String::new(),
            too_long: false,
            first: None,
            literal: Literal::new(&PYTHON),
            gathered: String::new(),
        }
    }

    /// Reads on, and tells the calls.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            if !self.minds_space() {
                at = text.len() - text[at..].trim_ascii_start().len();
            }
            if at == text.len() {
                return Progress::More(at);
            }
            let ended = sink.ended();
            match self.step(&text[at..], last, sink) {
                Progress::Ended(used) | Progress::Called(used) | Progress::Stray(used) => {
                    at += used;
                    if sink.ended() > ended {
                        return Progress::Called(at);
                    }
                }
                // What has only begun, in a text that will not go on, cannot be told.
                Progress::More(_) if last => return Progress::More(text.len()),
                progress => return progress.behind(at),
            }
        }
        self.state = State::Begin;
        self.any = false;
        Progress::Ended(at)
    }

    /// Whether white space may be part of what is read.
    const fn minds_space(&self) -> bool {
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

    /// Reads what a text, which is not empty, begins with. `Ended` is the end of this step.
    fn step(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let byte = text.as_bytes()[0];
        match (self.state, byte) {
            (State::Begin, b'[') => {
                self.in_list = true;
                self.goes_on(State::Call)
            }
            (State::Begin, b'{') => {
                self.in_list = false;
                self.goes_on(State::Key)
            }
            (State::Call, b'{') => self.goes_on(State::Key),
            (State::Call, b']') if self.any => self.goes_on(State::Complete),
            (State::Begin | State::Call, _) => Progress::Broken(0, "a call was expected"),
            (State::Key | State::BehindValue, b'}') => self.close(sink),
            (State::Key, _) => match PYTHON.opening(text, last) {
                Opening::No => Progress::Broken(0, "a key was expected"),
                Opening::Begun => Progress::More(0),
                Opening::Quote(quote) => self.open(quote, State::InKey),
            },
            (State::InKey(quoted), _) => match self.read_text(quoted, text, last) {
                Reached::Inside(used) => Progress::More(used),
                Reached::Closed(used) => {
                    self.state = State::Colon;
                    Progress::Ended(used)
                }
            },
            (State::Colon, b':') => self.goes_on(State::Value),
            (State::Colon, _) => Progress::Broken(0, "a colon was expected"),
            (State::Value, _) => self.value(text, last),
            (State::InName(quoted), _) => match self.read_text(quoted, text, last) {
                Reached::Inside(used) => Progress::More(used),
                Reached::Closed(used) => match self.name(sink) {
                    Ok(()) => Progress::Ended(used),
                    Err(why) => Progress::Broken(used, why),
                },
            },
            (State::InArguments(quoted), _) => match self.read_string(quoted, text, last, sink) {
                Reached::Inside(used) => Progress::More(used),
                Reached::Closed(used) => match self.first {
                    Some('{') => self.arguments_ended(used, sink),
                    Some(_) => Progress::Broken(used, "the arguments are no object"),
                    None => self.no_arguments(used, sink),
                },
            },
            (State::Arguments, _) => match self.read_dict(text, last, sink) {
                Progress::Ended(used) => self.arguments_ended(used, sink),
                progress => progress,
            },
            (State::NoArguments | State::Skipped, _) => self.skip(text, last, sink),
            (State::BehindValue, b',') => self.goes_on(State::Key),
            (State::BehindValue, _) => {
                Progress::Broken(0, "a comma or a closing bracket was expected")
            }
            (State::BehindCall, b',') => self.goes_on(State::Call),
            (State::BehindCall, b']') => self.goes_on(State::Complete),
            (State::BehindCall, _) => {
                Progress::Broken(0, "a comma or the end of the list was expected")
            }
            (State::Complete, _) => Progress::Ended(0),
        }
    }

    /// Sees what the value behind a key is.
    fn value(&mut self, text: &str, last: bool) -> Progress {
        let key = if self.too_long { "" } else { self.text.as_str() };
        let is_name = key == "name" && !self.call.has_name();
        let is_arguments = matches!(key, "arguments" | "parameters") && !self.call.has_arguments();
        if !is_name && !is_arguments {
            self.state = State::Skipped;
            return Progress::Ended(0);
        }
        match (PYTHON.opening(text, last), text.as_bytes()[0]) {
            (Opening::Begun, _) => return Progress::More(0),
            (Opening::Quote(quote), _) if is_name => return self.open(quote, State::InName),
            (Opening::Quote(quote), _) => return self.open(quote, State::InArguments),
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

    fn open(&mut self, quote: &'static str, state: fn(Quoted) -> State) -> Progress {
        self.text.clear();
        self.too_long = false;
        self.first = None;
        self.state = state(PYTHON.quoted(quote, false));
        Progress::Ended(quote.len())
    }

    /// Reads on in a key or a name.
    fn read_text(&mut self, quoted: Quoted, text: &str, last: bool) -> Reached {
        let (held, too_long) = (&mut self.text, &mut self.too_long);
        let mut out = |delta: &str| hold(delta, held, LONGEST_WORD, too_long);
        let mut json = JsonWriter::new(&mut self.gathered, &mut out);
        let reached = quoted.read(text, last, &mut json);
        json.flush();
        reached
    }

    /// Reads on in arguments that are a dict.
    fn read_dict(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let call = &mut self.call;
        let mut out = |delta: &str| call.arguments(delta, sink);
        let mut json = JsonWriter::new(&mut self.gathered, &mut out);
        let progress = self.literal.read(text, last, &mut json);
        json.flush();
        progress
    }

    /// Reads on in arguments that are a string. What is in it goes out as it is if it begins as an
    /// object does; else nothing goes out.
    fn read_string(
        &mut self,
        quoted: Quoted,
        text: &str,
        last: bool,
        sink: &mut Sink<'_>,
    ) -> Reached {
        let (call, first) = (&mut self.call, &mut self.first);
        let mut out = |delta: &str| {
            let delta = match first {
                None => delta.trim_ascii_start(),
                Some(_) => delta,
            };
            *first = first.or(delta.chars().next());
            if *first == Some('{') {
                call.arguments(delta, sink);
            }
        };
        let mut json = JsonWriter::new(&mut self.gathered, &mut out);
        let reached = quoted.read(text, last, &mut json);
        json.flush();
        reached
    }

    /// Reads on in a value that is not told.
    fn skip(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let (held, too_long) = (&mut self.text, &mut self.too_long);
        let mut out = |delta: &str| hold(delta, held, LONGEST_WORD, too_long);
        let mut json = JsonWriter::new(&mut self.gathered, &mut out);
        let progress = self.literal.read(text, last, &mut json);
        json.flush();
        match progress {
            Progress::Ended(used) if self.state == State::Skipped => {
                self.state = State::BehindValue;
                Progress::Ended(used)
            }
            Progress::Ended(used) if self.text == "null" => self.no_arguments(used, sink),
            Progress::Ended(used) => Progress::Broken(used, "the arguments are no object"),
            progress => progress,
        }
    }

    /// The name was read.
    fn name(&mut self, sink: &mut Sink<'_>) -> Result<(), &'static str> {
        if self.too_long {
            return Err("a name is too long");
        }
        if self.text.is_empty() {
            return Err("a call's name is empty");
        }
        if self.declared_only && sink.tools().is_some_and(|tools| !tools.declares(&self.text)) {
            return Err("no such tool was offered");
        }
        self.call.name(&self.text, sink);
        self.state = State::BehindValue;
        Ok(())
    }

    /// The arguments are there, and say nothing.
    fn no_arguments(&mut self, used: usize, sink: &mut Sink<'_>) -> Progress {
        self.call.arguments("{}", sink);
        self.arguments_ended(used, sink)
    }

    fn arguments_ended(&mut self, used: usize, sink: &mut Sink<'_>) -> Progress {
        self.state = State::BehindValue;
        match self.call.arguments_ended(sink) {
            Ok(()) => Progress::Ended(used),
            Err(why) => Progress::Broken(used, why),
        }
    }

    /// The call's own bracket closes.
    fn close(&mut self, sink: &mut Sink<'_>) -> Progress {
        if let Err(why) = self.call.ended(sink) {
            return Progress::Broken(1, why);
        }
        self.any = true;
        self.goes_on(match self.in_list {
            true => State::BehindCall,
            false => State::Complete,
        })
    }

    fn goes_on(&mut self, state: State) -> Progress {
        self.state = state;
        Progress::Ended(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::super::schema::Tools;
    use super::super::HELD;
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
    fn dicts_are_calls() {
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
            let (told, reached) = read(&format!("{text}]\n"));
            assert_eq!((told.as_str(), reached), (expected, progress), "{text}");
        }
    }

    #[test]
    fn what_is_no_call_starts_none() {
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
        let long = "f".repeat(LONGEST_WORD + 1);
        let (told, progress) = read(&format!("{{'{long}': 1, 'name': '{long}'}}"));
        let broken = Progress::Broken(LONGEST_WORD * 2 + 20, "a name is too long");
        assert_eq!((told.as_str(), progress), ("", broken));
    }

    #[test]
    fn errors_in_a_call_are_told_where_they_stand() {
        for (text, told, at, why) in [
            ("[{'name': 'f', 'arguments': {'a': x}}]", "f{\"a\":", 34, "a value was expected"),
            ("[{'name': 'f', 'arguments': [1]}]", "f", 28, "the arguments are no object"),
            (
                "[{'name': 'f' 'arguments': {}}]",
                "f",
                14,
                "a comma or a closing bracket was expected",
            ),
            ("[{'name': 'f'} {}]", "f{};", 15, "a comma or the end of the list was expected"),
        ] {
            let expected = (told.to_owned(), Progress::Broken(at, why));
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn a_cut_keeps_what_was_told() {
        for (text, told) in [
            ("[{'name': 'f", ""),
            ("[{'name': 'f'", "f"),
            ("[{'name': 'f', 'arguments': {'a': 'x", "f{\"a\":\"x"),
            ("[{'name': 'f', 'arguments': {}", "f{};"),
            ("[{'name': 'f', 'arguments': No", "f"),
            ("[{'arguments': {'a': 1}, ", ""),
            ("[{'name': 'f'}", "f{};"),
        ] {
            let expected = (told.to_owned(), Progress::More(text.len()));
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn without_a_marker_a_call_has_arguments_and_a_tool_that_was_offered() {
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
    fn arguments_before_the_name_have_a_limit() {
        let read = |length: usize| {
            let text = format!("{{'arguments': {{'a': '{}'}}, 'name': 'f'}}", "x".repeat(length));
            read_pieces(machine(false)(), &[&text[..99], &text[99..]], None)
        };
        let around = "{\"a\":\"\"}".len();
        let (told, progress) = read(HELD - around);
        assert_eq!(told.len(), HELD + 2);
        assert!(matches!(progress, Progress::Ended(_)));
        let (told, progress) = read(HELD - around + 1);
        let why = "the arguments before the name are too long";
        assert_eq!((told.as_str(), progress), ("", Progress::Broken(HELD + 16, why)));
    }

    proptest! {
        // Each is cut at every place.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn calls_are_read_back(arguments in arguments(), other in values(), order in Just([0, 1, 2]).prop_shuffle(), seed: u64) {
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
            let (told, progress) = read(&text);
            prop_assert_eq!(told, format!("f.g{arguments};"));
            prop_assert_eq!(progress, Progress::Ended(text.len()));
        }

        #[test]
        fn whatever_comes_cuts_change_nothing(text in "\\[?\\{('name': 'f'|'arguments': |[,'\"\\\\\\[\\]{}:x1.\n u-]){0,20}") {
            read(&text);
        }
    }
}
