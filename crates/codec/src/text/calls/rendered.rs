//! Test helper: random values, written as Python and as Gemma write them.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value};

/// Values with strings that are hard to read.
pub(super) fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        proptest::num::f64::NORMAL.prop_map(Value::from),
        strings().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            objects(inner).prop_map(Value::Object),
        ]
    })
}

/// Arguments of a call, with names that Python allows.
pub(super) fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map("[a-zé_][a-z0-9_]{0,5}", values(), 0..4)
        .prop_map(|arguments| arguments.into_iter().collect())
}

fn objects(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    proptest::collection::btree_map(strings(), inner, 0..4)
        .prop_map(|object| object.into_iter().collect())
}

fn strings() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,20}",
        "[\"'\\\\\n\r\tnux0-7<>|{}\\[\\](),:=é😀\u{0}\u{1f}\u{7f}-]{0,12}",
        Just("</function_calls>".to_owned()),
        Just("<|\"<escape".to_owned()),
    ]
}

/// Random choices that depend only on the seed.
pub(super) struct Choices(pub(super) u64);

impl Choices {
    fn pick(&mut self, count: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    /// White space, or none.
    pub(super) fn space(&mut self) -> &'static str {
        ["", "", " ", "\n", " \t "][self.pick(5) as usize]
    }
}

/// Writes a value in Python syntax.
pub(super) fn python(value: &Value, choices: &mut Choices, out: &mut String) {
    match value {
        Value::Null => out.push_str(["None", "null"][choices.pick(2) as usize]),
        Value::Bool(true) => out.push_str(["True", "true"][choices.pick(2) as usize]),
        Value::Bool(false) => out.push_str(["False", "false"][choices.pick(2) as usize]),
        Value::Number(number) => write!(out, "{number}").unwrap(),
        Value::String(text) => python_string(text, choices, out),
        Value::Array(list) => {
            let (open, close) = [("[", "]"), ("(", ")")][choices.pick(2) as usize];
            out.push_str(open);
            for element in list {
                out.push_str(choices.space());
                python(element, choices, out);
                out.push_str(choices.space());
                out.push(',');
            }
            drop_comma(choices, out);
            out.push_str(close);
        }
        Value::Object(object) => {
            out.push('{');
            for (key, value) in object {
                out.push_str(choices.space());
                python_string(key, choices, out);
                out.push_str(choices.space());
                out.push(':');
                out.push_str(choices.space());
                python(value, choices, out);
                out.push(',');
            }
            drop_comma(choices, out);
            out.push('}');
        }
    }
}

/// Writes the arguments of a Python call.
pub(super) fn python_arguments(
    arguments: &Map<String, Value>,
    choices: &mut Choices,
    out: &mut String,
) {
    for (key, value) in arguments {
        out.push_str(choices.space());
        out.push_str(key);
        out.push_str(choices.space());
        out.push('=');
        out.push_str(choices.space());
        python(value, choices, out);
        out.push(',');
    }
    drop_comma(choices, out);
}

/// Usually drops the comma after the last element.
fn drop_comma(choices: &mut Choices, out: &mut String) {
    if out.ends_with(',') && choices.pick(4) > 0 {
        out.pop();
    }
}

fn python_string(text: &str, choices: &mut Choices, out: &mut String) {
    let quote = ["'", "\"", "'''", "\"\"\""][choices.pick(4) as usize];
    out.push_str(quote);
    for character in text.chars() {
        let code = u32::from(character);
        match (character, choices.pick(8)) {
            (_, 0) if code < 0x100 => write!(out, "\\x{code:02x}").unwrap(),
            (_, 1) if code < 0x10000 => write!(out, "\\u{code:04X}").unwrap(),
            (_, 2) => write!(out, "\\U{code:08x}").unwrap(),
            (_, 3) if code < 0o1000 => write!(out, "\\{code:03o}").unwrap(),
            ('\\', _) => out.push_str("\\\\"),
            ('\n', 4) => out.push_str("\\n"),
            _ if quote.starts_with(character) => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out.push_str(quote);
}

/// Writes a value in Gemma's syntax, with this quote. Strings must not contain the quote.
pub(super) fn gemma(value: &Value, quote: &str, choices: &mut Choices, out: &mut String) {
    match value {
        Value::String(text) => write!(out, "{quote}{text}{quote}").unwrap(),
        Value::Array(list) => {
            out.push('[');
            for element in list {
                out.push_str(choices.space());
                gemma(element, quote, choices, out);
                out.push(',');
            }
            drop_comma(choices, out);
            out.push(']');
        }
        Value::Object(object) => {
            out.push('{');
            for (key, value) in object {
                let is_bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric());
                match is_bare && !key.is_empty() && choices.pick(4) > 0 {
                    true => out.push_str(key),
                    false => write!(out, "{quote}{key}{quote}").unwrap(),
                }
                out.push(':');
                out.push_str(choices.space());
                gemma(value, quote, choices, out);
                out.push(',');
            }
            drop_comma(choices, out);
            out.push('}');
        }
        _ => write!(out, "{value}").unwrap(),
    }
}
