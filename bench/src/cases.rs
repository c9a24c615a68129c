//! Texts that are hard to read, and which readers get them right.

use crate::inputs;
use crate::measure;
use crate::sink::{Call, Collected, Truth};
use crate::subjects::{Format, Reading, Subject, ours};

/// The arguments of most calls.
const OSLO: &str = r#"{"city": "Oslo"}"#;

/// A difficulty, in the formats that have it. A reader gets the first format that it knows.
struct Case {
    name: &'static str,
    writings: Vec<Writing>,
}

struct Writing {
    format: Format,
    feed: Feed,
    truth: Truth,
}

/// How a text is cut.
enum Feed {
    /// In each of the three sizes.
    Each(String),
    /// The cut is the difficulty.
    Cut(&'static [&'static str]),
}

/// Prints the table.
pub(crate) fn table() {
    let names: Vec<&str> =
        Subject::READERS.iter().map(|subject| subject.name(Format::Hermes)).collect();
    println!(
        "\n## Cases\n\nEach text is read three times: whole, in pieces of 4 to 16 bytes, and letter \
         by letter. If only some of these fail, the cell names them.\n"
    );
    println!("| case | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    for case in cases() {
        let cells: Vec<String> =
            Subject::READERS.iter().map(|subject| verdict(&case, *subject)).collect();
        println!("| {} | {} |", case.name, cells.join(" | "));
    }
    println!(
        "| cut inside a code point | {} | takes text only | takes text only | takes text only |",
        if bytes() { "yes" } else { "no" }
    );
}

fn verdict(case: &Case, subject: Subject) -> String {
    let known = case.writings.iter().find(|one| subject.reads(one.format));
    let Some(writing) = known else {
        return "no such format".to_owned();
    };
    let right = |pieces: &[&str]| {
        let found = measure::collected(subject, writing.format, pieces);
        writing.truth.difference(&found).is_none()
    };
    let outcomes = match &writing.feed {
        Feed::Cut(pieces) => vec![("cut", right(pieces))],
        Feed::Each(text) => vec![
            ("whole", right(&[text])),
            ("pieces", right(&inputs::ragged(text))),
            ("letters", right(&inputs::letters(text))),
        ],
    };
    let wrong: Vec<&str> =
        outcomes.iter().filter(|(_, right)| !right).map(|(name, _)| *name).collect();
    match wrong.len() {
        0 => "yes".to_owned(),
        all if all == outcomes.len() => "no".to_owned(),
        _ => format!("no: {}", wrong.join(", ")),
    }
}

/// Only our reader takes bytes.
fn bytes() -> bool {
    let text = "<think>größer 価値</think>naïve — 価値";
    let mut found = Collected::default();
    let mut reading = ours::open(Format::Tags);
    for byte in text.as_bytes() {
        reading.push_bytes(&[*byte], &mut found);
    }
    reading.finish(&mut found);
    let truth = Truth {
        reasoning: "größer 価値".to_owned(),
        content: Some("naïve — 価値".to_owned()),
        ..Truth::default()
    };
    truth.difference(&found).is_none()
}

/// All cases, in the order of the table.
fn cases() -> Vec<Case> {
    [text_cases(), argument_cases(), syntax_cases()].into_iter().flatten().collect()
}

/// Reasoning, and text next to calls.
fn text_cases() -> Vec<Case> {
    vec![
        case(
            "closer cut right after `<`",
            vec![cut(
                Format::Tags,
                &["<think>", "It is so.<", "/think>", "Yes."],
                truth("It is so.", "Yes.", &[]),
            )],
        ),
        case(
            "reasoning after an answer",
            vec![each(
                Format::Tags,
                "<think>once</think>One.<think>twice</think>Two.",
                truth("oncetwice", "One.Two.", &[]),
            )],
        ),
        case(
            "text and call opener in one piece",
            vec![
                cut(
                    Format::Hermes,
                    &[
                        "Let me look. <tool_call>\n{\"name\": \"get_weather\", ",
                        "\"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>",
                    ],
                    truth("", "Let me look.", &[OSLO]),
                ),
                cut(
                    Format::Qwen3Coder,
                    &[
                        "Let me look. <tool_call>\n<function=get_weather>\n<parameter=ci",
                        "ty>\nOslo\n</parameter>\n</function>\n</tool_call>",
                    ],
                    truth("", "Let me look.", &[OSLO]),
                ),
            ],
        ),
        case(
            "text before, between and after calls",
            around(&|call| format!("One. {call}\nTwo. {call}\nThree."), &|_| {
                truth("", "One. Two. Three.", &[OSLO, OSLO])
            }),
        ),
    ]
}

