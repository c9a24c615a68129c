//! Properties of any text: rendered parts are read back, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_codec::text::{Event, OnError, Options, Reader, ReasoningFormat, Recipe};

/// One part of a model's text.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Reasoning(String),
    Content(String),
    Call(String, Value),
}

/// Reads a text in pieces of these sizes, repeated. Joins neighbouring deltas.
fn read(recipe: &Recipe, options: Options, text: &[u8], sizes: &[usize]) -> Vec<Part> {
    let mut reader = Reader::new(recipe, options);
    let mut parts: Vec<Part> = Vec::new();
    let mut arguments = String::new();
    let mut out = |event: Event<'_>| match event {
        Event::Reasoning(more) => match parts.last_mut() {
            Some(Part::Reasoning(text)) => text.push_str(more),
            _ => parts.push(Part::Reasoning(more.to_owned())),
        },
        Event::Content(more) => match parts.last_mut() {
            Some(Part::Content(text)) => text.push_str(more),
            _ => parts.push(Part::Content(more.to_owned())),
        },
        Event::CallStarted { name, .. } => parts.push(Part::Call(name.to_owned(), Value::Null)),
        Event::CallArguments { delta, .. } => {
            arguments.push_str(delta);
            if let Some(Part::Call(_, value)) = parts.last_mut() {
                *value = json!(arguments);
            }
        }
        Event::CallEnded { .. } => {
            if let Some(Part::Call(_, value)) = parts.last_mut() {
                // Malformed arguments stay unchanged.
                *value = serde_json::from_str(&arguments).unwrap_or_else(|_| json!(arguments));
            }
            arguments.clear();
        }
        Event::Fault { .. } | Event::Ended(_) => {}
    };
    let (mut rest, mut sizes) = (text, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| (*size).min(rest.len()));
        let (piece, after) = rest.split_at(size);
        reader.push(piece, &mut out);
        rest = after;
    }
    reader.finish(&mut out);
    parts
}

/// How a format writes a call.
type Render = fn(&str, &Value) -> String;

const FORMATS: &[(&str, Render)] = &[
    ("hermes", |name, arguments| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n</tool_call>")
    }),
    ("mistral", |name, arguments| {
        format!("[TOOL_CALLS] [{{\"name\": \"{name}\", \"arguments\": {arguments}}}]")
    }),
    ("mistral", |name, arguments| format!("[TOOL_CALLS]{name}[ARGS]{arguments}")),
    ("llama_function", |name, arguments| format!("<function={name}>{arguments}</function>")),
    ("deepseek_v31", |name, arguments| {
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        )
    }),
    ("deepseek_v3", |name, arguments| {
        format!(
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        )
    }),
    ("kimi_k2", |name, arguments| {
        format!(
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>"
        )
    }),
    ("cohere_command", |name, arguments| {
        format!(
            "<|START_ACTION|>[{{\"tool_call_id\": \"0\", \"tool_name\": \"{name}\", \"parameters\": {arguments}}}]<|END_ACTION|>"
        )
    }),
    ("apertus", |name, arguments| {
        format!("<|tools_prefix|>[{{\"{name}\": {arguments}}}]<|tools_suffix|>")
    }),
    ("hermes", |name, arguments| {
        format!(
            "<tool_call>{{\"id\": 7, \"parameters\": {arguments}, \"name\": \"{name}\"}}</tool_call>"
        )
    }),
];

/// JSON values whose strings contain text that looks like markers.
fn values() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        any::<String>(),
        "[a-z<>/{}\\[\\]\"\\\\ \n]{0,12}",
        Just("</tool_call>".to_owned()),
        Just("<think>x</think>".to_owned()),
        Just("```\n".to_owned()),
    ];
    let leaf = prop_oneof![
        text.prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z\"}<]{0,4}", inner, 0..4)
                .prop_map(|map| { Value::Object(map.into_iter().collect()) }),
        ]
    })
}

/// Parts of a text. Text starts and ends with a letter, because white space at its ends may be
/// framing.
fn parts_strategy() -> impl Strategy<Value = Vec<Part>> {
    let text = "[a-z]([a-z <>.é\n]{0,12}[a-z])?";
    let one = prop_oneof![
        text.prop_map(Part::Reasoning),
        text.prop_map(Part::Content),
        ("[a-z_]{1,8}", proptest::collection::btree_map("[a-z]{1,3}", values(), 0..4))
            .prop_map(|(name, map)| Part::Call(name, Value::Object(map.into_iter().collect()))),
    ];
    proptest::collection::vec(one, 0..8).prop_map(|list| {
        // Two neighbouring parts of one kind would be read as one.
        let mut parts: Vec<Part> = Vec::new();
        for one in list {
            let same = matches!(
                (parts.last(), &one),
                (Some(Part::Reasoning(_)), Part::Reasoning(_))
                    | (Some(Part::Content(_)), Part::Content(_))
            );
            if !same {
                parts.push(one);
            }
        }
        parts
    })
}

/// Fragments of markers and of text, in any order. Most of it is malformed.
fn fragments() -> impl Strategy<Value = Vec<String>> {
    let fragment = prop_oneof![
        4 => "w[0-9]{6}",
        1 => prop_oneof![
            Just("<think>"), Just("</think>"), Just("</THINK>"), Just("<reasoning>"),
            Just("<tool_call>"), Just("</tool_call>"), Just("<tool_"), Just("</thi"), Just("<"),
            Just(" "), Just("\n"), Just("\r\n"), Just("`"), Just("```\n"), Just("~~~"), Just("\""),
            Just("{"), Just("["), Just("é"), Just("❤"),
            Just("<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": \""),
            Just("\"}}</tool_call>"), Just("\"}"), Just("<tool_call>{"), Just("{\"name\": \"g\"}"),
        ].prop_map(str::to_owned),
    ];
    proptest::collection::vec(fragment, 0..24)
}

