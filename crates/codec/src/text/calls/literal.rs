//! One value in a syntax that is not JSON (a Python literal, Gemma's own), turned into compact JSON
//! as it streams.
//!
//! The syntaxes are rows of one table, [`Syntax`]. Strings go out as they come; a number or a word is
//! held until it ends, since only then it is known what it is.

use super::Progress;
use super::json_writer::JsonWriter;
use super::number::write_number;
use super::quoted::{Quoted, Reached};

/// How deep values may be nested.
const DEEPEST: usize = 128;

/// How long a number, a constant or a bare word may be.
pub(crate) const LONGEST_WORD: usize = 256;

/// How values are written.
#[derive(Debug)]
pub(crate) struct Syntax {
    /// What strings stand between. Where several fit the longest counts, and must stand first.
    quotes: &'static [&'static str],
    /// Whether a backslash in a string means what it means in Python.
    escapes: bool,
    /// Whether keys and texts may stand without quotes.
    bare: bool,
    /// Whether round brackets hold a list.
    tuples: bool,
}

/// Python's literals. Constants may be JSON's as well, in every syntax.
pub(crate) static PYTHON: Syntax =
    Syntax { quotes: &["\"\"\"", "'''", "\"", "'"], escapes: true, bare: false, tuples: true };

/// What Gemma 4 writes: `{key:<|"|>text<|"|>,count:42}`.
pub(crate) static GEMMA: Syntax =
    Syntax { quotes: &["<|\"|>"], escapes: false, bare: true, tuples: false };

/// What FunctionGemma writes: `{key:<escape>text<escape>,count:42}`.
pub(crate) static FUNCTION_GEMMA: Syntax =
    Syntax { quotes: &["<escape>"], escapes: false, bare: true, tuples: false };

/// Whether a text begins with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It does not.
    No,
    /// It may, as far as the text goes.
    Begun,
    /// It does, with this quote.
    Quote(&'static str),
}

impl Syntax {
    /// Whether a text, which is not empty, begins with a string. In a text that will not go on, a
    /// short quote is not the beginning of a long one.
    pub(crate) fn opening(&self, text: &str, last: bool) -> Opening {
        let mut begun = false;
        for quote in self.quotes {
            if text.starts_with(quote) && (last || !begun) {
                return Opening::Quote(quote);
            }
            begun |= quote.starts_with(text);
        }
        if begun { Opening::Begun } else { Opening::No }
    }

    /// The inside of a string that stands between these quotes.
    pub(crate) const fn quoted(&self, quote: &'static str, to_json: bool) -> Quoted {
        Quoted::new(quote, self.escapes, to_json)
    }

    /// Where the word that a text begins with ends.
    fn word_end(&self, text: &str, is_key: bool) -> Option<usize> {
        let ends = |byte: u8| match byte {
            b',' | b'}' | b']' | b'{' | b'[' | b'<' | b'"' | b'\n' => true,
            b':' => is_key || !self.bare,
            _ if self.bare => false,
            b'_' | b'.' | b'+' | b'-' => false,
            _ => !byte.is_ascii_alphanumeric(),
        };
        text.bytes().position(ends)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value must come.
    Value,
    /// A value or the end of the list must come.
    Element,
    /// A key or the end of the object must come.
    Key,
    /// The colon behind a key must come.
    Colon,
    /// A comma or the end of what is open must come.
    Next,
    /// Inside a string that is a key.
    InKey(Quoted),
    /// Inside a string that is a value.
    InText(Quoted),
    /// The value is complete.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    List,
    Tuple,
    Object,
}

impl Open {
    const fn closer(self) -> u8 {
        match self {
            Self::List => b']',
            Self::Tuple => b')',
            Self::Object => b'}',
        }
    }
}

/// Reads one value after the other; each is a fresh one.
#[derive(Debug)]
pub(crate) struct Literal {
    syntax: &'static Syntax,
    state: State,
    open: Vec<Open>,
    /// Whether a comma was read that is written as soon as something follows it: JSON knows no
    /// comma before a bracket.
    comma: bool,
    /// The number that is read at the moment; kept for its memory.
    number: String,
}

impl Literal {
    /// Reads values of this syntax.
    pub(crate) const fn new(syntax: &'static Syntax) -> Self {
        Self { syntax, state: State::Value, open: Vec::new(), comma: false, number: String::new() }
    }

    /// Turns a whole text into JSON, if it is one value.
    pub(crate) fn convert(syntax: &'static Syntax, text: &str) -> Option<String> {
        let (mut gathered, mut converted) = (String::new(), String::new());
        let mut out = |delta: &str| converted.push_str(delta);
        let mut json = JsonWriter::new(&mut gathered, &mut out);
        let Progress::Ended(used) = Self::new(syntax).read(text, true, &mut json) else {
            return None;
        };
        json.flush();
        text[used..].trim().is_empty().then_some(converted)
    }

