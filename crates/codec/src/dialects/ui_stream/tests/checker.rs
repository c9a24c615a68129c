//! The checks of clients of versions 5, 6 and 7, and the message that they build: known kinds of chunks
//! with known members and no null; deltas and ends only of open parts; no open part at the end of a step.

use serde_json::{Value, json};

/// The members of a chunk: those it must have, all strings, and those it may have.
fn members(kind: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match kind {
        "start" => (&["messageId"], &["messageMetadata"]),
        "start-step" | "finish-step" => (&[], &[]),
        "text-start" | "reasoning-start" => (&["id"], &[]),
        "text-delta" | "reasoning-delta" => (&["id", "delta"], &[]),
        "text-end" | "reasoning-end" => (&["id"], &["providerMetadata"]),
        "tool-input-start" => (&["toolCallId", "toolName"], &["dynamic"]),
        "tool-input-delta" => (&["toolCallId", "inputTextDelta"], &[]),
        "tool-input-available" => {
            (&["toolCallId", "toolName"], &["input", "dynamic", "providerMetadata"])
        }
        "tool-input-error" => {
            (&["toolCallId", "toolName", "errorText"], &["input", "dynamic", "providerMetadata"])
        }
        "error" => (&["errorText"], &[]),
        "finish" => (&["finishReason"], &["messageMetadata"]),
        other => panic!("a chunk of type {other}"),
    }
}

const REASONS: [&str; 6] = ["stop", "length", "content-filter", "tool-calls", "error", "other"];

/// The state of a client at the end.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Built {
    /// The parts of the message.
    pub(super) parts: Vec<Value>,
    /// The text of the error.
    pub(super) error: Option<String>,
    pub(super) reason: String,
    pub(super) metadata: Value,
}

/// Builds the message of these chunks. Panics where a client would fail.
pub(super) fn build(chunks: &[Value]) -> Built {
    let mut built = Built::default();
    let mut open: Vec<(String, String, usize)> = Vec::new();
    let mut stepping = false;
    for (at, chunk) in chunks.iter().enumerate() {
        let kind = chunk["type"].as_str().unwrap();
        check_members(kind, chunk);
        assert_eq!(at == 0, kind == "start", "{chunks:?}");
        assert_eq!(at == 1, kind == "start-step", "{chunks:?}");
        assert_eq!(at + 2 == chunks.len(), kind == "finish-step", "{chunks:?}");
        assert_eq!(at + 1 == chunks.len(), kind == "finish", "{chunks:?}");
        match kind {
            "start" => built.metadata = chunk["messageMetadata"].clone(),
            "start-step" => {
                stepping = true;
                built.parts.push(json!({"type": "step-start"}));
            }
            "finish-step" => {
                assert!(open.is_empty(), "open at the end: {open:?}");
                stepping = false;
            }
            "finish" => {
                chunk["finishReason"].as_str().unwrap().clone_into(&mut built.reason);
                assert!(REASONS.contains(&built.reason.as_str()), "{chunk}");
                for (name, value) in chunk["messageMetadata"].as_object().into_iter().flatten() {
                    built.metadata[name] = value.clone();
                }
            }
            "error" => {
                let text = chunk["errorText"].as_str().unwrap().to_owned();
                assert_eq!(built.error.replace(text), None, "two errors");
            }
            _ => {
                assert!(stepping, "outside of a step: {chunk}");
                assert_eq!(built.error, None, "behind an error: {chunk}");
                grow(kind, chunk, &mut built.parts, &mut open);
            }
        }
    }
    built
}

fn check_members(kind: &str, chunk: &Value) {
    let (must, may) = members(kind);
    for name in must {
        assert!(chunk[*name].is_string(), "{name} of {chunk}");
    }
    for (name, value) in chunk.as_object().unwrap() {
        let known = name == "type" || must.contains(&name.as_str()) || may.contains(&name.as_str());
        assert!(known, "{name} in {chunk}");
        assert!(!value.is_null() || name == "input", "null in {chunk}");
    }
    if let Some(dynamic) = chunk.get("dynamic") {
        assert_eq!(*dynamic, true);
    }
    if kind == "tool-input-available" {
        assert!(chunk.get("input").is_some(), "{chunk}");
    }
    for (_, marks) in chunk["providerMetadata"].as_object().into_iter().flatten() {
        assert!(marks.is_object(), "{chunk}");
    }
}

fn grow(
    kind: &str,
    chunk: &Value,
    parts: &mut Vec<Value>,
    open: &mut Vec<(String, String, usize)>,
) {
    if let Some(step) = kind.strip_prefix("tool-input-") {
        return grow_call(step, chunk, parts);
    }
    let (map, step) = kind.split_once('-').unwrap();
    let id = chunk["id"].as_str().unwrap();
    let found = open.iter().position(|(of, open, _)| of == map && open == id);
    match step {
        "start" => {
            assert_eq!(found, None, "begun twice: {chunk}");
            open.push((map.to_owned(), id.to_owned(), parts.len()));
            parts.push(json!({"type": map, "text": "", "state": "streaming"}));
        }
        "delta" => {
            let part = &mut parts[open[found.unwrap()].2];
            let text = part["text"].as_str().unwrap();
            let more = chunk["delta"].as_str().unwrap();
            assert!(!more.is_empty(), "{chunk}");
            part["text"] = format!("{text}{more}").into();
        }
        _ => {
            let (_, _, place) = open.remove(found.unwrap());
            parts[place]["state"] = "done".into();
            if let Some(metadata) = chunk.get("providerMetadata") {
                parts[place]["providerMetadata"] = metadata.clone();
            }
        }
    }
}

/// Finds the last call with this id.
fn grow_call(step: &str, chunk: &Value, parts: &mut Vec<Value>) {
    let id = &chunk["toolCallId"];
    let found = parts.iter_mut().rfind(|part| part["toolCallId"] == *id);
    if step == "start" {
        let mut part = json!({"toolCallId": id, "state": "input-streaming"});
        let name = chunk["toolName"].as_str().unwrap();
        if chunk.get("dynamic").is_some() {
            part["type"] = "dynamic-tool".into();
            part["toolName"] = name.into();
        } else {
            part["type"] = format!("tool-{name}").into();
        }
        return parts.push(part);
    }
    let part = found.unwrap_or_else(|| panic!("not begun: {chunk}"));
    assert_eq!(part["state"], "input-streaming", "{chunk}");
    match step {
        "delta" => {}
        "available" => {
            part["state"] = "input-available".into();
            part["input"] = chunk["input"].clone();
        }
        _ => {
            part["state"] = "output-error".into();
            part["rawInput"] = chunk["input"].clone();
            part["errorText"] = chunk["errorText"].clone();
        }
    }
    if let Some(metadata) = chunk.get("providerMetadata") {
        part["callProviderMetadata"] = metadata.clone();
    }
}
