//! The texts that are read, the same in every run, and what a reader must find in them.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::sink::{Call, Truth};
use crate::subjects::Format;

/// A text and its meaning.
pub(crate) struct Input {
    /// The model's text.
    pub(crate) text: String,
    /// What a reader must find in it.
    pub(crate) truth: Truth,
}

/// Half reasoning, half answer, with this number of calls spread over the answer.
pub(crate) fn reply(bytes: usize, format: Format, calls: usize) -> Input {
    let mut random = Random::new(1);
    let reasoning = prose(bytes / 2, &mut random);
    let mut text = format!("<think>\n{reasoning}\n</think>\n\n");
    let mut truth = Truth { reasoning, content: Some(String::new()), calls: Vec::new() };
    for round in 0..=calls {
        let answer = prose(bytes / 2 / (calls + 1), &mut random);
        text.push_str(&answer);
        truth.content.get_or_insert_default().push_str(&answer);
        if round < calls {
            let call = call(400, format, round, &mut random);
            text.push('\n');
            text.push_str(&call.text);
            text.push('\n');
            truth.calls.extend(call.truth.calls);
        }
    }
    Input { text, truth }
}

/// One call with this number of bytes of arguments, and nothing else.
pub(crate) fn long_call(bytes: usize, format: Format) -> Input {
    call(bytes, format, 0, &mut Random::new(2))
}

/// Reasoning only, without its end.
pub(crate) fn reasoning(bytes: usize) -> String {
    format!("<think>\n{}", prose(bytes, &mut Random::new(3)))
}

/// An answer only.
pub(crate) fn answer(bytes: usize) -> Input {
    let text = prose(bytes, &mut Random::new(4));
    Input { truth: Truth { content: Some(text.clone()), ..Truth::default() }, text }
}

/// Pieces of 4 to 16 bytes, never cut inside a code point: other readers do not accept that.
pub(crate) fn ragged(text: &str) -> Vec<&str> {
    let mut random = Random::new(5);
    cut(text, || 4 + random.below(13))
}

/// Pieces of 8 bytes, or a little less at a longer code point.
pub(crate) fn eights(text: &str) -> Vec<&str> {
    cut(text, || 8)
}

/// Cut with `cut`, except these markers, which occur once each and in this order: for readers that
/// miss a cut marker.
pub(crate) fn around<'a>(
    markers: &[&str],
    text: &'a str,
    cut: fn(&'a str) -> Vec<&'a str>,
) -> Vec<&'a str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    for marker in markers {
        if let Some(start) = rest.find(marker) {
            let (before, after) = rest.split_at(start);
            let (marker, after) = after.split_at(marker.len());
            pieces.extend(cut(before));
            pieces.push(marker);
            rest = after;
        }
    }
    pieces.extend(cut(rest));
    pieces
}

/// One piece for each character.
pub(crate) fn letters(text: &str) -> Vec<&str> {
    cut(text, || 1)
}

fn cut(mut text: &str, mut size: impl FnMut() -> usize) -> Vec<&str> {
    let mut pieces = Vec::with_capacity(text.len() / 8);
    while let Some(first) = text.chars().next() {
        let size = size().max(first.len_utf8());
        let (piece, rest) = text.split_at(text.floor_char_boundary(size));
        pieces.push(piece);
        text = rest;
    }
    pieces
}

/// The offered tools, with the schemas of their parameters.
pub(crate) fn tools(format: Format) -> Vec<(&'static str, Value)> {
    if format == Format::Tags {
        return Vec::new();
    }
    let text = || json!({"type": "string"});
    vec![
        (
            "write_file",
            json!({"type": "object", "properties": {
                "path": text(), "content": text(), "edits": {"type": "array"},
            }}),
        ),
        ("get_weather", json!({"type": "object", "properties": {"city": text()}})),
    ]
}