/// The words of a text.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('w') {
        let end = (at + 7).min(rest.len());
        if rest.is_char_boundary(end) && rest[at + 1..end].len() == 6 {
            words.push(&rest[at..end]);
        }
        rest = &rest[at + 1..];
    }
    words.retain(|word| word[1..].bytes().all(|byte| byte.is_ascii_digit()));
    words
}

/// Removes white space, and replaces each tag by a null character.
fn strip(text: &str, tags: &[&str]) -> String {
    let mut strip = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let tag = tags
            .iter()
            .find(|tag| rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)));
        match tag {
            Some(tag) => {
                strip.push('\0');
                rest = &rest[tag.len()..];
            }
            None => {
                if !character.is_whitespace() {
                    strip.push(character);
                }
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    strip
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Covers: S2-26, S2-32
    #[test]
    fn rendered_parts_round_trip(
        parts in parts_strategy(),
        which in 0..FORMATS.len(),
        sizes in proptest::collection::vec(1usize..20, 1..6),
    ) {
        let (name, render) = FORMATS[which];
        let recipe = Recipe::named(Some("think"), &[name]).unwrap();
        let text: String = parts
            .iter()
            .map(|part| match part {
                Part::Reasoning(text) => format!("<think>\n{text}\n</think>\n\n"),
                Part::Content(text) => text.clone(),
                Part::Call(name, arguments) => render(name, arguments),
            })
            .collect();
        let read = read(&recipe, Options::default(), text.as_bytes(), &sizes);
        prop_assert_eq!(read, parts, "{}", text);
    }

    /// With tags only, nothing is missing but tags and white space.
    #[test]
    fn only_tags_and_white_space_are_removed(parts in fragments()) {
        let recipe = Recipe::named(Some("plain"), &[]).unwrap();
        let text = parts.concat();
        let tags = [
            "<think>", "</think>", "<reasoning>", "</reasoning>", "<thought>", "</thought>",
        ];
        let parts: Vec<String> = read(&recipe, Options::default(), text.as_bytes(), &[7])
            .into_iter()
            .map(|part| match part {
                Part::Reasoning(text) | Part::Content(text) => strip(&text, &tags),
                Part::Call(..) => unreachable!("no calls were looked for"),
            })
            .collect();
        // A tag between two words separates them.
        prop_assert_eq!(
            parts.concat().replace('\0', ""),
            strip(&text, &tags).replace('\0', ""),
            "{}", text
        );
    }

    /// Covers: S2-30, C-24
    #[test]
    fn no_word_is_lost_or_repeated(
        parts in fragments(),
        sizes in proptest::collection::vec(1usize..9, 1..4),
        family in prop_oneof![Just("qwen3"), Just("hermes"), Just("llama-3"), Just("mistral")],
    ) {
        let recipe = Recipe::family(family).unwrap();
        let text = parts.concat();
        let parts = read(&recipe, Options::default(), text.as_bytes(), &sizes);
        let output: String = parts
            .iter()
            .map(|part| match part {
                Part::Reasoning(text) | Part::Content(text) => format!("{text}\0"),
                Part::Call(name, Value::String(cut)) => format!("{name}\0{cut}\0"),
                Part::Call(name, arguments) => format!("{name}\0{arguments}\0"),
            })
            .collect();
        prop_assert_eq!(words(&output), words(&text), "{}", text);
    }

    /// For any input, every split gives the same parts.
    #[test]
    fn splits_do_not_change_the_parts_of_any_bytes(
        parts in proptest::collection::vec(
            prop_oneof![
                fragments().prop_map(|parts| parts.concat().into_bytes()),
                proptest::collection::vec(any::<u8>(), 0..8),
            ],
            0..4,
        ),
        sizes in proptest::collection::vec(1usize..9, 1..4),
        error in any::<bool>(),
        format in prop_oneof![
            Just(ReasoningFormat::Split), Just(ReasoningFormat::Raw), Just(ReasoningFormat::None),
        ],
    ) {
        let text = parts.concat();
        let options = Options {
            on_error: if error { OnError::Error } else { OnError::Text },
            reasoning_format: format,
            ..Options::default()
        };
        let mut recipe = Recipe::family("qwen3").unwrap();
        recipe.tools.extend(Recipe::family("llama-3").unwrap().tools);
        let whole = read(&recipe, options.clone(), &text, &[]);
        let pieces = read(&recipe, options.clone(), &text, &sizes);
        prop_assert_eq!(&pieces, &whole);
        if format == ReasoningFormat::None && !text.is_empty() {
            // Only calls are removed.
            let calls = whole.iter().any(|part| matches!(part, Part::Call(..)));
            if !calls && !error {
                let parts: String = whole
                    .iter()
                    .map(|part| match part {
                        Part::Content(text) => text.as_str(),
                        _ => unreachable!("reasoning is content"),
                    })
                    .collect();
                let text = String::from_utf8_lossy(&text);
                prop_assert_eq!(parts.trim(), text.trim());
            }
        }
    }
}