    /// Reads on. The value ends right behind its last byte; one that is a number or a constant ends
    /// where something else is seen, or the text will not go on.
    pub(crate) fn read(&mut self, text: &str, last: bool, json: &mut JsonWriter<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            if let State::InKey(quoted) | State::InText(quoted) = self.state {
                match quoted.read(&text[at..], last, json) {
                    Reached::Inside(used) => return Progress::More(at + used),
                    Reached::Closed(used) => at += used,
                }
                json.push("\"");
                self.state = match self.state {
                    State::InKey(_) => State::Colon,
                    _ => self.behind_value(),
                };
                continue;
            }
            at = text.len() - text[at..].trim_ascii_start().len();
            if at == text.len() {
                return Progress::More(at);
            }
            match self.step(&text[at..], last, json) {
                Ok(Some(used)) => at += used,
                // What has only begun, in a text that will not go on, cannot be told.
                Ok(None) if last => return Progress::More(text.len()),
                Ok(None) => return Progress::More(at),
                Err(why) => return Progress::Broken(at, why),
            }
        }
        self.state = State::Value;
        Progress::Ended(at)
    }

    /// Reads what a text outside of strings, which is not empty, begins with, if it is all there.
    fn step(
        &mut self,
        text: &str,
        last: bool,
        json: &mut JsonWriter<'_>,
    ) -> Result<Option<usize>, &'static str> {
        let byte = text.as_bytes()[0];
        match (self.state, byte) {
            (State::Element | State::Key | State::Next, b']' | b')' | b'}')
                if self.open.last().map(|open| open.closer()) == Some(byte) =>
            {
                json.push(if byte == b'}' { "}" } else { "]" });
                self.open.pop();
                self.comma = false;
                self.state = self.behind_value();
                Ok(Some(1))
            }
            (State::Next, b',') => {
                self.comma = true;
                self.state = match self.open.last() {
                    Some(Open::Object) => State::Key,
                    _ => State::Element,
                };
                Ok(Some(1))
            }
            (State::Next, _) => Err("a comma or a closing bracket was expected"),
            (State::Colon, b':') => {
                json.push(":");
                self.state = State::Value;
                Ok(Some(1))
            }
            (State::Colon, _) => Err("a colon was expected"),
            (State::Value | State::Element, b'[') => self.open(Open::List, json),
            (State::Value | State::Element, b'{') => self.open(Open::Object, json),
            (State::Value | State::Element, b'(') if self.syntax.tuples => {
                self.open(Open::Tuple, json)
            }
            _ => match self.syntax.opening(text, last) {
                Opening::Begun => Ok(None),
                Opening::No => self.word(text, last, json),
                Opening::Quote(quote) => {
                    separate(&mut self.comma, json);
                    json.push("\"");
                    let quoted = self.syntax.quoted(quote, true);
                    self.state = match self.state {
                        State::Key => State::InKey(quoted),
                        _ => State::InText(quoted),
                    };
                    Ok(Some(quote.len()))
                }
            },
        }
    }

    fn open(
        &mut self,
        open: Open,
        json: &mut JsonWriter<'_>,
    ) -> Result<Option<usize>, &'static str> {
        if self.open.len() == DEEPEST {
            return Err("values are nested too deeply");
        }
        separate(&mut self.comma, json);
        self.open.push(open);
        json.push(if open == Open::Object { "{" } else { "[" });
        self.state = match open {
            Open::Object => State::Key,
            _ => State::Element,
        };
        Ok(Some(1))
    }

    /// Reads a number, a constant or a bare text, as a value or as a key.
    fn word(
        &mut self,
        text: &str,
        last: bool,
        json: &mut JsonWriter<'_>,
    ) -> Result<Option<usize>, &'static str> {
        let is_key = self.state == State::Key;
        let end = self.syntax.word_end(text, is_key);
        if end.unwrap_or(text.len()) > LONGEST_WORD {
            return Err("a value without quotes is too long");
        }
        if end.is_none() && !last {
            return Ok(None);
        }
        let used = end.unwrap_or(text.len());
        let word = text[..used].trim_ascii_end();
        let known = match constant(word) {
            None if write_number(word, &mut self.number) => Some(self.number.as_str()),
            known => known,
        };
        // What is cut off may have been longer. A number stays all the same, as it does in JSON.
        if end.is_none() && (is_key || known.is_none() && (self.syntax.bare || may_begin(word))) {
            return Ok(None);
        }
        if known.is_none() && (!self.syntax.bare || word.is_empty()) {
            return Err(match is_key {
                true => "a key was expected",
                false => "a value was expected",
            });
        }
        separate(&mut self.comma, json);
        match known {
            Some(known) if !is_key => json.push(known),
            // As Python itself does when it writes JSON.
            Some(known) if !self.syntax.bare => json.string(known),
            _ => json.string(word),
        }
        self.state = match is_key {
            true => State::Colon,
            false => self.behind_value(),
        };
        Ok(Some(used))
    }

    fn behind_value(&self) -> State {
        match self.open.is_empty() {
            true => State::Complete,
            false => State::Next,
        }
    }
}

