//! Calls in Python syntax: `[search(query="x", limit=3), stop()]`, or one per line.
//!
//! Brackets and a word are common in plain text, so a call counts only if its first argument has a
//! name, or if it has no arguments: `[link](address)` and `[see(1)]` are no calls.

use super::json_writer::JsonWriter;
use super::literal::{Literal, MAX_WORD, PYTHON};
use super::malformed::{Malformed, MalformedEnd};
use super::{MAX_FRAMING, Progress, Sink};

/// How calls are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In a Python list, which ends the body.
    List {
        /// Whether no marker comes before the list, so that it may be plain text. A call must then
        /// name an offered tool, if the tools are known.
        declared_only: bool,
    },
    /// One after the other, between white space.
    Lines {
        /// The marker after the body.
        end: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Expects the list.
    Begin,
    /// Expects a call. After a call, the end may follow.
    Call,
    /// Expects an argument or the closing bracket.
    Argument,
    /// The value of an argument.
    Value,
    /// Expects a comma or the closing bracket.
    AfterValue,
    /// Expects a comma or the end of the list.
    AfterCall,
    /// In malformed arguments, which are content.
    Malformed,
    /// Expects the closing bracket of malformed arguments.
    MalformedEnd,
    /// The malformed arguments do not end in this line.
    Abandoned,
    /// The body is complete.
    Complete,
}

/// Reads such calls. After the end of a body, another may follow.
#[derive(Debug)]
pub(crate) struct PythonCalls {
    layout: Layout,
    state: State,
    /// Whether a call was read.
    has_calls: bool,
    /// The name of the current call.
    name: String,
    /// The name of the current argument.
    key: String,
    /// The number of arguments so far, if the start of the call was emitted.
    argument_count: Option<usize>,
    literal: Literal,
    malformed: Malformed,
    buffer: String,
}

