//! Untyped text to JSON values: what a schema allows decides, as the text arrives.

use super::super::schema::Kinds;
use super::literal::{Literal, PYTHON};
use super::{HELD, Sink};
use crate::json::{Kind, escape, validate};
use crate::search::special;

/// How a text becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    /// As one of these kinds; a text where none fits.
    Schema(Kinds),
    /// As JSON, because the model says that it is; a text where it is not.
    Json,
}

impl Typing {
    /// A text, whatever it looks like.
    pub(crate) const TEXT: Self = Self::Schema(Kinds::STRING);
}

/// Values beyond this depth are no JSON to us.
const DEPTH: usize = 128;

/// A value whose text arrives in pieces, and goes out as JSON as early as it can. One after the
/// other can be read with it; it keeps its memory.
#[derive(Debug)]
pub(crate) struct Value {
    typing: Typing,
    shape: Shape,
    /// The text so far, while it may still be something else than a text.
    held: String,
    escaped: String,
}

impl Value {
    /// No value yet.
    pub(crate) fn new() -> Self {
        Self {
            typing: Typing::TEXT,
            shape: Shape::Text,
            held: String::new(),
            escaped: String::new(),
        }
    }

    /// A value begins.
    pub(crate) fn begin(&mut self, typing: Typing, sink: &mut Sink<'_>) {
        self.typing = typing;
        self.shape = Shape::new(typing);
        self.held.clear();
        if matches!(self.shape, Shape::Text) {
            sink.arguments("\"");
        }
    }

    /// Its text goes on.
    pub(crate) fn text(&mut self, text: &str, sink: &mut Sink<'_>) {
        if text.is_empty() {
            return;
        }
        if !matches!(self.shape, Shape::Text) {
            self.shape.read(text, self.typing);
            if self.held.len() + text.len() > HELD {
                self.shape = Shape::Text;
            }
            if !matches!(self.shape, Shape::Text) {
                self.held.push_str(text);
                return;
            }
            sink.arguments("\"");
            send(&self.held, &mut self.escaped, sink);
            self.release();
        }
        send(text, &mut self.escaped, sink);
    }

    /// It is complete.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        if matches!(self.shape, Shape::Text) {
            sink.arguments("\"");
            return;
        }
        self.escaped.clear();
        match self.typing {
            Typing::Schema(kinds) => encode(&self.held, kinds, &mut self.escaped),
            Typing::Json => encode_json(&self.held, &mut self.escaped),
        }
        sink.arguments(&self.escaped);
        self.release();
    }

    /// The text ended inside of it: what was kept back goes out as the model wrote it.
    pub(crate) fn cut(&mut self, sink: &mut Sink<'_>) {
        sink.arguments(&self.held);
        self.release();
    }

    /// Gives large memory back: a stream lives on long after its largest value.
    fn release(&mut self) {
        for text in [&mut self.held, &mut self.escaped] {
            text.clear();
            text.shrink_to(1 << 12);
        }
    }
}

/// What the text of a value looks like so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// White space at most.
    Blank,
    /// A number.
    Number,
    /// A word, of which this must follow.
    Word(&'static [u8]),
    /// A number or word that is complete: only white space may follow.
    Complete,
    /// Only its end will tell.
    Open,
    /// A text and nothing else.
    Text,
}

impl Shape {
    fn new(typing: Typing) -> Self {
        match typing {
            Typing::Schema(Kinds::STRING) => Self::Text,
            Typing::Schema(kinds) if !structured(kinds) => Self::Blank,
            _ => Self::Open,
        }
    }

