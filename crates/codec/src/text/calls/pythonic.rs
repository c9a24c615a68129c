//! Calls written as Python calls: `[search(query="x", limit=3), stop()]`, or one in a line.
//!
//! Brackets and a word are common in plain text, so a call counts only when its first argument has a
//! name, or it has none: `[link](address)` and `[see(1)]` are no calls.

use super::json_writer::JsonWriter;
use super::literal::{LONGEST_WORD, Literal, PYTHON};
use super::{Progress, Sink};

/// How calls stand together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// In a Python list, which ends the body.
    List {
        /// Whether the list may be plain text as well, since no marker stands before it. Then a call
        /// must be of a tool that was offered, where that is known.
        declared_only: bool,
    },
    /// One after the other, between white space.
    Lines {
        /// The marker the body ends before.
        end: &'static str,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The list must begin.
    Begin,
    /// A call must come. Where one came already, the end may.
    Call,
    /// An argument or the closing bracket must come.
    Argument,
    /// The `=` behind an argument's name must come.
    Equals,
    /// The value of an argument.
    Value,
    /// A comma or the closing bracket must come.
    BehindValue,
    /// A comma or the end of the list must come.
    BehindCall,
    /// The body is complete.
    Complete,
}

/// Reads such calls. When a body has ended, another may follow.
#[derive(Debug)]
pub(crate) struct PythonCalls {
    shape: Shape,
    state: State,
    /// Whether a call was read.
    any: bool,
    /// The name of the call that is read.
    name: String,
    /// The name of the argument that is read.
    key: String,
    /// How many arguments the call has so far, if it was told.
    told: Option<usize>,
    literal: Literal,
    gathered: String,
}

