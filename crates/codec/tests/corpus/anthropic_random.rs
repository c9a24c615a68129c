//! Random requests in random spellings: white space, escapes and the order of keys vary, so that the
//! proofs about captures also hold for requests that no capture has.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::prefix::Prefixes;
use throughline_codec::dialects::anthropic::rewrite::leave_out;
use throughline_codec::json::{Edits, validate};

use super::anthropic_request::{DEPTH, Request, THINKING_EDITS};
use super::anthropic_tree::Change;

/// Random choices from a list that repeats.
struct Choices<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Choices<'_> {
    fn next(&mut self, sides: usize) -> usize {
        self.at += 1;
        // The round number is mixed in, so that a few bytes do not repeat as they are.
        let byte = self.bytes[self.at % self.bytes.len()] as usize;
        (byte + self.at / self.bytes.len()) % sides
    }
}

fn render(value: &Value, choices: &mut Choices<'_>, text: &mut String) {
    white_space(choices, text);
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if !members.is_empty() {
                let turn = choices.next(members.len());
                members.rotate_left(turn);
            }
            text.push('{');
            for (at, (key, value)) in members.into_iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                white_space(choices, text);
                // The outline compares keys by their bytes. No client escapes them.
                text.push_str(&Value::from(key.as_str()).to_string());
                white_space(choices, text);
                text.push(':');
                render(value, choices, text);
            }
            white_space(choices, text);
            text.push('}');
        }
        Value::Array(elements) => {
            text.push('[');
            for (at, value) in elements.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                render(value, choices, text);
            }
            white_space(choices, text);
            text.push(']');
        }
        Value::String(string) if VERBATIM.contains(&string.as_str()) => {
            text.push_str(&value.to_string());
        }
        Value::String(string) => quote(string, choices, text),
        Value::Number(number) if number.is_f64() && choices.next(2) == 0 => {
            text.push_str(&format!("{:e}", number.as_f64().unwrap()));
        }
        other => text.push_str(&other.to_string()),
    }
    white_space(choices, text);
}

/// Values that the outline compares by their bytes.
const VERBATIM: &[&str] =
    &["user", "assistant", "thinking", "redacted_thinking", "text", "tool_use", "tool_result"];

fn white_space(choices: &mut Choices<'_>, text: &mut String) {
    text.push_str(["", "", "", " ", "\n  ", "\t", "\r\n"][choices.next(7)]);
}

fn quote(string: &str, choices: &mut Choices<'_>, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        let must = matches!(character, '"' | '\\') || character < ' ';
        if must || choices.next(5) == 0 {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else if character == '/' && choices.next(2) == 0 {
            text.push_str("\\/");
        } else {
            text.push(character);
        }
    }
    text.push('"');
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![r#"[a-z"\\/{}\[\],: \n]{0,20}"#, "\\PC{0,12}", any::<String>(),]
}

fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        words().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let key = select(vec!["type", "thinking", "messages", "model", "a", "content"]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key, inner), 0..4).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<Value>()),
        ]
    })
}

fn block() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (words(), words())
            .prop_map(|(text, signature)| json!({"type": "thinking", "thinking": text, "signature": signature})),
        1 => words().prop_map(|text| json!({"type": "thinking", "thinking": text})),
        2 => words().prop_map(|data| json!({"type": "redacted_thinking", "data": data})),
        1 => anything().prop_map(|odd| json!({"type": "thinking", "thinking": odd, "x": 1.5})),
        3 => (words(), anything()).prop_map(|(text, more)| json!({"type": "text", "text": text, "x": more})),
        2 => (words(), anything())
            .prop_map(|(id, input)| json!({"type": "tool_use", "id": id, "name": "f", "input": input})),
        1 => (words(), anything())
            .prop_map(|(id, content)| json!({"type": "tool_result", "tool_use_id": id, "content": content})),
        1 => anything(),
    ]
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        1 => words().prop_map(Value::from),
        6 => vec(block(), 0..6).prop_map(Value::from),
        1 => Just(Value::Null),
    ];
    let role = select(vec!["user", "assistant", "assistant", "system"]);
    (role, content).prop_map(|(role, content)| json!({"role": role, "content": content}))
}