    fn read(&mut self, text: &str, typing: Typing) {
        let Typing::Schema(kinds) = typing else {
            return;
        };
        for &byte in text.as_bytes() {
            let space = SPACE.contains(&char::from(byte));
            *self = match (*self, byte) {
                (Self::Open | Self::Text, _) => return,
                (Self::Blank, _) if space => Self::Blank,
                (Self::Blank, _) => Self::beginning(byte, kinds),
                (Self::Number, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => Self::Number,
                (Self::Word([next, rest @ ..]), _) if *next == byte => Self::Word(rest),
                (Self::Number | Self::Word([]) | Self::Complete, _) if space => Self::Complete,
                _ => Self::Text,
            };
        }
    }

    fn beginning(byte: u8, kinds: Kinds) -> Self {
        let unknown = kinds.is_unknown();
        let may_be = |kind| unknown || kinds.allow(kind);
        match byte {
            b'{' if may_be(Kinds::OBJECT) => Self::Open,
            b'[' if may_be(Kinds::ARRAY) => Self::Open,
            b'-' | b'0'..=b'9' if may_be(Kinds::INTEGER) => Self::Number,
            b't' if may_be(Kinds::BOOLEAN) => Self::Word(b"rue"),
            b'f' if may_be(Kinds::BOOLEAN) => Self::Word(b"alse"),
            b'n' if may_be(Kinds::NULL) => Self::Word(b"ull"),
            b'T' if kinds.allow(Kinds::BOOLEAN) => Self::Word(b"rue"),
            b'F' if kinds.allow(Kinds::BOOLEAN) => Self::Word(b"alse"),
            b'N' if kinds.allow(Kinds::NULL) => Self::Word(b"one"),
            _ => Self::Text,
        }
    }
}

/// White space as JSON has it.
const SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Whether a value must be an object or a list.
fn structured(kinds: Kinds) -> bool {
    !kinds.allow(Kinds::STRING) && (kinds.allow(Kinds::OBJECT) || kinds.allow(Kinds::ARRAY))
}

/// Writes a text as the JSON value it stands for, if it may be one of these kinds.
pub(crate) fn encode(text: &str, kinds: Kinds, out: &mut String) {
    let inner = text.trim_matches(SPACE);
    if structured(kinds) {
        return encode_json(text, out);
    }
    let unknown = kinds.is_unknown();
    let fits = |kind| match kind {
        Kind::Object => unknown || kinds.allow(Kinds::OBJECT),
        Kind::Array => unknown || kinds.allow(Kinds::ARRAY),
        Kind::String => false,
        Kind::Number if unknown || kinds.allow(Kinds::NUMBER) => true,
        Kind::Number => kinds.allow(Kinds::INTEGER) && is_whole(inner),
        Kind::Bool => unknown || kinds.allow(Kinds::BOOLEAN),
        Kind::Null => unknown || kinds.allow(Kinds::NULL),
    };
    match validate(inner.as_bytes(), DEPTH) {
        Ok(kind) if fits(kind) => return out.push_str(inner),
        Ok(_) => {}
        Err(_) => {
            let kind = match inner.as_bytes().first() {
                Some(b'T' | b'F') => Kinds::BOOLEAN,
                Some(b'N') => Kinds::NULL,
                Some(b'{') => Kinds::OBJECT,
                Some(b'[') => Kinds::ARRAY,
                _ => Kinds::STRING,
            };
            if !unknown && kind != Kinds::STRING && kinds.allow(kind) && python(inner, out) {
                return;
            }
        }
    }
    quote(text, out);
}

/// Writes JSON as it is, a Python literal as JSON, and anything else as a text.
fn encode_json(text: &str, out: &mut String) {
    let inner = text.trim_matches(SPACE);
    if validate(inner.as_bytes(), DEPTH).is_ok() {
        out.push_str(inner);
    } else if !python(inner, out) {
        quote(text, out);
    }
}

/// Writes a Python literal as JSON, if the text is one.
fn python(text: &str, out: &mut String) -> bool {
    match Literal::convert(&PYTHON, text) {
        Some(json) => {
            out.push_str(&json);
            true
        }
        None => false,
    }
}

/// Whether a number is whole: JSON Schema lets `5.0` be an integer.
fn is_whole(number: &str) -> bool {
    match number.split_once('.') {
        Some((_, fraction)) => fraction.bytes().all(|digit| digit == b'0'),
        None => !number.contains(['e', 'E']),
    }
}

/// Writes a text as a JSON string.
pub(crate) fn quote(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// Sends a text as part of a JSON string; as it is, if nothing in it needs an escape.
fn send(text: &str, escaped: &mut String, sink: &mut Sink<'_>) {
    if special(text.as_bytes(), 0) == text.len() {
        return sink.arguments(text);
    }
    escaped.clear();
    escape(text, escaped);
    sink.arguments(escaped);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::event::Event;
    use super::super::sink::Numbering;
    use super::*;

    fn encoded(text: &str, kinds: Kinds) -> String {
        let mut out = String::new();
        encode(text, kinds, &mut out);
        out
    }

    /// The value as it goes out, and how much of it before its end is known.
    fn grown(pieces: &[&str], typing: Typing) -> (String, String) {
        let (mut all, mut early) = (String::new(), String::new());
        let mut numbering = Numbering::new("");
        let mut value = Value::new();
        let mut out = |event: Event<'_>| {
            if let Event::CallArguments { delta, .. } = event {
                all.push_str(delta);
            }
        };
        let mut sink = Sink::new(&mut out, &mut numbering, None, true);
        value.begin(typing, &mut sink);
        for piece in pieces {
            value.text(piece, &mut sink);
        }
        early.push_str(&all);
        let mut out = |event: Event<'_>| {
            if let Event::CallArguments { delta, .. } = event {
                all.push_str(delta);
            }
        };
        value.end(&mut Sink::new(&mut out, &mut numbering, None, true));
        (all, early)
    }

