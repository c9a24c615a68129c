//! What holds for any text: what is rendered is read back, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_codec::text::{Event, OnError, Options, Reader, ReasoningFormat, Recipe};

/// What a model says, one after the other.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Reasoning(String),
    Content(String),
    Call(String, Value),
}

/// Reads a text in pieces of these sizes, over and over; neighbours are joined.
fn read(recipe: &Recipe, options: Options, text: &[u8], sizes: &[usize]) -> Vec<Said> {
    let mut reader = Reader::new(recipe, options);
    let mut said: Vec<Said> = Vec::new();
    let mut arguments = String::new();
    let mut out = |event: Event<'_>| match event {
        Event::Reasoning(more) => match said.last_mut() {
            Some(Said::Reasoning(text)) => text.push_str(more),
            _ => said.push(Said::Reasoning(more.to_owned())),
        },
        Event::Content(more) => match said.last_mut() {
            Some(Said::Content(text)) => text.push_str(more),
            _ => said.push(Said::Content(more.to_owned())),
        },
        Event::CallStarted { name, .. } => said.push(Said::Call(name.to_owned(), Value::Null)),
        Event::CallArguments { delta, .. } => {
            arguments.push_str(delta);
            if let Some(Said::Call(_, value)) = said.last_mut() {
                *value = json!(arguments);
            }
        }
        Event::CallEnded { .. } => {
            if let Some(Said::Call(_, value)) = said.last_mut() {
                // Broken arguments stay as they were written.
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
    said
}

/// How a format renders a call.
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

/// JSON values with everything in their strings that could be taken for something else.
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

/// Things to say. Text begins and ends with a letter: white space at its borders may be framing.
fn sayings() -> impl Strategy<Value = Vec<Said>> {
    let text = "[a-z]([a-z <>.é\n]{0,12}[a-z])?";
    let one = prop_oneof![
        text.prop_map(Said::Reasoning),
        text.prop_map(Said::Content),
        ("[a-z_]{1,8}", proptest::collection::btree_map("[a-z]{1,3}", values(), 0..4))
            .prop_map(|(name, map)| Said::Call(name, Value::Object(map.into_iter().collect()))),
    ];
    proptest::collection::vec(one, 0..8).prop_map(|list| {
        // Two spans of one kind side by side would be read as one.
        let mut said: Vec<Said> = Vec::new();
        for one in list {
            let same = matches!(
                (said.last(), &one),
                (Some(Said::Reasoning(_)), Said::Reasoning(_))
                    | (Some(Said::Content(_)), Said::Content(_))
            );
            if !same {
                said.push(one);
            }
        }
        said
    })
}

/// Pieces of markers and of text, in any order: most of it is broken.
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

/// A text without white space, and with a mark where a tag stood.
fn bare(text: &str, tags: &[&str]) -> String {
    let mut bare = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let tag = tags
            .iter()
            .find(|tag| rest.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)));
        match tag {
            Some(tag) => {
                bare.push('\0');
                rest = &rest[tag.len()..];
            }
            None => {
                if !character.is_whitespace() {
                    bare.push(character);
                }
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    bare
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Covers: S2-26, S2-32
    #[test]
    fn what_is_rendered_is_read_back(
        said in sayings(),
        which in 0..FORMATS.len(),
        sizes in proptest::collection::vec(1usize..20, 1..6),
    ) {
        let (name, render) = FORMATS[which];
        let recipe = Recipe::named(Some("think"), &[name]).unwrap();
        let text: String = said
            .iter()
            .map(|said| match said {
                Said::Reasoning(text) => format!("<think>\n{text}\n</think>\n\n"),
                Said::Content(text) => text.clone(),
                Said::Call(name, arguments) => render(name, arguments),
            })
            .collect();
        let read = read(&recipe, Options::default(), text.as_bytes(), &sizes);
        prop_assert_eq!(read, said, "{}", text);
    }

    /// With tags alone, all that is missing from what was said are tags and white space.
    #[test]
    fn every_byte_of_a_text_is_said_or_part_of_a_tag(parts in fragments()) {
        let recipe = Recipe::named(Some("plain"), &[]).unwrap();
        let text = parts.concat();
        let tags = [
            "<think>", "</think>", "<reasoning>", "</reasoning>", "<thought>", "</thought>",
        ];
        let said: Vec<String> = read(&recipe, Options::default(), text.as_bytes(), &[7])
            .into_iter()
            .map(|said| match said {
                Said::Reasoning(text) | Said::Content(text) => bare(&text, &tags),
                Said::Call(..) => unreachable!("no calls were looked for"),
            })
            .collect();
        // Words that a tag stood between are not one word.
        prop_assert_eq!(
            said.concat().replace('\0', ""),
            bare(&text, &tags).replace('\0', ""),
            "{}", text
        );
    }

    /// Covers: S2-30, C-24
    #[test]
    fn no_word_is_lost_or_said_twice(
        parts in fragments(),
        sizes in proptest::collection::vec(1usize..9, 1..4),
        family in prop_oneof![Just("qwen3"), Just("hermes"), Just("llama-3"), Just("mistral")],
    ) {
        let recipe = Recipe::family(family).unwrap();
        let text = parts.concat();
        let said = read(&recipe, Options::default(), text.as_bytes(), &sizes);
        let told: String = said
            .iter()
            .map(|said| match said {
                Said::Reasoning(text) | Said::Content(text) => format!("{text}\0"),
                Said::Call(name, Value::String(cut)) => format!("{name}\0{cut}\0"),
                Said::Call(name, arguments) => format!("{name}\0{arguments}\0"),
            })
            .collect();
        prop_assert_eq!(words(&told), words(&text), "{}", text);
    }

    /// Whatever comes, cut however: the same is said.
    #[test]
    fn any_bytes_in_any_pieces_say_the_same(
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
            // Nothing is taken out but calls.
            let calls = whole.iter().any(|said| matches!(said, Said::Call(..)));
            if !calls && !error {
                let said: String = whole
                    .iter()
                    .map(|said| match said {
                        Said::Content(text) => text.as_str(),
                        _ => unreachable!("reasoning is content"),
                    })
                    .collect();
                let text = String::from_utf8_lossy(&text);
                prop_assert_eq!(said.trim(), text.trim());
            }
        }
    }
}