/// Writes the comma that was read before.
fn separate(comma: &mut bool, json: &mut JsonWriter<'_>) {
    if std::mem::take(comma) {
        json.push(",");
    }
}

const CONSTANTS: [(&str, &str); 6] = [
    ("None", "null"),
    ("null", "null"),
    ("True", "true"),
    ("true", "true"),
    ("False", "false"),
    ("false", "false"),
];

fn constant(word: &str) -> Option<&'static str> {
    let found = CONSTANTS.iter().find(|(name, _)| *name == word)?;
    Some(found.1)
}

/// Whether more letters may make a number or a constant of it.
fn may_begin(word: &str) -> bool {
    CONSTANTS.iter().any(|(name, _)| name.starts_with(word))
        || write_number(&format!("{word}0"), &mut String::new())
}

#[cfg(test)]
mod tests {
    use super::super::every_cut::{Read, read_every_cut};
    use super::*;

    /// A machine of nothing but one value.
    fn machine(syntax: &'static Syntax) -> impl Fn() -> Read<'static> {
        move || {
            let mut literal = Literal::new(syntax);
            Box::new(move |text, last, sink| {
                let mut gathered = String::new();
                let mut out = |delta: &str| sink.arguments(delta);
                let mut json = JsonWriter::new(&mut gathered, &mut out);
                let progress = literal.read(text, last, &mut json);
                json.flush();
                progress
            })
        }
    }

    /// What comes of a value with something behind it.
    fn check(syntax: &'static Syntax, text: &str, expected: &str) {
        let (json, progress) = read_every_cut(machine(syntax), &format!("{text};"), None);
        assert_eq!(json, expected, "{text}");
        assert_eq!(progress, Progress::Ended(text.len()), "{text}");
        let converted = Literal::convert(syntax, &format!(" {text}\n"));
        assert_eq!(converted.as_deref(), Some(expected), "{text}");
    }

    fn broken(syntax: &'static Syntax, text: &str, at: usize, expected: &'static str) {
        let (_, progress) = read_every_cut(machine(syntax), text, None);
        assert_eq!(progress, Progress::Broken(at, expected), "{text}");
        assert_eq!(Literal::convert(syntax, text), None, "{text}");
    }

    #[test]
    fn python_literals_become_compact_json() {
        for (text, expected) in [
            ("None", "null"),
            ("True", "true"),
            ("False", "false"),
            ("null", "null"),
            ("true", "true"),
            ("false", "false"),
            ("''", r#""""#),
            (r#""""#, r#""""#),
            ("''''''", r#""""#),
            (r#""it's""#, r#""it's""#),
            (r#"'say "hi"'"#, r#""say \"hi\"""#),
            (r"'it\'s \x41\n'", r#""it's A\n""#),
            ("'two\nlines'", r#""two\nlines""#),
            (r#""""a "quoted" ''text''""""#, r#""a \"quoted\" ''text''""#),
            ("'''it's\n'''", r#""it's\n""#),
            ("'é 😀 \u{1}'", "\"é 😀 \\u0001\""),
            ("[]", "[]"),
            ("()", "[]"),
            ("{}", "{}"),
            ("[ 1 , 2 ]", "[1,2]"),
            ("(1, 2,)", "[1,2]"),
            ("-1.50e+10", "-1.50e+10"),
            ("[+1_0, .5]", "[10,0.5]"),
            ("[1,]", "[1]"),
            ("{'a': 1, \"b\": [True, None,],}", r#"{"a":1,"b":[true,null]}"#),
            ("{\n  'a' :\t{'b': ((1,), {})}\r\n}", r#"{"a":{"b":[[1],{}]}}"#),
            ("{1: 'a', True: 2, None: 3}", r#"{"1":"a","true":2,"null":3}"#),
        ] {
            check(&PYTHON, text, expected);
        }
    }

    #[test]
    fn what_is_no_python_literal_is_told_where_it_stands() {
        let value = "a value was expected";
        broken(&PYTHON, "[1, x]", 4, value);
        broken(&PYTHON, "[nan]", 1, value);
        broken(&PYTHON, "[-inf]", 1, value);
        broken(&PYTHON, "[1, Truely]", 4, value);
        broken(&PYTHON, "[,]", 1, value);
        broken(&PYTHON, "[1,,]", 3, value);
        broken(&PYTHON, "{'a': }", 6, value);
        broken(&PYTHON, "[r'x']", 1, value);
        broken(&PYTHON, "<|\"|>a", 0, value);
        broken(&PYTHON, "{,}", 1, "a key was expected");
        broken(&PYTHON, "{a: 1}", 1, "a key was expected");
        broken(&PYTHON, "{[1]: 1}", 1, "a key was expected");
        broken(&PYTHON, "{'a', 'b'}", 4, "a colon was expected");
        let next = "a comma or a closing bracket was expected";
        broken(&PYTHON, "[1 2]", 3, next);
        broken(&PYTHON, "[1)", 2, next);
        broken(&PYTHON, "(1]", 2, next);
        broken(&PYTHON, "{'a': 1]", 7, next);
        broken(&PYTHON, "['a' 'b']", 5, next);
    }

    #[test]
    fn gemma_writes_keys_and_constants_bare_and_text_raw() {
        for (text, expected) in [
            ("{}", "{}"),
            (
                r#"{k:<|"|>text<|"|>,n:42,l:[<|"|>a<|"|>,-1.5,true,null]}"#,
                r#"{"k":"text","n":42,"l":["a",-1.5,true,null]}"#,
            ),
            ("{k:<|\"|>a \"b\" \\n {}:,\n<|x <<|\"|>}", r#"{"k":"a \"b\" \\n {}:,\n<|x <"}"#),
            (r#"{k:<|"|><|"|>,o:{a:False,b:None}}"#, r#"{"k":"","o":{"a":false,"b":null}}"#),
            (r#"{<|"|>a key<|"|>: 1 , b-c.d : [ ] , 7:8}"#, r#"{"a key":1,"b-c.d":[],"7":8}"#),
            (
                "{city:New York,at:12:30,dash:007}",
                r#"{"city":"New York","at":"12:30","dash":"007"}"#,
            ),
        ] {
            check(&GEMMA, text, expected);
            let text = text.replace("<|\"|>", "<escape>");
            check(&FUNCTION_GEMMA, &text, expected);
        }
        broken(&GEMMA, "{k:}", 3, "a value was expected");
        broken(&GEMMA, "{:1}", 1, "a key was expected");
        broken(&GEMMA, "{k:<b>}", 3, "a value was expected");
        broken(&GEMMA, "{k:<escape>a<escape>}", 3, "a value was expected");
        broken(&GEMMA, "{k:\"a\"}", 3, "a value was expected");
        broken(&GEMMA, "{k:a<|\"|>b<|\"|>}", 4, "a comma or a closing bracket was expected");
    }

    #[test]
    fn words_and_nesting_have_limits() {
        let digits = "1".repeat(LONGEST_WORD);
        check(&PYTHON, &digits, &digits);
        broken(&PYTHON, &format!("[{digits}1]"), 1, "a value without quotes is too long");
        broken(&GEMMA, &format!("{{{digits}1"), 1, "a value without quotes is too long");
        let deep = format!("{}{}", "[".repeat(DEEPEST), "]".repeat(DEEPEST));
        check(&PYTHON, &deep, &deep);
        broken(&PYTHON, &"[".repeat(DEEPEST + 1), DEEPEST, "values are nested too deeply");
    }

    #[test]
    fn a_cut_keeps_what_was_written() {
        let cut = |syntax, text: &str| read_every_cut(machine(syntax), text, None);
        for (text, expected) in [
            ("{'a': 'b", r#"{"a":"b"#),
            ("{'a': 'b\\", r#"{"a":"b"#),
            ("{'a'", r#"{"a""#),
            ("{'a", r#"{"a"#),
            ("{'", "{\""),
            ("[''", "[\"\""),
            ("[1, 12", "[1,12"),
            ("[1, ", "[1"),
            ("[1, Tr", "[1"),
            ("[-", "["),
            ("[1e", "["),
            ("{1", "{"),
        ] {
            let (json, progress) = cut(&PYTHON, text);
            assert_eq!((json.as_str(), progress), (expected, Progress::More(text.len())));
        }
        for (text, expected) in [
            ("{k:<|\"|>a<|\"", "{\"k\":\"a<|\\\""),
            ("{k:<|", "{\"k\":"),
            ("{k", "{"),
            ("{k:4", "{\"k\":4"),
            ("{k:Par", "{\"k\":"),
        ] {
            let (json, progress) = cut(&GEMMA, text);
            assert_eq!((json.as_str(), progress), (expected, Progress::More(text.len())));
        }
        // What cannot become a value is broken, even where it was cut.
        broken(&PYTHON, "[foo", 1, "a value was expected");
        assert_eq!(Literal::convert(&PYTHON, "1 2"), None);
        assert_eq!(Literal::convert(&PYTHON, "'a"), None);
        assert_eq!(Literal::convert(&PYTHON, " "), None);
    }
}
