//! Reads one value in a syntax that is not JSON (Python's or Gemma's), and writes compact JSON
//! while it streams.
//!
//! Each syntax is a [`Syntax`] row. Strings are written at once. A number or a word is held until
//! it ends, because only then its meaning is known.

use super::Progress;
use super::json_writer::JsonWriter;
use super::number::write_number;
use super::quoted::{Quoted, StringProgress};

/// Limit for the nesting of values.
const MAX_DEPTH: usize = 128;

/// Limit for a number, a constant or a bare word.
pub(crate) const MAX_WORD: usize = 256;

/// How values are written.
#[derive(Debug)]
pub(crate) struct Syntax {
    /// The quotes of strings. The longest match counts and must come first.
    quotes: &'static [&'static str],
    /// Whether a backslash in a string has the same meaning as in Python.
    escapes: bool,
    /// Whether keys and texts may come without quotes.
    bare: bool,
    /// Whether parentheses enclose a list.
    tuples: bool,
}

/// Python literals. JSON's constants are accepted too, in every syntax.
pub(crate) static PYTHON: Syntax =
    Syntax { quotes: &["\"\"\"", "'''", "\"", "'"], escapes: true, bare: false, tuples: true };

/// Gemma 4: `{key:<|"|>text<|"|>,count:42}`.
pub(crate) static GEMMA: Syntax =
    Syntax { quotes: &["<|\"|>"], escapes: false, bare: true, tuples: false };

/// FunctionGemma: `{key:<escape>text<escape>,count:42}`.
pub(crate) static FUNCTION_GEMMA: Syntax =
    Syntax { quotes: &["<escape>"], escapes: false, bare: true, tuples: false };

/// Whether a text starts with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// It does not.
    No,
    /// More text is needed.
    Partial,
    /// It does, with this quote.
    Quote(&'static str),
}

impl Syntax {
    /// Whether a text, which is not empty, starts with a string. If no more text follows, a short
    /// quote is not the start of a long one.
    pub(crate) fn opening(&self, text: &str, last: bool) -> Opening {
        let mut is_partial = false;
        for quote in self.quotes {
            if text.starts_with(quote) && (last || !is_partial) {
                return Opening::Quote(quote);
            }
            is_partial |= quote.starts_with(text);
        }
        if is_partial { Opening::Partial } else { Opening::No }
    }

    /// A reader for the content of a string between these quotes.
    pub(crate) const fn quoted(&self, quote: &'static str, to_json: bool) -> Quoted {
        Quoted::new(quote, self.escapes, to_json)
    }

    /// Finds the end of the word at the start of a text.
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
    /// Expects a value.
    Value,
    /// Expects a value or the end of the list.
    Element,
    /// Expects a key or the end of the object.
    Key,
    /// Expects the colon after a key.
    Colon,
    /// Expects a comma or the end of the container.
    Next,
    /// Inside a key string.
    InKey(Quoted),
    /// Inside a value string.
    InText(Quoted),
    /// The value is complete.
    Complete,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenContainer {
    List,
    Tuple,
    Object,
}

impl OpenContainer {
    const fn closer(self) -> u8 {
        match self {
            Self::List => b']',
            Self::Tuple => b')',
            Self::Object => b'}',
        }
    }
}

/// Reads values one after the other.
#[derive(Debug)]
pub(crate) struct Literal {
    syntax: &'static Syntax,
    state: State,
    open: Vec<OpenContainer>,
    /// Whether a comma was read. It is written when something follows it: JSON allows no comma
    /// before a bracket.
    comma: bool,
    /// The current number. Kept to reuse its memory.
    number: String,
}

impl Literal {
    /// Creates a reader for this syntax.
    pub(crate) const fn new(syntax: &'static Syntax) -> Self {
        Self { syntax, state: State::Value, open: Vec::new(), comma: false, number: String::new() }
    }

    /// What closes the open containers, from the outermost one.
    pub(crate) fn closers(&self) -> impl Iterator<Item = u8> {
        self.open.iter().map(|open| open.closer())
    }

    /// Converts a whole text to JSON, if it is one value.
    pub(crate) fn convert(syntax: &'static Syntax, text: &str) -> Option<String> {
        let (mut buffer, mut converted) = (String::new(), String::new());
        let mut out = |delta: &str| converted.push_str(delta);
        let mut json = JsonWriter::new(&mut buffer, &mut out);
        let Progress::Ended(used) = Self::new(syntax).read(text, true, &mut json) else {
            return None;
        };
        json.flush();
        text[used..].trim().is_empty().then_some(converted)
    }

    /// Reads the next text. A value ends directly after its last byte. A number or constant ends
    /// where something else follows, or where the text ends.
    pub(crate) fn read(&mut self, text: &str, last: bool, json: &mut JsonWriter<'_>) -> Progress {
        let mut at = 0;
        while self.state != State::Complete {
            if let State::InKey(quoted) | State::InText(quoted) = self.state {
                match quoted.read(&text[at..], last, json) {
                    StringProgress::Inside(used) => return Progress::More(at + used),
                    StringProgress::Closed(used) => at += used,
                }
                json.push("\"");
                self.state = match self.state {
                    State::InKey(_) => State::Colon,
                    _ => self.after_value(),
                };
                continue;
            }
            at = text.len() - text[at..].trim_ascii_start().len();
            if at == text.len() {
                return Progress::More(at);
            }
            match self.step(&text[at..], last, json) {
                Ok(Some(used)) => at += used,
                // Something partial at the end of the text cannot be classified.
                Ok(None) if last => return Progress::More(text.len()),
                Ok(None) => return Progress::More(at),
                Err(why) => return Progress::Broken(at, why),
            }
        }
        self.state = State::Value;
        Progress::Ended(at)
    }

