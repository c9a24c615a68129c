//! Converts untyped text to JSON values while it arrives. The schema decides the type.

use super::super::schema::JsonTypes;
use super::literal::{Literal, PYTHON};
use super::{MAX_HELD, Sink};
use crate::json::{Kind, escape, validate};
use crate::search::special;

/// How a text becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    /// As one of these types, or as a string if none matches.
    Schema(JsonTypes),
    /// As JSON, because the model says so, or as a string if it is not JSON.
    Json,
}

impl ValueType {
    /// Always a string.
    pub(crate) const TEXT: Self = Self::Schema(JsonTypes::STRING);
}

/// Limit for the nesting of a value.
const MAX_DEPTH: usize = 128;

/// A value whose text arrives in pieces. It is emitted as JSON as early as possible. Reusable for
/// several values, so that its memory is reused.
#[derive(Debug)]
pub(crate) struct Value {
    value_type: ValueType,
    form: TextForm,
    /// The text so far, while it may still be something other than a string.
    held: String,
    escaped: String,
}

impl Value {
    /// Creates a reader without a value.
    pub(crate) fn new() -> Self {
        Self {
            value_type: ValueType::TEXT,
            form: TextForm::Text,
            held: String::new(),
            escaped: String::new(),
        }
    }

    /// Begins a value.
    pub(crate) fn begin(&mut self, value_type: ValueType, sink: &mut Sink<'_>) {
        self.value_type = value_type;
        self.form = TextForm::new(value_type);
        self.held.clear();
        if matches!(self.form, TextForm::Text) {
            sink.write_arguments("\"");
        }
    }

    /// Adds text to the value.
    pub(crate) fn text(&mut self, text: &str, sink: &mut Sink<'_>) {
        if text.is_empty() {
            return;
        }
        if !matches!(self.form, TextForm::Text) {
            self.form.read(text, self.value_type);
            if self.held.len() + text.len() > MAX_HELD {
                self.form = TextForm::Text;
            }
            if !matches!(self.form, TextForm::Text) {
                self.held.push_str(text);
                return;
            }
            sink.write_arguments("\"");
            write_escaped(&self.held, &mut self.escaped, sink);
            self.release();
        }
        write_escaped(text, &mut self.escaped, sink);
    }

    /// Ends the value.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        if matches!(self.form, TextForm::Text) {
            sink.write_arguments("\"");
            return;
        }
        self.escaped.clear();
        match self.value_type {
            ValueType::Schema(types) => encode(&self.held, types, &mut self.escaped),
            ValueType::Json => encode_json(&self.held, &mut self.escaped),
        }
        sink.write_arguments(&self.escaped);
        self.release();
    }

    /// The text ended inside the value: held text is emitted as the model wrote it.
    pub(crate) fn cut(&mut self, sink: &mut Sink<'_>) {
        sink.write_arguments(&self.held);
        self.release();
    }

    /// Frees large buffers: a stream lives long after its largest value.
    fn release(&mut self) {
        for text in [&mut self.held, &mut self.escaped] {
            text.clear();
            text.shrink_to(1 << 12);
        }
    }
}

/// What the text of a value looks like so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextForm {
    /// Only white space.
    Blank,
    /// A number.
    Number,
    /// A word. These bytes must follow.
    Word(&'static [u8]),
    /// A complete number or word: only white space may follow.
    Complete,
    /// Undecided up to its end.
    Open,
    /// A string and nothing else.
    Text,
}