    const ANY_NUMBER: Kinds = Kinds::NUMBER;
    const OBJECT_OR_TEXT: Kinds = Kinds::OBJECT.or(Kinds::STRING);

    const TABLE: [(&str, Kinds, &str); 43] = [
        ("42", Kinds::STRING, r#""42""#),
        ("null", Kinds::STRING, r#""null""#),
        ("42", Kinds::INTEGER, "42"),
        (" 42\n", Kinds::INTEGER, "42"),
        ("-0", Kinds::INTEGER, "-0"),
        ("5.0", Kinds::INTEGER, "5.0"),
        ("5.5", Kinds::INTEGER, r#""5.5""#),
        ("1e3", Kinds::INTEGER, r#""1e3""#),
        ("042", Kinds::INTEGER, r#""042""#),
        ("12a", Kinds::INTEGER, r#""12a""#),
        ("", Kinds::INTEGER, r#""""#),
        ("123456789012345678901", Kinds::INTEGER, "123456789012345678901"),
        ("1e3", ANY_NUMBER, "1e3"),
        ("5.50", ANY_NUMBER, "5.50"),
        (".5", ANY_NUMBER, r#"".5""#),
        ("true", ANY_NUMBER, r#""true""#),
        ("true", Kinds::BOOLEAN, "true"),
        ("False ", Kinds::BOOLEAN, "false"),
        ("TRUE", Kinds::BOOLEAN, r#""TRUE""#),
        ("1", Kinds::BOOLEAN, r#""1""#),
        ("None", Kinds::NULL, "null"),
        ("null", Kinds::STRING.or(Kinds::NULL), "null"),
        (" null ", Kinds::STRING.or(Kinds::NULL), "null"),
        ("nul", Kinds::STRING.or(Kinds::NULL), r#""nul""#),
        (" no", Kinds::STRING.or(Kinds::NULL), r#"" no""#),
        ("7", Kinds::STRING.or(Kinds::INTEGER), "7"),
        ("7 days", Kinds::STRING.or(Kinds::INTEGER), r#""7 days""#),
        (r#" {"a": 1} "#, Kinds::OBJECT, r#"{"a": 1}"#),
        ("{'a': None}", Kinds::OBJECT, r#"{"a":null}"#),
        ("{a}", Kinds::OBJECT, r#""{a}""#),
        ("[1,]", Kinds::ARRAY, "[1]"),
        ("a, b", Kinds::ARRAY, r#""a, b""#),
        ("{'a': 1}", OBJECT_OR_TEXT, r#"{"a":1}"#),
        ("[1]", OBJECT_OR_TEXT, r#""[1]""#),
        ("{x", OBJECT_OR_TEXT, r#""{x""#),
        ("[1]", Kinds::UNKNOWN, "[1]"),
        (" 1.5 ", Kinds::UNKNOWN, "1.5"),
        ("null", Kinds::UNKNOWN, "null"),
        ("True", Kinds::UNKNOWN, r#""True""#),
        (r#""x""#, Kinds::UNKNOWN, r#""\"x\"""#),
        ("{'a': 1}", Kinds::UNKNOWN, r#""{'a': 1}""#),
        ("hello", Kinds::UNKNOWN, r#""hello""#),
        (" ", Kinds::UNKNOWN, r#"" ""#),
    ];

    #[test]
    fn kinds_decide_what_a_text_is() {
        for (text, kinds, expected) in TABLE {
            assert_eq!(encoded(text, kinds), expected, "{text} {kinds:?}");
        }
    }

    #[test]
    fn pieces_give_what_the_whole_gives() {
        for (text, kinds, expected) in TABLE {
            let typing = Typing::Schema(kinds);
            assert_eq!(grown(&[text], typing).0, expected, "{text} {kinds:?}");
            let single: Vec<&str> = text.split_inclusive(|_: char| true).collect();
            assert_eq!(grown(&single, typing).0, expected, "{text} {kinds:?}");
        }
    }

    #[test]
    fn a_text_goes_out_as_soon_as_it_can_be_nothing_else() {
        let nullable = Typing::Schema(Kinds::STRING.or(Kinds::NULL));
        let unknown = Typing::Schema(Kinds::UNKNOWN);
        for (text, typing, early) in [
            ("null", Typing::TEXT, "\"null"),
            ("nul", nullable, ""),
            ("null ", nullable, ""),
            ("nulls", nullable, "\"nulls"),
            (" a", nullable, "\" a"),
            ("hi", unknown, "\"hi"),
            ("12", unknown, ""),
            ("12 a", unknown, "\"12 a"),
            ("12 3", unknown, "\"12 3"),
            ("[x", unknown, ""),
            ("x", Typing::Json, ""),
            ("x", Typing::Schema(Kinds::OBJECT), ""),
            ("x", Typing::Schema(Kinds::INTEGER), "\"x"),
        ] {
            assert_eq!(grown(&[text], typing).1, early, "{text} {typing:?}");
        }
    }

    #[test]
    fn json_is_json_where_the_model_says_so() {
        for (text, expected) in
            [(r#" "x" "#, r#""x""#), ("[1, 2]", "[1, 2]"), ("True", "true"), ("no", r#""no""#)]
        {
            assert_eq!(grown(&[text], Typing::Json).0, expected);
        }
    }

    proptest! {
        #[test]
        fn escapes_are_those_of_serde_json(text in any::<String>(), more in "[\u{0}-\u{ff}]{0,40}") {
            let text = text + &more;
            let mut out = String::new();
            quote(&text, &mut out);
            prop_assert_eq!(out, serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn every_value_is_json_in_any_cut(
            text in r#"[ \[\]{}'":,0-9aeNTrunlsfo.\n-]{0,12}"#,
            kinds in proptest::sample::subsequence(vec![
                Kinds::STRING, Kinds::INTEGER, Kinds::NUMBER, Kinds::BOOLEAN, Kinds::NULL,
                Kinds::OBJECT, Kinds::ARRAY,
            ], 0..=7),
            cut in 0usize..12,
        ) {
            let kinds = kinds.into_iter().fold(Kinds::UNKNOWN, Kinds::or);
            let whole = encoded(&text, kinds);
            prop_assert!(validate(whole.as_bytes(), 100).is_ok(), "{}", whole);
            let (first, second) = text.split_at(cut.min(text.len()));
            let (split, early) = grown(&[first, second], Typing::Schema(kinds));
            prop_assert_eq!(&split, &whole);
            prop_assert!(whole.starts_with(&early));
        }
    }
}