fn request() -> impl Strategy<Value = Value> {
    let thinking = prop_oneof![
        Just(None),
        Just(Some(json!({}))),
        Just(Some(Value::Null)),
        Just(Some(
            json!({"block_binding": {"prefix_mismatch_behavior": "error"}, "type": "adaptive"})
        )),
        Just(Some(json!({"type": "enabled", "budget_tokens": 2048}))),
        anything().prop_map(|more| Some(json!({"type": "adaptive", "display": more}))),
    ];
    (vec(message(), 0..6), thinking, anything()).prop_map(|(messages, thinking, more)| {
        let mut request = json!({"model": "claude-sonnet-5", "max_tokens": 4096, "stream": true,
            "x_more": more, "messages": messages});
        if let Some(thinking) = thinking {
            request["thinking"] = thinking;
        }
        request
    })
}

fn spelled() -> impl Strategy<Value = (Value, String)> {
    (request(), vec(any::<u8>(), 1..60)).prop_map(|(request, bytes)| {
        let (mut text, mut choices) = (String::new(), Choices { bytes: &bytes, at: 0 });
        render(&request, &mut choices, &mut text);
        (request, text)
    })
}

fn without_all(outline: &Outline) -> Vec<(usize, Vec<bool>)> {
    let mut keep: Vec<(usize, Vec<bool>)> = Vec::new();
    for (at, index, ..) in outline.thinking_blocks() {
        if keep.last().is_none_or(|(last, _)| *last != at) {
            keep.push((at, vec![true; outline.messages[at].blocks().len()]));
        }
        keep.last_mut().unwrap().1[index] = false;
    }
    keep
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Covers: S1-27, S1-28, case 12
    #[test]
    fn any_edit_changes_nothing_else(
        (_, text) in spelled(),
        gone in vec(any::<bool>(), 40),
        thinking in select(THINKING_EDITS.to_vec()),
        model in select(vec![None, Some("other")]),
        drop_bound in any::<bool>(),
    ) {
        let request = Request::new("rendered", text.as_bytes());
        request.check(&Change::default());
        let mut gone = gone.iter().cycle();
        let positions = request.positions();
        let gone: Vec<_> = positions.into_iter().filter(|_| *gone.next().unwrap()).collect();
        let keep = request.without(&gone);
        request.check(&Change { keep, model, thinking, drop_bound });
    }

    /// Covers: S1-16, S1-30
    #[test]
    fn spelling_changes_no_key((value, text) in spelled()) {
        let plain = value.to_string();
        let names = |text: &str| {
            let outline = Outline::read(text.as_bytes(), DEPTH).unwrap();
            outline.thinking_blocks().collect::<Vec<_>>()
        };
        prop_assert_eq!(names(&plain), names(&text));
        let blocks = value["messages"].as_array().unwrap().iter()
            .filter(|message| message["role"] == "assistant")
            .flat_map(|message| message["content"].as_array().into_iter().flatten())
            .filter(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking")
            .count();
        prop_assert_eq!(names(&text).len(), blocks);
    }

    #[test]
    fn a_damaged_request_is_rejected_or_stays_json(
        (_, text) in spelled(),
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(outline) = Outline::read(&bytes, DEPTH) {
            prop_assert!(validate(&bytes, DEPTH).is_ok());
            let _ = Prefixes::read(&bytes, &outline);
            let mut edits = Edits::default();
            leave_out(&mut edits, &outline, &without_all(&outline));
            prop_assert!(validate(&edits.apply(&bytes), DEPTH).is_ok());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..300)) {
        let _ = Outline::read(&bytes, DEPTH);
    }

    #[test]
    fn arbitrary_brackets_never_panic(text in r#"\{"messages":\[[\[\]{}":,0-9a-z\\ ]{0,80}"#) {
        let _ = Outline::read(text.as_bytes(), DEPTH);
    }
}