/// What a step came to: so many bytes are used up (`None`: more must show), or the place of the byte
/// that does not fit, and why.
type Step = Result<Option<usize>, (usize, &'static str)>;

impl PythonCalls {
    /// Reads calls that stand together like this.
    pub(crate) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            state: Self::begin(shape),
            any: false,
            name: String::new(),
            key: String::new(),
            told: None,
            literal: Literal::new(&PYTHON),
            gathered: String::new(),
        }
    }

    const fn begin(shape: Shape) -> State {
        match shape {
            Shape::List { .. } => State::Begin,
            Shape::Lines { .. } => State::Call,
        }
    }

    /// Reads on, and tells the calls.
    pub(crate) fn read(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let progress = self.advance(text, last, sink);
        self.flush(sink);
        progress
    }

    fn advance(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            if self.state == State::Value {
                let mut out = |delta: &str| sink.arguments(delta);
                let mut json = JsonWriter::new(&mut self.gathered, &mut out);
                match self.literal.read(&text[at..], last, &mut json) {
                    Progress::Ended(used) => at += used,
                    progress => return progress.behind(at),
                }
                self.state = State::BehindValue;
            }
            at = text.len() - text[at..].trim_ascii_start().len();
            let ended = sink.ended();
            let step = match at == text.len() {
                true => Ok(None),
                false => self.step(&text[at..], last, sink),
            };
            match step {
                Ok(Some(used)) if sink.ended() > ended => return Progress::Called(at + used),
                Ok(Some(used)) => at += used,
                Ok(None) if last => return self.cut(text, at, sink),
                Ok(None) => return Progress::More(at),
                Err((place, why)) => return Progress::Broken(at + place, why),
            }
        }
        self.state = Self::begin(self.shape);
        self.any = false;
        Progress::Ended(at)
    }

    /// The text ends here, at the latest with something that has only begun.
    fn cut(&mut self, text: &str, at: usize, sink: &mut Sink<'_>) -> Progress {
        match (self.shape, self.state) {
            // Lines end with the text, as far as they are whole.
            (Shape::Lines { end }, State::Call) if self.any && end.starts_with(&text[at..]) => {
                self.state = State::Call;
                self.any = false;
                return Progress::Ended(at);
            }
            // Behind a marker, a name and a bracket are a call.
            (
                Shape::List { declared_only: false } | Shape::Lines { .. },
                State::Argument | State::Equals,
            ) => self.tell(sink),
            // A name without its bracket is no call, and not for this machine to drop.
            (_, State::Call) => return Progress::More(at),
            _ => {}
        }
        Progress::More(text.len())
    }

    /// Reads what a text, which begins with something else than white space, begins with.
    fn step(&mut self, text: &str, last: bool, sink: &mut Sink<'_>) -> Step {
        let byte = text.as_bytes()[0];
        match (self.state, byte) {
            (State::Begin, b'[') => self.goes_on(State::Call),
            (State::Begin, _) => Err((0, "a list of calls was expected")),
            (State::Call, b']') if self.any && self.in_list() => self.goes_on(State::Complete),
            (State::Call, _) => self.call(text, sink),
            (State::Argument | State::BehindValue, b')') => {
                self.tell(sink);
                let bracket = if self.told == Some(0) { "{}" } else { "}" };
                self.gathered.push_str(bracket);
                self.flush(sink);
                sink.end();
                self.told = None;
                self.any = true;
                self.goes_on(match self.in_list() {
                    true => State::BehindCall,
                    false => State::Call,
                })
            }
            (State::Argument, _) => self.argument(text),
            (State::Equals, b'=') => match text.as_bytes().get(1) {
                None if !last => Ok(None),
                Some(b'=') => Err((0, "a comparison is no argument")),
                _ => {
                    self.tell(sink);
                    self.write_key();
                    self.goes_on(State::Value)
                }
            },
            (State::Equals, _) => Err((0, "an argument has no name")),
            (State::BehindValue, b',') => self.goes_on(State::Argument),
            (State::BehindValue, _) => Err((0, "a comma or a closing bracket was expected")),
            (State::BehindCall, b',') => self.goes_on(State::Call),
            (State::BehindCall, b']') => self.goes_on(State::Complete),
            (State::BehindCall, _) => Err((0, "a comma or the end of the list was expected")),
            (State::Value | State::Complete, _) => Ok(Some(0)),
        }
    }

    /// Reads a call's name and opening bracket, or sees the marker behind the calls.
    fn call(&mut self, text: &str, sink: &Sink<'_>) -> Step {
        if let Shape::Lines { end } = self.shape {
            if text.starts_with(end) {
                if !self.any {
                    return Err((0, "a call was expected"));
                }
                self.state = State::Complete;
                return Ok(Some(0));
            }
            if end.starts_with(text) {
                return Ok(None);
            }
        }
        if !begins_name(text) && !text.as_bytes()[0].is_ascii_digit() {
            return Err((0, "a call was expected"));
        }
        let Some(name) = identifier(text, |byte| byte == b'.')? else {
            return Ok(None);
        };
        if text.as_bytes()[name.len()] != b'(' {
            return Err((name.len(), "a call's opening bracket was expected"));
        }
        let declared_only = matches!(self.shape, Shape::List { declared_only: true });
        if declared_only && sink.tools().is_some_and(|tools| !tools.declares(name)) {
            return Err((0, "no such tool was offered"));
        }
        self.name.clear();
        self.name.push_str(name);
        self.state = State::Argument;
        Ok(Some(name.len() + 1))
    }

    /// Reads an argument's name.
    fn argument(&mut self, text: &str) -> Step {
        if !begins_name(text) {
            return Err((0, "an argument has no name"));
        }
        let Some(key) = identifier(text, |_| false)? else {
            return Ok(None);
        };
        self.key.clear();
        self.key.push_str(key);
        self.state = State::Equals;
        Ok(Some(key.len()))
    }

    /// Tells that the call began, unless that was told.
    fn tell(&mut self, sink: &mut Sink<'_>) {
        if self.told.is_none() {
            sink.start(&self.name, None);
            self.told = Some(0);
        }
    }

    /// Writes an argument's name, which has nothing to escape.
    fn write_key(&mut self) {
        let before = self.told.unwrap_or_default();
        self.gathered.push_str(if before == 0 { "{\"" } else { ",\"" });
        self.gathered.push_str(&self.key);
        self.gathered.push_str("\":");
        self.told = Some(before + 1);
    }

    /// Hands on what was gathered.
    fn flush(&mut self, sink: &mut Sink<'_>) {
        sink.arguments(&self.gathered);
        self.gathered.clear();
    }

    fn goes_on(&mut self, state: State) -> Step {
        self.state = state;
        Ok(Some(1))
    }

    const fn in_list(&self) -> bool {
        matches!(self.shape, Shape::List { .. })
    }
}