/// Markers of the format inside arguments.
fn argument_cases() -> Vec<Case> {
    let closing = r#"{"city": "a </tool_call> b"}"#;
    let kimi_closing = r#"{"city": "a <|tool_call_end|> b"}"#;
    let thinking = r#"{"city": "<think>a</think> b"}"#;
    vec![
        case(
            "end marker inside a JSON string",
            vec![each(Format::Hermes, &hermes(closing), truth("", "", &[closing]))],
        ),
        case(
            "end marker inside a JSON string (kimi_k2)",
            vec![each(Format::KimiK2, &kimi(kimi_closing), truth("", "", &[kimi_closing]))],
        ),
        case(
            "reasoning tags inside arguments",
            vec![
                each(Format::Hermes, &hermes(thinking), truth("", "", &[thinking])),
                each(Format::KimiK2, &kimi(thinking), truth("", "", &[thinking])),
            ],
        ),
    ]
}

/// Calls in an unusual form, and blocks that are no calls.
fn syntax_cases() -> Vec<Case> {
    let late_name = format!(r#"{{"arguments": {OSLO}, "name": "get_weather"}}"#);
    let parameters = format!(r#"{{"name": "get_weather", "parameters": {OSLO}}}"#);
    vec![
        case(
            "a call after a block that is none (only calls compared)",
            around(&|call| format!("{}\n{call}", block("not a call")), &|_| Truth {
                content: None,
                ..truth("", "", &[OSLO])
            }),
        ),
        case(
            "arguments before name",
            vec![each(Format::Hermes, &block(&late_name), truth("", "", &[OSLO]))],
        ),
        case(
            "`parameters` for `arguments`",
            vec![each(Format::Hermes, &block(&parameters), truth("", "", &[OSLO]))],
        ),
        case(
            "spaces at the start of a text value",
            vec![each(
                Format::Qwen3Coder,
                &call_in_tags("  Oslo"),
                truth("", "", &[r#"{"city": "  Oslo"}"#]),
            )],
        ),
        case(
            "`[TOOL_CALLS]NAME[ARGS]{}`",
            vec![each(
                Format::Mistral,
                &format!("[TOOL_CALLS]get_weather[ARGS]{OSLO}"),
                truth("", "", &[OSLO]),
            )],
        ),
        case(
            "a call in a code fence is text",
            around(&|call| format!("Like this:\n```\n{call}\n```\nDone."), &|text| {
                truth("", text, &[])
            }),
        ),
    ]
}

fn case(name: &'static str, writings: Vec<Writing>) -> Case {
    Case { name, writings }
}

fn hermes(arguments: &str) -> String {
    inputs::json_call(Format::Hermes, "get_weather", arguments)
}

fn kimi(arguments: &str) -> String {
    inputs::json_call(Format::KimiK2, "get_weather", arguments)
}

fn block(body: &str) -> String {
    format!("<tool_call>\n{body}\n</tool_call>")
}

/// The same difficulty around a call of both formats.
fn around(write: &dyn Fn(&str) -> String, truth: &dyn Fn(&str) -> Truth) -> Vec<Writing> {
    let calls = [(Format::Hermes, hermes(OSLO)), (Format::Qwen3Coder, call_in_tags("Oslo"))];
    let texts = calls.map(|(format, call)| (format, write(&call)));
    texts.into_iter().map(|(format, text)| each(format, &text, truth(&text))).collect()
}

/// The call of the cases as qwen3_coder writes it.
fn call_in_tags(city: &str) -> String {
    format!(
        "<tool_call>\n<function=get_weather>\n<parameter=city>\n{city}\n</parameter>\n\
         </function>\n</tool_call>"
    )
}

fn each(format: Format, text: &str, truth: Truth) -> Writing {
    Writing { format, feed: Feed::Each(text.to_owned()), truth }
}

fn cut(format: Format, pieces: &'static [&'static str], truth: Truth) -> Writing {
    Writing { format, feed: Feed::Cut(pieces), truth }
}

fn truth(reasoning: &str, content: &str, calls: &[&str]) -> Truth {
    let call = |arguments: &&str| Call {
        name: "get_weather".to_owned(),
        arguments: (*arguments).to_owned(),
    };
    Truth {
        reasoning: reasoning.to_owned(),
        content: Some(content.to_owned()),
        calls: calls.iter().map(call).collect(),
    }
}
