//! The parts of a captured reply, as a later request sends them back.

use crate::dialects::native_turn::NativeForm;
use crate::json::{JsonError, Kind, Span, each_element, each_member, find_member, slice};

/// The parts of this dialect.
pub(super) struct Parts;

/// The members of a part whose block has all of it.
const TEXT_MEMBERS: &[&[u8]] = &[b"text", b"thought", b"thoughtSignature"];
/// The same for a call, and for what is inside it.
const CALL_MEMBERS: &[&[u8]] = &[b"functionCall", b"thoughtSignature"];
const FUNCTION_MEMBERS: &[&[u8]] = &[b"id", b"name", b"args"];

impl NativeForm for Parts {
    fn parts(&self, payload: &str) -> Option<Vec<String>> {
        let json = payload.as_bytes();
        let mut chunks = Vec::new();
        if let Some(stream) = find_member(json, 0, b"stream", Kind::Array).ok()? {
            each_element(json, stream.start, |kind, chunk| chunks.push((kind, chunk))).ok()?;
        }
        if chunks.is_empty() {
            // A whole reply.
            let response = find_member(json, 0, b"response", Kind::Object).ok()?;
            chunks.extend(response.map(|chunk| (Kind::Object, chunk)));
        }
        let mut parts = Vec::new();
        for (_, chunk) in chunks.into_iter().filter(|(kind, _)| *kind == Kind::Object) {
            parts_of(json, &chunk, &mut parts).ok()?;
        }
        Some(parts.into_iter().map(|part| payload[part].to_owned()).collect())
    }

    fn reply_of(&self, part: &str) -> String {
        format!(r#"{{"candidates":[{{"content":{{"parts":[{part}]}},"finishReason":"STOP"}}]}}"#)
    }

    /// A part without a canonical type is its block.
    fn is_plain(&self, part: &str) -> bool {
        let json = part.as_bytes();
        let call = find_member(json, 0, b"functionCall", Kind::Object).ok().flatten();
        match call {
            Some(call) => {
                has_only(json, 0, CALL_MEMBERS)
                    && has_only(json, call.start, FUNCTION_MEMBERS)
                    && self.names_call(part)
            }
            None if has_member(json, b"text") => has_only(json, 0, TEXT_MEMBERS),
            None => !has_only(json, 0, TEXT_MEMBERS),
        }
    }

    fn names_call(&self, part: &str) -> bool {
        has_call_id(part)
    }
}

/// Whether a part is no call, or a call with an id.
pub(super) fn has_call_id(part: &str) -> bool {
    let json = part.as_bytes();
    let call = [&b"functionCall"[..], b"function_call"]
        .into_iter()
        .find_map(|name| find_member(json, 0, name, Kind::Object).ok().flatten());
    call.is_none_or(|call| {
        find_member(json, call.start, b"id", Kind::String).is_ok_and(|id| id.is_some())
    })
}

/// The parts of the first candidate of a chunk. A call that arrives in several parts has no form of its
/// own in a request.
fn parts_of(json: &[u8], chunk: &Span, parts: &mut Vec<Span>) -> Result<(), JsonError> {
    let Some(candidates) = find_member(json, chunk.start, b"candidates", Kind::Array)? else {
        return Ok(());
    };
    let mut first = None;
    each_element(json, candidates.start, |kind, candidate| {
        if kind == Kind::Object && first.is_none() {
            first = Some(candidate);
        }
    })?;
    let Some(candidate) = first else { return Ok(()) };
    let Some(content) = find_member(json, candidate.start, b"content", Kind::Object)? else {
        return Ok(());
    };
    let Some(list) = find_member(json, content.start, b"parts", Kind::Array)? else {
        return Ok(());
    };
    let mut found = Vec::new();
    each_element(json, list.start, |kind, part| {
        if kind == Kind::Object {
            found.push(part);
        }
    })?;
    for part in found {
        if !is_thought(json, &part)? && !is_piece(json, &part)? {
            parts.push(part);
        }
    }
    Ok(())
}

fn is_thought(json: &[u8], part: &Span) -> Result<bool, JsonError> {
    let thought = find_member(json, part.start, b"thought", Kind::Bool)?;
    Ok(thought.is_some_and(|span| slice(json, &span) == b"true"))
}

/// Whether a part is a piece of a call.
fn is_piece(json: &[u8], part: &Span) -> Result<bool, JsonError> {
    let Some(call) = find_member(json, part.start, b"functionCall", Kind::Object)? else {
        return Ok(false);
    };
    let mut is_piece = false;
    each_member(json, call.start, |key, _, _| {
        is_piece |= matches!(key, b"partialArgs" | b"willContinue");
    })?;
    Ok(is_piece)
}

fn has_member(json: &[u8], name: &[u8]) -> bool {
    let mut found = false;
    each_member(json, 0, |key, _, _| found |= key == name).is_ok() && found
}

/// Whether an object has no other members than these.
fn has_only(json: &[u8], at: usize, names: &[&[u8]]) -> bool {
    let mut only = true;
    each_member(json, at, |key, _, _| only &= names.contains(&key)).is_ok() && only
}