/// The result of a step: the number of bytes used (`None`: more text is needed), or the position of
/// the byte that does not fit, with the reason.
type Step = Result<Option<usize>, (usize, &'static str)>;

impl PythonCalls {
    /// Creates a reader for this layout.
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            state: Self::first_state(layout),
            has_calls: false,
            name: String::new(),
            key: String::new(),
            argument_count: None,
            literal: Literal::new(&PYTHON),
            malformed: Malformed::default(),
            buffer: String::new(),
        }
    }

    const fn first_state(layout: Layout) -> State {
        match layout {
            Layout::List { .. } => State::Begin,
            Layout::Lines { .. } => State::Call,
        }
    }

    /// Reads the next text, and writes the calls.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let progress = self.advance(text, last, sink);
        self.flush(sink);
        progress
    }

    fn advance(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            if self.state == State::Value {
                let mut out = |delta: &str| sink.write_arguments(delta);
                let mut json = JsonWriter::new(&mut self.buffer, &mut out);
                match self.literal.read(&text[at..], last, &mut json) {
                    Progress::Ended(used) => at += used,
                    Progress::Broken(position, why) => {
                        return self.handle_error(at + position, why, sink);
                    }
                    progress => return progress.offset_by(at),
                }
                self.state = State::AfterValue;
            }
            match self.state {
                State::Malformed => return self.read_malformed(text, last),
                State::Abandoned => return Progress::Broken(at, "the arguments do not end"),
                _ => {}
            }
            at = text.len() - text[at..].trim_ascii_start().len();
            let ended = sink.ended_count();
            let step = match at == text.len() {
                true => Ok(None),
                false => self.step(&text[at..], last, sink),
            };
            match step {
                Ok(Some(used)) if sink.ended_count() > ended => return Progress::Called(at + used),
                Ok(Some(used)) => at += used,
                Ok(None) if last => return self.cut(text, at, sink),
                Ok(None) => return Progress::More(at),
                Err((position, why)) => return self.handle_error(at + position, why, sink),
            }
        }
        self.state = Self::first_state(self.layout);
        self.has_calls = false;
        Progress::Ended(at)
    }

    /// The text does not fit. The arguments of a call that has started become content, and the list
    /// goes on after them.
    fn handle_error(&mut self, at: usize, why: &'static str, sink: &mut Sink<'_>) -> Progress {
        if self.argument_count.is_none() || !sink.is_tolerant() {
            return Progress::Broken(at, why);
        }
        self.flush(sink);
        sink.abandon();
        self.argument_count = None;
        self.has_calls = true;
        self.state = State::Malformed;
        self.malformed = Malformed::new(b')', self.literal.closers().collect());
        self.literal = Literal::new(&PYTHON);
        Progress::Called(at)
    }

    /// Reads malformed arguments up to their closing bracket.
    fn read_malformed(&mut self, text: &str, last: bool) -> Progress {
        let (end, progress) = self.malformed.read(text, last);
        self.state = match end {
            None => State::Malformed,
            Some(MalformedEnd::Closed) => State::MalformedEnd,
            Some(MalformedEnd::Other(b']')) if self.in_list() => State::AfterCall,
            Some(MalformedEnd::Other(_)) => State::Abandoned,
        };
        progress
    }

    /// The text ends here, or with something partial.
    fn cut(&mut self, text: &str, at: usize, sink: &mut Sink<'_>) -> Progress {
        match (self.layout, self.state) {
            // Lines end with the text, if the last one is complete.
            (Layout::Lines { end }, State::Call)
                if self.has_calls && end.starts_with(&text[at..]) =>
            {
                self.state = State::Call;
                self.has_calls = false;
                return Progress::Ended(at);
            }
            // After a marker, a name and a bracket are a call.
            (Layout::List { declared_only: false } | Layout::Lines { .. }, State::Argument) => {
                self.start_call(sink);
            }
            // A name without its bracket is no call. The caller decides about it.
            (_, State::Call) => return Progress::More(at),
            _ => {}
        }
        Progress::More(text.len())
    }

    /// Reads the start of a text, which is not white space.
    fn step(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Step {
        let byte = text.as_bytes()[0];
        match (self.state, byte) {
            (State::Begin, b'[') => self.advance_to(State::Call),
            (State::Begin, _) => Err((0, "a list of calls was expected")),
            (State::Call, b']') if self.has_calls && self.in_list() => {
                self.advance_to(State::Complete)
            }
            // A bracket that nothing opened. The calls go on.
            (State::Call, b')' | b']' | b'}') if self.has_calls && sink.is_tolerant() => {
                self.advance_to(State::Call)
            }
            (State::Call, _) => self.call(text, sink),
            (State::Argument | State::AfterValue, b')') => {
                self.start_call(sink);
                let bracket = if self.argument_count == Some(0) { "{}" } else { "}" };
                self.buffer.push_str(bracket);
                self.flush(sink);
                sink.end();
                self.argument_count = None;
                self.has_calls = true;
                self.advance_after_call()
            }
            (State::MalformedEnd, _) => self.advance_after_call(),
            (State::Argument, _) => self.argument(text, last, sink),
            (State::AfterValue, b',') => self.advance_to(State::Argument),
            (State::AfterValue, _) => Err((0, "a comma or a closing bracket was expected")),
            (State::AfterCall, b',') => self.advance_to(State::Call),
            (State::AfterCall, b']') => self.advance_to(State::Complete),
            (State::AfterCall, b')' | b'}') if sink.is_tolerant() => {
                self.advance_to(State::AfterCall)
            }
            (State::AfterCall, _) => Err((0, "a comma or the end of the list was expected")),
            (State::Value | State::Malformed | State::Abandoned | State::Complete, _) => {
                Ok(Some(0))
            }
        }
    }

    /// Reads the name and opening bracket of a call, or finds the marker after the calls.
    fn call(&mut self, text: &str, sink: &Sink<'_>) -> Step {
        if let Layout::Lines { end } = self.layout {
            if text.starts_with(end) {
                if !self.has_calls {
                    return Err((0, "a call was expected"));
                }
                self.state = State::Complete;
                return Ok(Some(0));
            }
            if end.starts_with(text) {
                return Ok(None);
            }
        }
        if !starts_with_name(text) && !text.as_bytes()[0].is_ascii_digit() {
            return Err((0, "a call was expected"));
        }
        let Some(name) = read_identifier(text, |byte| byte == b'.')? else {
            return Ok(None);
        };
        if text.as_bytes()[name.len()] != b'(' {
            return Err((name.len(), "a call's opening bracket was expected"));
        }
        let declared_only = matches!(self.layout, Layout::List { declared_only: true });
        if declared_only && sink.tools().is_some_and(|tools| !tools.declares(name)) {
            return Err((0, "no such tool was offered"));
        }
        self.name.clear();
        self.name.push_str(name);
        self.state = State::Argument;
        Ok(Some(name.len() + 1))
    }

    /// Reads the name of an argument and the `=` after it. Another word stays unread: it is text.
    fn argument(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Step {
        if !starts_with_name(text) {
            return Err((0, "an argument has no name"));
        }
        let Some(key) = read_identifier(text, |_| false)? else {
            return Ok(None);
        };
        let rest = text[key.len()..].trim_ascii_start();
        let equals = text.len() - rest.len();
        match rest.as_bytes() {
            _ if equals - key.len() > MAX_FRAMING => Err((0, "an argument has no name")),
            [] => Ok(None),
            [b'='] if !last => Ok(None),
            [b'=', b'=', ..] => Err((0, "a comparison is no argument")),
            [b'=', ..] => {
                self.key.clear();
                self.key.push_str(key);
                self.start_call(sink);
                self.write_key();
                self.state = State::Value;
                Ok(Some(equals + 1))
            }
            _ => Err((0, "an argument has no name")),
        }
    }

    /// Emits the start of the call, unless it was emitted.
    fn start_call(&mut self, sink: &mut Sink<'_>) {
        if self.argument_count.is_none() {
            sink.start(&self.name, None);
            self.argument_count = Some(0);
        }
    }

    /// Writes the name of an argument. It needs no escapes.
    fn write_key(&mut self) {
        let before = self.argument_count.unwrap_or_default();
        self.buffer.push_str(if before == 0 { "{\"" } else { ",\"" });
        self.buffer.push_str(&self.key);
        self.buffer.push_str("\":");
        self.argument_count = Some(before + 1);
    }

    /// Emits the buffer.
    fn flush(&mut self, sink: &mut Sink<'_>) {
        sink.write_arguments(&self.buffer);
        self.buffer.clear();
    }

    fn advance_to(&mut self, state: State) -> Step {
        self.state = state;
        Ok(Some(1))
    }

    fn advance_after_call(&mut self) -> Step {
        self.advance_to(match self.in_list() {
            true => State::AfterCall,
            false => State::Call,
        })
    }

    const fn in_list(&self) -> bool {
        matches!(self.layout, Layout::List { .. })
    }
}

/// Whether a text, which is not empty, starts like a name.
fn starts_with_name(text: &str) -> bool {
    matches!(text.as_bytes()[0], b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..)
}

/// The name at the start of a text, if its end is there. It may contain letters outside ASCII, and
/// the `-` that some tool names have.
fn read_identifier(
    text: &str,
    also: impl Fn(u8) -> bool,
) -> Result<Option<&str>, (usize, &'static str)> {
    let inside = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | 0x80..) || also(byte)
    };
    let end = text.bytes().position(|byte| !inside(byte));
    if end.unwrap_or(text.len()) > MAX_WORD {
        return Err((0, "a name is too long"));
    }
    Ok(end.map(|end| &text[..end]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::super::super::{Event, Tools};
    use super::super::Numbering;
    use super::super::every_cut::{Read, read_every_cut};
    use super::super::rendered::{Choices, arguments, python_arguments};
    use super::*;

    const LIST: Layout = Layout::List { declared_only: false };
    const BARE: Layout = Layout::List { declared_only: true };
    const LINES: Layout = Layout::Lines { end: "</function_calls>" };

    fn machine(layout: Layout) -> impl Fn() -> Read<'static> {
        move || {
            let mut calls = PythonCalls::new(layout);
            Box::new(move |text, last, sink| calls.read(text, last, sink))
        }
    }

    fn read(layout: Layout, text: &str) -> (String, Progress) {
        read_every_cut(machine(layout), text, None)
    }

    fn check(layout: Layout, text: &str, expected: &str, progress: Progress) {
        assert_eq!(read(layout, text), (expected.to_owned(), progress), "{text}");
    }

    #[test]
    fn reads_a_list_of_calls() {
        for (text, expected) in [
            ("[f()]", "f{};"),
            ("[f(a=[1,], b=2)]", "f{\"a\":[1],\"b\":2};"),
            ("[f(a=1, b=\"x\"), g()]", "f{\"a\":1,\"b\":\"x\"};g{};"),
            (
                " \n[ a.b-c.d( x = 'it\\'s' , y=[1, {'k': (None, True)}], ) , ]",
                "a.b-c.d{\"x\":\"it's\",\"y\":[1,{\"k\":[null,true]}]};",
            ),
            (
                "[f(größe=1,\n  b='])'),\n g(c='</function_calls>')\n]",
                "f{\"größe\":1,\"b\":\"])\"};g{\"c\":\"</function_calls>\"};",
            ),
        ] {
            let progress = Progress::Ended(text.len());
            let (output, reached) = read(LIST, &format!("{text} and more"));
            assert_eq!((output.as_str(), reached), (expected, progress), "{text}");
        }
    }

    #[test]
    fn plain_text_starts_no_call() {
        let opening = "a call's opening bracket was expected";
        let nameless = "an argument has no name";
        for (text, at, why) in [
            ("see [1]", 0, "a list of calls was expected"),
            ("[link](address)", 5, opening),
            ("[f (a=1)]", 2, opening),
            ("[1, 2]", 2, opening),
            ("[]", 1, "a call was expected"),
            ("['f']", 1, "a call was expected"),
            ("[...(a=1)]", 1, "a call was expected"),
            ("[{\"name\": 1}]", 1, "a call was expected"),
            ("[see(1)]", 5, nameless),
            ("[see('a')]", 5, nameless),
            ("[see(this)]", 5, nameless),
            ("[see(this, that)]", 5, nameless),
            ("[see(**a)]", 5, nameless),
            ("[see(,)]", 5, nameless),
            ("[see(12", 5, nameless),
            ("[see(-", 5, nameless),
            ("[f(a==1)]", 3, "a comparison is no argument"),
        ] {
            check(LIST, text, "", Progress::Broken(at, why));
            check(BARE, text, "", Progress::Broken(at, why));
        }
        let long = "a".repeat(MAX_WORD + 1);
        let why = "a name is too long";
        check(LIST, &format!("[{long}()]"), "", Progress::Broken(1, why));
        check(LIST, &format!("[f({long}=1)]"), "", Progress::Broken(3, why));
    }

    #[test]
    fn without_a_marker_only_offered_tools_are_calls() {
        let tools = Tools::read(br#"[{"name":"f"}]"#).unwrap();
        let read = |layout, text| read_every_cut(machine(layout), text, Some(&tools));
        let unknown = Progress::Broken(6, "no such tool was offered");
        assert_eq!(read(BARE, "[f(), g(a=1)]"), ("f{};".into(), unknown));
        assert_eq!(read(LIST, "[g()]"), ("g{};".into(), Progress::Ended(5)));
        check(BARE, "[g()]", "g{};", Progress::Ended(5));
    }

    #[test]
    fn errors_give_their_position() {
        for (text, output, at, why) in [
            ("[f() g()]", "f{};", 5, "a comma or the end of the list was expected"),
            ("[f(), link](x)", "f{};", 10, "a call's opening bracket was expected"),
            ("[f(), ,]", "f{};", 6, "a call was expected"),
            ("[f(a=1 b\n)]", "f{\"a\":1b", 8, "the arguments do not end"),
            ("[f(a=1 b <|end|>", "f{\"a\":1b ", 9, "the arguments do not end"),
        ] {
            check(LIST, text, output, Progress::Broken(at, why));
        }
    }

    #[test]
    fn malformed_arguments_are_content_and_the_list_goes_on() {
        for (text, output) in [
            ("[f(a=1, 2)]", "f{\"a\":12"),
            ("[f(a=1, word b=2)]", "f{\"a\":1word b=2"),
            ("[f(a=1 b=2), g()]", "f{\"a\":1b=2g{};"),
            ("[f(a='x' 'y')]", "f{\"a\":\"x\"'y'"),
            ("[f(a=b)]", "f{\"a\":b"),
            ("[f(a=)]", "f{\"a\":"),
            ("[f(a=[1, (x y)], b=2)]", "f{\"a\":[1,[x y, b=2"),
            ("[f(a=[1, 2), g()]", "f{\"a\":[1,2g{};"),
            ("[f(a=1 b]), g()]", "f{\"a\":1bg{};"),
            ("[f(a=1})), g()]", "f{\"a\":1g{};"),
            ("[f(a=1 b]", "f{\"a\":1b"),
        ] {
            check(LIST, text, output, Progress::Ended(text.len()));
        }
        check(LINES, "f(a=1 b)\ng()", "f{\"a\":1bg{};", Progress::Ended(12));
    }

    #[test]
    fn lines_end_before_their_marker() {
        let text = "\nf(a=1)\n\ng(b='</function_calls>')\n</function_calls>more";
        let output = "f{\"a\":1};g{\"b\":\"</function_calls>\"};";
        check(LINES, text, output, Progress::Ended(34));
        check(LINES, "f(a=null)\n", "f{\"a\":null};", Progress::Ended(10));
        check(LINES, "f()\n</func", "f{};", Progress::Ended(4));
        let none = Progress::Broken(0, "a call was expected");
        check(LINES, "</function_calls>", "", none);
        check(LINES, "[f()]", "", none);
        check(LINES, "f()\n</b>", "f{};", Progress::Broken(4, "a call was expected"));
        check(
            LINES,
            "f(a=</function_calls>",
            "f{\"a\":",
            Progress::Broken(4, "the arguments do not end"),
        );
    }

    #[test]
    fn a_cut_keeps_the_emitted_output() {
        for (text, output) in [
            ("[f(a='x", "f{\"a\":\"x"),
            ("[f(a=1", "f{\"a\":1"),
            ("[f(a=1,", "f{\"a\":1"),
            ("[f(a=1, b", "f{\"a\":1"),
            ("[f(a=", "f{\"a\":"),
            ("[f()", "f{};"),
            ("[f(), ", "f{};"),
        ] {
            for layout in [LIST, BARE] {
                check(layout, text, output, Progress::More(text.len()));
            }
        }
        // After a marker, a name and its bracket are enough.
        for text in ["[f(", "[f( ", "[f(a", "[f(a "] {
            check(LIST, text, "f", Progress::More(text.len()));
            check(BARE, text, "", Progress::More(text.len()));
            check(LINES, &text[1..], "f", Progress::More(text.len() - 1));
        }
        // A name alone stays unread.
        check(LIST, "[f(), g", "f{};", Progress::More(6));
        check(LINES, "f()\ng", "f{};", Progress::More(4));
        check(LINES, "</func", "", Progress::More(0));
    }

    #[test]
    fn one_reader_reads_several_bodies() {
        let mut out = |_: Event<'_>| {};
        let mut numbering = Numbering::new("call_");
        let mut sink = Sink::new(&mut out, &mut numbering, None, true);
        for (layout, text, none) in [(LIST, "[f(a=1)]", "[]"), (LINES, "f()", "</function_calls>")]
        {
            let mut calls = PythonCalls::new(layout);
            for _ in 0..2 {
                let Progress::Called(used) = calls.read(text, true, &mut sink) else {
                    panic!("the call was not read");
                };
                let progress = calls.read(&text[used..], true, &mut sink);
                assert_eq!(progress, Progress::Ended(text.len() - used));
            }
            let progress = calls.read(none, true, &mut sink);
            assert!(matches!(progress, Progress::Broken(_, "a call was expected")));
        }
    }

    #[test]
    fn a_piece_gives_one_delta() {
        let mut deltas = 0;
        let mut out = |event: Event<'_>| {
            deltas += usize::from(matches!(event, Event::CallArguments { .. }));
        };
        let mut numbering = Numbering::new("call_");
        let mut sink = Sink::new(&mut out, &mut numbering, None, true);
        let mut calls = PythonCalls::new(LIST);
        calls.read("[f(a=1, b={'c': [1, 'two', None]})]", true, &mut sink);
        assert_eq!(deltas, 1);
    }

    proptest! {
        // Each text is cut at every position.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn calls_round_trip(calls in prop::collection::vec(("[a-z][a-z_.]{0,8}", arguments()), 1..3), seed: u64) {
            let mut choices = Choices(seed);
            let (mut list, mut lines, mut expected) = (String::from("["), String::new(), String::new());
            for (name, arguments) in calls {
                let mut call = format!("{}{name}(", choices.space());
                python_arguments(&arguments, &mut choices, &mut call);
                call.push(')');
                list.push_str(&call);
                list.push(',');
                lines.push_str(&call);
                lines.push('\n');
                expected.push_str(&format!("{name}{};", Value::Object(arguments)));
            }
            list.pop();
            list.push(']');
            let (output, progress) = read(LIST, &list);
            prop_assert_eq!(&output, &expected);
            prop_assert_eq!(progress, Progress::Ended(list.len()));
            let end = lines.len();
            lines.push_str("</function_calls>");
            let (output, progress) = read(LINES, &lines);
            prop_assert_eq!(&output, &expected);
            prop_assert_eq!(progress, Progress::Ended(end));
        }

        #[test]
        fn a_cut_text_gives_a_prefix_of_the_whole(arguments in arguments(), seed: u64, cut: prop::sample::Index) {
            let mut text = String::from("[f(");
            python_arguments(&arguments, &mut Choices(seed), &mut text);
            let cut = text.floor_char_boundary(cut.index(text.len() + 1));
            let (output, _) = read(LIST, &text[..cut]);
            // A float that lost its digits gets a zero. A partial quote is text.
            let output = output.strip_suffix(".0").unwrap_or(&output);
            let output = output.trim_end_matches(['"', '\'', '\\']);
            let expected = format!("f{}", Value::Object(arguments));
            prop_assert!(expected.starts_with(output), "{output} is no beginning of {expected}");
        }

        #[test]
        fn splits_do_not_change_the_output(text in "\\[?([fg(),='\"\\\\\\[\\]{}:x1.\n </u-]|</function_calls>){0,30}") {
            read(LIST, &text);
            read(LINES, &text);
        }
    }
}