/// A call of `write_file` in this format. Formats with JSON get a list of
/// edits; the others, whose values are text, get one long text.
fn call(bytes: usize, format: Format, number: usize, random: &mut Random) -> Input {
    let path = format!("src/reader_{number}.rs");
    let (text, arguments) = match format {
        Format::Tags => panic!("there are no calls without a format"),
        Format::Hermes | Format::Mistral | Format::KimiK2 => {
            let arguments = edits(&path, bytes, random);
            (json_call(format, "write_file", &arguments), arguments)
        }
        Format::Qwen3Coder => {
            let content = code(bytes, random);
            let text = format!(
                "<tool_call>\n<function=write_file>\n<parameter=path>\n{path}\n</parameter>\n\
                 <parameter=content>\n{content}\n</parameter>\n</function>\n</tool_call>"
            );
            (text, json!({"path": path, "content": content}).to_string())
        }
        Format::Pythonic => {
            let content = code(bytes, random);
            // Python and JSON strings escape the same characters here.
            let literal = Value::from(content.as_str());
            let text = format!("[write_file(path=\"{path}\", content={literal})]");
            (text, json!({"path": path, "content": content}).to_string())
        }
    };
    let call = Call { name: "write_file".to_owned(), arguments };
    Input {
        text,
        truth: Truth { content: Some(String::new()), calls: vec![call], ..Truth::default() },
    }
}

/// A call whose arguments are JSON.
pub(crate) fn json_call(format: Format, name: &str, arguments: &str) -> String {
    match format {
        Format::Mistral => {
            format!("[TOOL_CALLS] [{{\"name\": \"{name}\", \"arguments\": {arguments}}}]")
        }
        Format::KimiK2 => format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0\
             <|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        _ => format!(
            "<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>"
        ),
    }
}

fn edits(path: &str, bytes: usize, random: &mut Random) -> String {
    let mut text = format!("{{\"path\": \"{path}\", \"edits\": [");
    let mut line = 0;
    while text.len() < bytes {
        line += 1 + random.below(9);
        let separator = if text.ends_with('[') { "" } else { ", " };
        let lines = Value::from(code(160, random));
        let _ = write!(text, "{separator}{{\"line\": {line}, \"text\": {lines}}}");
    }
    text.push_str("]}");
    text
}

/// Lines of a program, at least this many bytes.
fn code(bytes: usize, random: &mut Random) -> String {
    const LINES: [&str; 8] = [
        "    let mut total: Vec<u8> = Vec::with_capacity(names.len());",
        "    for (place, name) in names.iter().enumerate() {",
        "        println!(\"{number}: {name}\\n\");",
        "        if place < 10 && name != \"none\" {",
        "            total.push(name.len() as u8); // größer als null",
        "        }",
        "    }",
        "",
    ];
    // Readers differ in white space at the ends of a value; that is a case of its own.
    let mut text = "fn main() {\n".to_owned();
    while text.len() < bytes {
        text.push_str(LINES[random.below(LINES.len())]);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// Sentences in paragraphs, at least this many bytes: mostly ASCII, some other words, and now and then
/// a `<` that opens nothing.
fn prose(bytes: usize, random: &mut Random) -> String {
    const WORDS: [&str; 40] = [
        "the",
        "a",
        "of",
        "and",
        "to",
        "in",
        "that",
        "it",
        "we",
        "for",
        "reader",
        "stream",
        "answer",
        "number",
        "because",
        "already",
        "question",
        "between",
        "another",
        "should",
        "consider",
        "result",
        "possible",
        "first",
        "second",
        "check",
        "weather",
        "temperature",
        "don't",
        "it's",
        "however",
        "value",
        "therefore",
        "whether",
        "simple",
        "naïve",
        "Zürich",
        "—",
        "価値",
        "language",
    ];
    let mut text = String::with_capacity(bytes + 200);
    while text.len() < bytes {
        for index in 0..6 + random.below(12) {
            if index > 0 {
                text.push(' ');
            }
            text.push_str(WORDS[random.below(WORDS.len())]);
        }
        match random.below(60) {
            0 => text.push_str(", if a < b [1]"),
            1 => text.push_str(" (Vec<u8>)"),
            _ => {}
        }
        text.push_str(if random.below(6) == 0 { ".\n\n" } else { ". " });
    }
    text
}

/// Pseudo-random numbers with a fixed seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}
