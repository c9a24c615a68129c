//! A model's text: for any bytes and any recipe, any split gives the same events, and any cut one
//! end.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use throughline_codec::text::{
    Event, OnError, Options, Reader, ReasoningFormat, Recipe, TAG_SETS, TOOL_FORMATS,
};
use throughline_fuzz::splits;

/// All formats at once where that can be, so that a seed meets its own; and those that take the
/// whole text for themselves, one by one.
static RECIPES: LazyLock<Vec<Recipe>> = LazyLock::new(|| {
    let alone = ["gpt_oss", "beam", "inkling", "muse_glimmer", "muse_spark"];
    let mut recipes: Vec<Recipe> = TAG_SETS
        .iter()
        .filter(|tags| !alone.contains(&tags.name))
        .map(|tags| Recipe {
            reasoning: Some(tags),
            tools: TOOL_FORMATS
                .iter()
                .filter(|format| !alone.contains(&format.name))
                .collect(),
            implicit: tags.name.len() % 2 == 0,
            call_ends_reasoning: tags.name.len() % 3 == 0,
        })
        .collect();
    recipes.extend(alone.map(|name| Recipe::named(Some(name), &[name]).expect("it is known")));
    recipes
});

fuzz_target!(|input: &[u8]| {
    // One of them for each input, by its bytes, so that a run stays short.
    let sum = input.iter().fold(0usize, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(usize::from(*byte))
    });
    let recipe = &RECIPES[sum % RECIPES.len()];
    let options = Options {
        on_error: match sum % 3 {
            0 => OnError::Error,
            _ => OnError::Text,
        },
        reasoning_format: match sum % 7 {
            0 => ReasoningFormat::Raw,
            1 => ReasoningFormat::None,
            _ => ReasoningFormat::Split,
        },
        ..Options::default()
    };
    let whole = read(Reader::new(recipe, options.clone()), &[input]);
    let split = read(Reader::new(recipe, options.clone()), &splits(input));
    assert_eq!(split, whole);
    let (cut, _) = input.split_at(input.len() / 2);
    read(Reader::new(recipe, options), &splits(cut));
});

/// The events as text, neighbouring deltas joined, once it is known that exactly the last of them
/// is an end and that calls begin and end in turn.
fn read(mut reader: Reader, pieces: &[&[u8]]) -> Vec<(String, String)> {
    let mut events: Vec<(String, String)> = Vec::new();
    let (mut open, mut begun) = (None, 0);
    let mut keep = |event: Event<'_>| {
        assert!(events.last().is_none_or(|(kind, _)| kind != "ended"));
        let (kind, text) = match event {
            Event::Reasoning(text) => ("reasoning", text.to_owned()),
            Event::Content(text) => ("content", text.to_owned()),
            Event::CallStarted { index, id, name } => {
                assert_eq!(index, begun);
                begun += 1;
                open = Some(index);
                ("started", format!("{id} {name}"))
            }
            Event::CallArguments { index, delta } => {
                assert_eq!(open, Some(index));
                ("arguments", delta.to_owned())
            }
            Event::CallEnded { index } => {
                assert_eq!(open.take(), Some(index));
                ("call ended", String::new())
            }
            Event::Fault { message } => ("fault", message.to_owned()),
            Event::Ended(reason) => ("ended", format!("{reason:?}")),
        };
        match events.last_mut() {
            Some((last, joined))
                if last == kind && matches!(kind, "reasoning" | "content" | "arguments") =>
            {
                assert!(!text.is_empty());
                joined.push_str(&text);
            }
            _ => events.push((kind.to_owned(), text)),
        }
    };
    for piece in pieces {
        reader.push(piece, &mut keep);
    }
    reader.finish(&mut keep);
    assert!(events.last().is_some_and(|(kind, _)| kind == "ended"));
    events
}