impl TextForm {
    fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Schema(JsonTypes::STRING) => Self::Text,
            ValueType::Schema(types) if !is_container(types) => Self::Blank,
            _ => Self::Open,
        }
    }

    fn read(&mut self, text: &str, value_type: ValueType) {
        let ValueType::Schema(types) = value_type else {
            return;
        };
        for &byte in text.as_bytes() {
            let space = WHITE_SPACE.contains(&char::from(byte));
            *self = match (*self, byte) {
                (Self::Open | Self::Text, _) => return,
                (Self::Blank, _) if space => Self::Blank,
                (Self::Blank, _) => Self::from_first_byte(byte, types),
                (Self::Number, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => Self::Number,
                (Self::Word([next, rest @ ..]), _) if *next == byte => Self::Word(rest),
                (Self::Number | Self::Word([]) | Self::Complete, _) if space => Self::Complete,
                _ => Self::Text,
            };
        }
    }

    fn from_first_byte(byte: u8, types: JsonTypes) -> Self {
        let unknown = types.is_unknown();
        let may_be = |kind| unknown || types.allow(kind);
        match byte {
            b'{' if may_be(JsonTypes::OBJECT) => Self::Open,
            b'[' if may_be(JsonTypes::ARRAY) => Self::Open,
            b'-' | b'0'..=b'9' if may_be(JsonTypes::INTEGER) => Self::Number,
            b't' if may_be(JsonTypes::BOOLEAN) => Self::Word(b"rue"),
            b'f' if may_be(JsonTypes::BOOLEAN) => Self::Word(b"alse"),
            b'n' if may_be(JsonTypes::NULL) => Self::Word(b"ull"),
            b'T' if types.allow(JsonTypes::BOOLEAN) => Self::Word(b"rue"),
            b'F' if types.allow(JsonTypes::BOOLEAN) => Self::Word(b"alse"),
            b'N' if types.allow(JsonTypes::NULL) => Self::Word(b"one"),
            _ => Self::Text,
        }
    }
}

/// White space in JSON.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Whether a value must be an object or an array.
fn is_container(types: JsonTypes) -> bool {
    !types.allow(JsonTypes::STRING)
        && (types.allow(JsonTypes::OBJECT) || types.allow(JsonTypes::ARRAY))
}

/// Writes a text as a JSON value of one of these types, or as a string.
pub(crate) fn encode(text: &str, types: JsonTypes, out: &mut String) {
    let inner = text.trim_matches(WHITE_SPACE);
    if is_container(types) {
        return encode_json(text, out);
    }
    let unknown = types.is_unknown();
    let is_allowed = |kind| match kind {
        Kind::Object => unknown || types.allow(JsonTypes::OBJECT),
        Kind::Array => unknown || types.allow(JsonTypes::ARRAY),
        Kind::String => false,
        Kind::Number if unknown || types.allow(JsonTypes::NUMBER) => true,
        Kind::Number => types.allow(JsonTypes::INTEGER) && is_whole(inner),
        Kind::Bool => unknown || types.allow(JsonTypes::BOOLEAN),
        Kind::Null => unknown || types.allow(JsonTypes::NULL),
    };
    match validate(inner.as_bytes(), MAX_DEPTH) {
        Ok(kind) if is_allowed(kind) => return out.push_str(inner),
        Ok(_) => {}
        Err(_) => {
            let kind = match inner.as_bytes().first() {
                Some(b'T' | b'F') => JsonTypes::BOOLEAN,
                Some(b'N') => JsonTypes::NULL,
                Some(b'{') => JsonTypes::OBJECT,
                Some(b'[') => JsonTypes::ARRAY,
                _ => JsonTypes::STRING,
            };
            if !unknown && kind != JsonTypes::STRING && types.allow(kind) && python(inner, out) {
                return;
            }
        }
    }
    quote(text, out);
}

/// Writes JSON unchanged, a Python literal as JSON, and anything else as a string.
fn encode_json(text: &str, out: &mut String) {
    let inner = text.trim_matches(WHITE_SPACE);
    if validate(inner.as_bytes(), MAX_DEPTH).is_ok() {
        out.push_str(inner);
    } else if !python(inner, out) {
        quote(text, out);
    }
}

/// Writes a Python literal as JSON. Returns false if the text is none.
fn python(text: &str, out: &mut String) -> bool {
    match Literal::convert(&PYTHON, text) {
        Some(json) => {
            out.push_str(&json);
            true
        }
        None => false,
    }
}

/// Whether a number is whole. JSON Schema accepts `5.0` as an integer.
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