/// Whether a text, which is not empty, begins as a name does.
fn begins_name(text: &str) -> bool {
    matches!(text.as_bytes()[0], b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80..)
}

/// The name a text begins with, if it has ended. Other letters than ASCII's may be in it, and the `-`
/// that some tools have in theirs.
fn identifier(
    text: &str,
    also: impl Fn(u8) -> bool,
) -> Result<Option<&str>, (usize, &'static str)> {
    let inside = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | 0x80..) || also(byte)
    };
    let end = text.bytes().position(|byte| !inside(byte));
    if end.unwrap_or(text.len()) > LONGEST_WORD {
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

    const LIST: Shape = Shape::List { declared_only: false };
    const BARE: Shape = Shape::List { declared_only: true };
    const LINES: Shape = Shape::Lines { end: "</function_calls>" };

    fn machine(shape: Shape) -> impl Fn() -> Read<'static> {
        move || {
            let mut calls = PythonCalls::new(shape);
            Box::new(move |text, last, sink| calls.read(text, last, sink))
        }
    }

    fn read(shape: Shape, text: &str) -> (String, Progress) {
        read_every_cut(machine(shape), text, None)
    }

    fn check(shape: Shape, text: &str, expected: &str, progress: Progress) {
        assert_eq!(read(shape, text), (expected.to_owned(), progress), "{text}");
    }

    #[test]
    fn a_list_of_calls_is_read() {
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
            let (told, reached) = read(LIST, &format!("{text} and more"));
            assert_eq!((told.as_str(), reached), (expected, progress), "{text}");
        }
    }

    #[test]
    fn what_is_plain_text_starts_no_call() {
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
            ("[see(this)]", 9, nameless),
            ("[see(this, that)]", 9, nameless),
            ("[see(**a)]", 5, nameless),
            ("[see(,)]", 5, nameless),
            ("[see(12", 5, nameless),
            ("[see(-", 5, nameless),
            ("[f(a==1)]", 4, "a comparison is no argument"),
        ] {
            check(LIST, text, "", Progress::Broken(at, why));
            check(BARE, text, "", Progress::Broken(at, why));
        }
        let long = "a".repeat(LONGEST_WORD + 1);
        let why = "a name is too long";
        check(LIST, &format!("[{long}()]"), "", Progress::Broken(1, why));
        check(LIST, &format!("[f({long}=1)]"), "", Progress::Broken(3, why));
    }

    #[test]
    fn without_a_marker_only_tools_that_were_offered_count() {
        let tools = Tools::read(br#"[{"name":"f"}]"#).unwrap();
        let read = |shape, text| read_every_cut(machine(shape), text, Some(&tools));
        let unknown = Progress::Broken(6, "no such tool was offered");
        assert_eq!(read(BARE, "[f(), g(a=1)]"), ("f{};".into(), unknown));
        assert_eq!(read(LIST, "[g()]"), ("g{};".into(), Progress::Ended(5)));
        check(BARE, "[g()]", "g{};", Progress::Ended(5));
    }

    #[test]
    fn errors_in_a_call_are_told_where_they_stand() {
        let behind = "a comma or a closing bracket was expected";
        for (text, told, at, why) in [
            ("[f(a=1, 2)]", "f{\"a\":1", 8, "an argument has no name"),
            ("[f(a=1 b=2)]", "f{\"a\":1", 7, behind),
            ("[f(a='x' 'y')]", "f{\"a\":\"x\"", 9, behind),
            ("[f(a=b)]", "f{\"a\":", 5, "a value was expected"),
            ("[f(a=)]", "f{\"a\":", 5, "a value was expected"),
            ("[f() g()]", "f{};", 5, "a comma or the end of the list was expected"),
            ("[f(), link](x)", "f{};", 10, "a call's opening bracket was expected"),
            ("[f(), ,]", "f{};", 6, "a call was expected"),
        ] {
            check(LIST, text, told, Progress::Broken(at, why));
        }
    }

    #[test]
    fn lines_end_before_their_marker() {
        let text = "\nf(a=1)\n\ng(b='</function_calls>')\n</function_calls>more";
        let told = "f{\"a\":1};g{\"b\":\"</function_calls>\"};";
        check(LINES, text, told, Progress::Ended(34));
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
            Progress::Broken(4, "a value was expected"),
        );
    }

    #[test]
    fn a_cut_keeps_what_was_told() {
        for (text, told) in [
            ("[f(a='x", "f{\"a\":\"x"),
            ("[f(a=1", "f{\"a\":1"),
            ("[f(a=1,", "f{\"a\":1"),
            ("[f(a=1, b", "f{\"a\":1"),
            ("[f(a=", "f{\"a\":"),
            ("[f()", "f{};"),
            ("[f(), ", "f{};"),
        ] {
            for shape in [LIST, BARE] {
                check(shape, text, told, Progress::More(text.len()));
            }
        }
        // Behind a marker a name and its bracket are enough.
        for text in ["[f(", "[f( ", "[f(a", "[f(a "] {
            check(LIST, text, "f", Progress::More(text.len()));
            check(BARE, text, "", Progress::More(text.len()));
            check(LINES, &text[1..], "f", Progress::More(text.len() - 1));
        }
        // A name alone is left.
        check(LIST, "[f(), g", "f{};", Progress::More(6));
        check(LINES, "f()\ng", "f{};", Progress::More(4));
        check(LINES, "</func", "", Progress::More(0));
    }

    #[test]
    fn a_body_that_follows_another_is_read_afresh() {
        let mut out = |_: Event<'_>| {};
        let mut numbering = Numbering::new("call_");
        let mut sink = Sink::new(&mut out, &mut numbering, None, true);
        for (shape, text, none) in [(LIST, "[f(a=1)]", "[]"), (LINES, "f()", "</function_calls>")] {
            let mut calls = PythonCalls::new(shape);
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
        // Each is cut at every place.
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn calls_are_read_back(calls in prop::collection::vec(("[a-z][a-z_.]{0,8}", arguments()), 1..3), seed: u64) {
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
            let (told, progress) = read(LIST, &list);
            prop_assert_eq!(&told, &expected);
            prop_assert_eq!(progress, Progress::Ended(list.len()));
            let end = lines.len();
            lines.push_str("</function_calls>");
            let (told, progress) = read(LINES, &lines);
            prop_assert_eq!(&told, &expected);
            prop_assert_eq!(progress, Progress::Ended(end));
        }

        #[test]
        fn a_cut_gives_a_beginning_of_the_whole(arguments in arguments(), seed: u64, cut: prop::sample::Index) {
            let mut text = String::from("[f(");
            python_arguments(&arguments, &mut Choices(seed), &mut text);
            let cut = text.floor_char_boundary(cut.index(text.len() + 1));
            let (told, _) = read(LIST, &text[..cut]);
            // A float that lost its digits gets a nought; a quote that has begun is text.
            let told = told.strip_suffix(".0").unwrap_or(&told);
            let told = told.trim_end_matches(['"', '\'', '\\']);
            let expected = format!("f{}", Value::Object(arguments));
            prop_assert!(expected.starts_with(told), "{told} is no beginning of {expected}");
        }

        #[test]
        fn whatever_comes_cuts_change_nothing(text in "\\[?([fg(),='\"\\\\\\[\\]{}:x1.\n </u-]|</function_calls>){0,30}") {
            read(LIST, &text);
            read(LINES, &text);
        }
    }
}
