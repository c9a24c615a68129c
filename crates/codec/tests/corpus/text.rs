//! What models wrote, by family: the events, however the text arrives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use throughline_codec::text::{
    EndReason, Event, OnError, Options, Reader, ReasoningFormat, Recipe, Tools,
};

use super::folder::{Capture, Findings, captures};
use super::rules::Folder;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/text")
}

/// A text of a model and how it is to be read.
struct Case {
    name: String,
    capture: Capture,
    recipe: Recipe,
    options: Options,
}

/// The families that have texts.
pub(crate) fn families() -> Vec<String> {
    let mut families: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "tools")
        .collect();
    families.sort();
    families
}

/// The cases of all families.
fn cases() -> Vec<Case> {
    families()
        .into_iter()
        .flat_map(|folder| {
            captures(&format!("text/{folder}"), &["txt"])
                .into_iter()
                .map(move |capture| Case::new(&folder, capture))
        })
        .collect()
}

impl Case {
    /// Reads the capture's `about.toml`.
    fn new(folder: &str, capture: Capture) -> Self {
        let about = |key: &str| capture.about(key);
        let list = about("tool_format").unwrap_or_default();
        let formats: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
        let tags = about("reasoning");
        let parts = Recipe::named(tags.as_deref(), &formats).unwrap();
        let mut recipe = match about("family") {
            Some(family) => Recipe::family(&family).unwrap(),
            None => parts.clone(),
        };
        if tags.is_some() {
            recipe.reasoning = parts.reasoning;
        }
        if !formats.is_empty() {
            recipe.tools = parts.tools;
        }
        if let Some(implicit) = about("implicit") {
            recipe.implicit = implicit == "true";
        }
        let options = Options {
            tools: about("tools").map(|file| {
                let json = fs::read(root().join("tools").join(file)).unwrap();
                Arc::new(Tools::read(&json).unwrap())
            }),
            on_error: match about("on_error").as_deref() {
                Some("error") => OnError::Error,
                _ => OnError::Text,
            },
            reasoning_format: match about("reasoning_format").as_deref() {
                Some("raw") => ReasoningFormat::Raw,
                Some("none") => ReasoningFormat::None,
                _ => ReasoningFormat::Split,
            },
            ..Options::default()
        };
        Self { name: format!("{folder}/{}", capture.name), capture, recipe, options }
    }

    fn read<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Value> {
        events(Reader::new(&self.recipe, self.options.clone()), pieces)
    }
}

/// The events of a text in these pieces, neighbouring deltas joined; checks that they make sense.
fn events<'a>(mut reader: Reader, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let mut open = None;
    let mut out = |event: Event<'_>| {
        match event {
            Event::Reasoning(delta) | Event::Content(delta) => assert_ne!(delta, ""),
            Event::CallStarted { index, name, .. } => {
                assert_ne!(name, "");
                open = Some(index);
            }
            Event::CallArguments { index, delta } => {
                assert_ne!(delta, "");
                assert_eq!(open, Some(index));
            }
            Event::CallEnded { index } => assert_eq!(open.take(), Some(index)),
            Event::Fault { .. } | Event::Ended(_) => {}
        }
        let mut event = serde_json::to_value(event).unwrap();
        if let Some(message) = event.get_mut("message") {
            // What it says is for people; that it says something is for us.
            assert!(message.as_str().unwrap().len() > 20);
            *message = json!("*");
        }
        if let Some(before) = events.last_mut()
            && before["type"] == event["type"]
            && before["index"] == event["index"]
            && let Some(more) = event["delta"].as_str()
            && let Some(text) = before["delta"].as_str()
        {
            before["delta"] = json!(format!("{text}{more}"));
        } else {
            events.push(event);
        }
    };
    for piece in pieces {
        reader.push(piece, &mut out);
    }
    reader.finish(&mut out);
    let ends = events.iter().filter(|event| event["type"] == "end").count();
    assert_eq!(ends, 1);
    assert_eq!(events.last().unwrap()["type"], "end");
    events
}

fn lines(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

/// Compares the events of each text with its golden.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    for capture in captures(&folder.path, &["txt"]) {
        let case = Case::new(&folder.name, capture);
        let events = case.read([&case.capture.bytes[..]]);
        findings.golden(case.capture.beside("events.jsonl"), Some(&lines(&events)));
    }
}

/// Checks that the lists of tools can be read. Texts name them in their `about.toml`.
pub(crate) fn check_tools(folder: &Folder, findings: &mut Findings) {
    for capture in &folder.captures {
        if let Err(error) = Tools::read(&capture.bytes) {
            findings.fail(format!("{}/{}: {error:?}", folder.path, capture.name));
        }
    }
}

/// Covers: S3-15
#[test]
fn any_split_gives_the_same_events() {
    for case in cases() {
        let (name, bytes) = (&case.name, &case.capture.bytes[..]);
        let whole = lines(&case.read([bytes]));
        for cut in 0..=bytes.len() {
            let split = case.read([&bytes[..cut], &bytes[cut..]]);
            assert_eq!(lines(&split), whole, "{name}, cut at {cut}");
        }
        for size in 1..=16 {
            let pieces = case.read(bytes.chunks(size));
            assert_eq!(lines(&pieces), whole, "{name}, {size} bytes each");
        }
    }
}

///
#[test]
fn any_cut_ends_once_and_reports_open_calls() {
    for case in cases() {
        let whole = case.read([&case.capture.bytes[..]]);
        for cut in 0..case.capture.bytes.len() {
            let events = case.read([&case.capture.bytes[..cut]]);
            let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
            let reason = &events.last().unwrap()["reason"];
            if count("tool_call_start") > count("tool_call_end") {
                let expected = [json!(EndReason::UnclosedToolCall), json!(EndReason::Error)];
                assert!(expected.contains(reason), "{}, cut at {cut}: {reason}", case.name);
            }
            for (index, arguments) in complete_calls(&events) {
                let same = complete_calls(&whole).get(&index).is_none_or(|all| *all == arguments);
                assert!(same, "{}, cut at {cut}: {arguments} is complete", case.name);
            }
        }
    }
}

/// The arguments of the calls that are reported as complete.
fn complete_calls(events: &[Value]) -> BTreeMap<u64, String> {
    let ended = |index: &Value| {
        events.iter().any(|event| event["type"] == "tool_call_end" && event["index"] == *index)
    };
    let arguments = events.iter().filter(|event| event["type"] == "tool_call_args");
    arguments
        .filter(|event| ended(&event["index"]))
        .map(|event| {
            (event["index"].as_u64().unwrap(), event["delta"].as_str().unwrap().to_owned())
        })
        .collect()
}