    /// Reads the token at the start of a text, which is not empty and outside of strings. `None` if
    /// the token is incomplete.
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
                self.state = self.after_value();
                Ok(Some(1))
            }
            (State::Next, b',') => {
                self.comma = true;
                self.state = match self.open.last() {
                    Some(OpenContainer::Object) => State::Key,
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
            (State::Value | State::Element, b'[') => self.open(OpenContainer::List, json),
            (State::Value | State::Element, b'{') => self.open(OpenContainer::Object, json),
            (State::Value | State::Element, b'(') if self.syntax.tuples => {
                self.open(OpenContainer::Tuple, json)
            }
            _ => match self.syntax.opening(text, last) {
                Opening::Partial => Ok(None),
                Opening::No => self.word(text, last, json),
                Opening::Quote(quote) => {
                    write_comma(&mut self.comma, json);
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
        open: OpenContainer,
        json: &mut JsonWriter<'_>,
    ) -> Result<Option<usize>, &'static str> {
        if self.open.len() == MAX_DEPTH {
            return Err("values are nested too deeply");
        }
        write_comma(&mut self.comma, json);
        self.open.push(open);
        json.push(if open == OpenContainer::Object { "{" } else { "[" });
        self.state = match open {
            OpenContainer::Object => State::Key,
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
        if end.unwrap_or(text.len()) > MAX_WORD {
            return Err("a value without quotes is too long");
        }
        if end.is_none() && !last {
            return Ok(None);
        }
        let used = end.unwrap_or(text.len());
        let word = text[..used].trim_ascii_end();
        let value = match constant(word) {
            None if write_number(word, &mut self.number) => Some(self.number.as_str()),
            constant => constant,
        };
        // A cut word may have been longer. A cut number is kept, as in JSON.
        if end.is_none()
            && (is_key || value.is_none() && (self.syntax.bare || may_become_value(word)))
        {
            return Ok(None);
        }
        if value.is_none() && (!self.syntax.bare || word.is_empty()) {
            return Err(match is_key {
                true => "a key was expected",
                false => "a value was expected",
            });
        }
        write_comma(&mut self.comma, json);
        match value {
            Some(value) if !is_key => json.push(value),
            // Python does the same when it writes JSON.
            Some(value) if !self.syntax.bare => json.write_string(value),
            _ => json.write_string(word),
        }
        self.state = match is_key {
            true => State::Colon,
            false => self.after_value(),
        };
        Ok(Some(used))
    }

    fn after_value(&self) -> State {
        match self.open.is_empty() {
            true => State::Complete,
            false => State::Next,
        }
    }
}

/// Writes the comma that was read before.
fn write_comma(comma: &mut bool, json: &mut JsonWriter<'_>) {
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

/// Whether more letters may turn the word into a number or a constant.
fn may_become_value(word: &str) -> bool {
    CONSTANTS.iter().any(|(name, _)| name.starts_with(word))
        || write_number(&format!("{word}0"), &mut String::new())
}

#[cfg(test)]
mod tests {
    use super::super::every_cut::{Read, read_every_cut};
    use super::*;

    /// A machine for a single value.
    fn machine(syntax: &'static Syntax) -> impl Fn() -> Read<'static> {
        move || {
            let mut literal = Literal::new(syntax);
            Box::new(move |text, last, sink| {
                let mut buffer = String::new();
                let mut out = |delta: &str| sink.write_arguments(delta);
                let mut json = JsonWriter::new(&mut buffer, &mut out);
                let progress = literal.read(text, last, &mut json);
                json.flush();
                progress
            })
        }
    }

    /// Checks the result for a value with other text after it.
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
    fn python_errors_give_their_position() {
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
    fn reads_bare_keys_and_raw_text_of_gemma() {
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
    fn words_and_nesting_are_limited() {
        let digits = "1".repeat(MAX_WORD);
        check(&PYTHON, &digits, &digits);
        broken(&PYTHON, &format!("[{digits}1]"), 1, "a value without quotes is too long");
        broken(&GEMMA, &format!("{{{digits}1"), 1, "a value without quotes is too long");
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        check(&PYTHON, &deep, &deep);
        broken(&PYTHON, &"[".repeat(MAX_DEPTH + 1), MAX_DEPTH, "values are nested too deeply");
    }

    #[test]
    fn a_cut_keeps_the_written_output() {
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
        // Text that cannot become a value is an error, even where it is cut.
        broken(&PYTHON, "[foo", 1, "a value was expected");
        assert_eq!(Literal::convert(&PYTHON, "1 2"), None);
        assert_eq!(Literal::convert(&PYTHON, "'a"), None);
        assert_eq!(Literal::convert(&PYTHON, " "), None);
    }
}