/// Writes a text as part of a JSON string. It is not copied if nothing needs an escape.
fn write_escaped(text: &str, escaped: &mut String, sink: &mut Sink<'_>) {
    if special(text.as_bytes(), 0) == text.len() {
        return sink.write_arguments(text);
    }
    escaped.clear();
    escape(text, escaped);
    sink.write_arguments(escaped);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::event::Event;
    use super::super::sink::Numbering;
    use super::*;

    fn encoded(text: &str, types: JsonTypes) -> String {
        let mut out = String::new();
        encode(text, types, &mut out);
        out
    }

    /// The emitted value, and how much of it is emitted before its end is known.
    fn stream(pieces: &[&str], value_type: ValueType) -> (String, String) {
        let (mut all, mut early) = (String::new(), String::new());
        let mut numbering = Numbering::new("");
        let mut value = Value::new();
        let mut out = |event: Event<'_>| {
            if let Event::CallArguments { delta, .. } = event {
                all.push_str(delta);
            }
        };
        let mut sink = Sink::new(&mut out, &mut numbering, None, true);
        value.begin(value_type, &mut sink);
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

    const ANY_NUMBER: JsonTypes = JsonTypes::NUMBER;
    const OBJECT_OR_TEXT: JsonTypes = JsonTypes::OBJECT.or(JsonTypes::STRING);

    const TABLE: [(&str, JsonTypes, &str); 43] = [
        ("42", JsonTypes::STRING, r#""42""#),
        ("null", JsonTypes::STRING, r#""null""#),
        ("42", JsonTypes::INTEGER, "42"),
        (" 42\n", JsonTypes::INTEGER, "42"),
        ("-0", JsonTypes::INTEGER, "-0"),
        ("5.0", JsonTypes::INTEGER, "5.0"),
        ("5.5", JsonTypes::INTEGER, r#""5.5""#),
        ("1e3", JsonTypes::INTEGER, r#""1e3""#),
        ("042", JsonTypes::INTEGER, r#""042""#),
        ("12a", JsonTypes::INTEGER, r#""12a""#),
        ("", JsonTypes::INTEGER, r#""""#),
        ("123456789012345678901", JsonTypes::INTEGER, "123456789012345678901"),
        ("1e3", ANY_NUMBER, "1e3"),
        ("5.50", ANY_NUMBER, "5.50"),
        (".5", ANY_NUMBER, r#"".5""#),
        ("true", ANY_NUMBER, r#""true""#),
        ("true", JsonTypes::BOOLEAN, "true"),
        ("False ", JsonTypes::BOOLEAN, "false"),
        ("TRUE", JsonTypes::BOOLEAN, r#""TRUE""#),
        ("1", JsonTypes::BOOLEAN, r#""1""#),
        ("None", JsonTypes::NULL, "null"),
        ("null", JsonTypes::STRING.or(JsonTypes::NULL), "null"),
        (" null ", JsonTypes::STRING.or(JsonTypes::NULL), "null"),
        ("nul", JsonTypes::STRING.or(JsonTypes::NULL), r#""nul""#),
        (" no", JsonTypes::STRING.or(JsonTypes::NULL), r#"" no""#),
        ("7", JsonTypes::STRING.or(JsonTypes::INTEGER), "7"),
        ("7 days", JsonTypes::STRING.or(JsonTypes::INTEGER), r#""7 days""#),
        (r#" {"a": 1} "#, JsonTypes::OBJECT, r#"{"a": 1}"#),
        ("{'a': None}", JsonTypes::OBJECT, r#"{"a":null}"#),
        ("{a}", JsonTypes::OBJECT, r#""{a}""#),
        ("[1,]", JsonTypes::ARRAY, "[1]"),
        ("a, b", JsonTypes::ARRAY, r#""a, b""#),
        ("{'a': 1}", OBJECT_OR_TEXT, r#"{"a":1}"#),
        ("[1]", OBJECT_OR_TEXT, r#""[1]""#),
        ("{x", OBJECT_OR_TEXT, r#""{x""#),
        ("[1]", JsonTypes::UNKNOWN, "[1]"),
        (" 1.5 ", JsonTypes::UNKNOWN, "1.5"),
        ("null", JsonTypes::UNKNOWN, "null"),
        ("True", JsonTypes::UNKNOWN, r#""True""#),
        (r#""x""#, JsonTypes::UNKNOWN, r#""\"x\"""#),
        ("{'a': 1}", JsonTypes::UNKNOWN, r#""{'a': 1}""#),
        ("hello", JsonTypes::UNKNOWN, r#""hello""#),
        (" ", JsonTypes::UNKNOWN, r#"" ""#),
    ];

    #[test]
    fn types_decide_how_a_text_is_encoded() {
        for (text, types, expected) in TABLE {
            assert_eq!(encoded(text, types), expected, "{text} {types:?}");
        }
    }

    #[test]
    fn pieces_give_the_same_value_as_the_whole_text() {
        for (text, types, expected) in TABLE {
            let value_type = ValueType::Schema(types);
            assert_eq!(stream(&[text], value_type).0, expected, "{text} {types:?}");
            let single: Vec<&str> = text.split_inclusive(|_: char| true).collect();
            assert_eq!(stream(&single, value_type).0, expected, "{text} {types:?}");
        }
    }

    #[test]
    fn a_string_is_emitted_as_soon_as_no_other_type_is_possible() {
        let nullable = ValueType::Schema(JsonTypes::STRING.or(JsonTypes::NULL));
        let unknown = ValueType::Schema(JsonTypes::UNKNOWN);
        for (text, value_type, early) in [
            ("null", ValueType::TEXT, "\"null"),
            ("nul", nullable, ""),
            ("null ", nullable, ""),
            ("nulls", nullable, "\"nulls"),
            (" a", nullable, "\" a"),
            ("hi", unknown, "\"hi"),
            ("12", unknown, ""),
            ("12 a", unknown, "\"12 a"),
            ("12 3", unknown, "\"12 3"),
            ("[x", unknown, ""),
            ("x", ValueType::Json, ""),
            ("x", ValueType::Schema(JsonTypes::OBJECT), ""),
            ("x", ValueType::Schema(JsonTypes::INTEGER), "\"x"),
        ] {
            assert_eq!(stream(&[text], value_type).1, early, "{text} {value_type:?}");
        }
    }

    #[test]
    fn values_typed_as_json_stay_json() {
        for (text, expected) in
            [(r#" "x" "#, r#""x""#), ("[1, 2]", "[1, 2]"), ("True", "true"), ("no", r#""no""#)]
        {
            assert_eq!(stream(&[text], ValueType::Json).0, expected);
        }
    }

    proptest! {
        #[test]
        fn quote_escapes_like_serde_json(text in any::<String>(), more in "[\u{0}-\u{ff}]{0,40}") {
            let text = text + &more;
            let mut out = String::new();
            quote(&text, &mut out);
            prop_assert_eq!(out, serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn every_value_is_valid_json_for_any_split(
            text in r#"[ \[\]{}'":,0-9aeNTrunlsfo.\n-]{0,12}"#,
            types in proptest::sample::subsequence(vec![
                JsonTypes::STRING, JsonTypes::INTEGER, JsonTypes::NUMBER, JsonTypes::BOOLEAN, JsonTypes::NULL,
                JsonTypes::OBJECT, JsonTypes::ARRAY,
            ], 0..=7),
            cut in 0usize..12,
        ) {
            let types = types.into_iter().fold(JsonTypes::UNKNOWN, JsonTypes::or);
            let whole = encoded(&text, types);
            prop_assert!(validate(whole.as_bytes(), 100).is_ok(), "{}", whole);
            let (first, second) = text.split_at(cut.min(text.len()));
            let (split, early) = stream(&[first, second], ValueType::Schema(types));
            prop_assert_eq!(&split, &whole);
            prop_assert!(whole.starts_with(&early));
        }
    }
}
