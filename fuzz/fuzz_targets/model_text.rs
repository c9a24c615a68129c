//! Reads a model's text with every recipe: every split gives the same events, and every cut ends in
//! one end.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use throughline_codec::text::{
    Event, FAMILIES, OnError, Options, Reader, ReasoningFormat, Recipe, Tools,
};
use throughline_fuzz::splits;

static TOOLS: LazyLock<Arc<Tools>> = LazyLock::new(|| {
    let tools = include_bytes!("../../corpus/text/tools/weather.json");
    Arc::new(Tools::read(tools).expect("the file is valid"))
});

// The first line of an input names the recipe: a family, or `tags/formats`. A `+` after it offers
// tools.
fuzz_target!(|input: &[u8]| {
    let line = input.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (name, text) = (String::from_utf8_lossy(&input[..line]), &input[line..]);
    let text = text.get(1..).unwrap_or_default();
    let sum =
        text.iter().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(*byte)));
    let offered = name.contains('+') || sum.is_multiple_of(5);
    let recipe = recipe(name.trim_end_matches('+'), sum);
    let options = Options {
        tools: offered.then(|| Arc::clone(&TOOLS)),
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
    let whole = read(Reader::new(&recipe, options.clone()), &[text]);
    let split = read(Reader::new(&recipe, options.clone()), &splits(text));
    assert_eq!(split, whole);
    let (cut, _) = text.split_at(text.len() / 2);
    read(Reader::new(&recipe, options), &splits(cut));
});

/// The recipe of this name, or else a family chosen by `sum`.
fn recipe(name: &str, sum: usize) -> Recipe {
    if let Some((tags, formats)) = name.split_once('/') {
        let formats: Vec<&str> = formats.split(',').filter(|name| !name.is_empty()).collect();
        let tags = Some(tags).filter(|tags| !tags.is_empty());
        if let Ok(recipe) = Recipe::named(tags, &formats) {
            return recipe;
        }
    }
    let other = FAMILIES[sum % FAMILIES.len()].name;
    Recipe::family(name).or_else(|_| Recipe::family(other)).unwrap_or_default()
}

/// Returns the events as text, with neighbouring deltas joined. Checks that only the last one is an
/// end, and that each call ends before the next one begins.
fn read(mut reader: Reader, pieces: &[&[u8]]) -> Vec<(String, String)> {
    let mut events: Vec<(String, String)> = Vec::new();
    let (mut open, mut started) = (None, 0);
    let mut keep = |event: Event<'_>| {
        assert!(events.last().is_none_or(|(kind, _)| kind != "ended"));
        let (kind, text) = match event {
            Event::Reasoning(text) => ("reasoning", text.to_owned()),
            Event::Content(text) => ("content", text.to_owned()),
            Event::CallStarted { index, id, name } => {
                assert_eq!(index, started);
                started += 1;
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
