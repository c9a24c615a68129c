//! The breakpoints for the prompt cache in a request that passes through, and how to remove them.

use super::shared::cache_control::{CACHE_CONTROL, PROMPT_CACHE_BREAKPOINT};
use crate::json::{Cursor, Edits, JsonError, Kind, Span, remove_elements, slice};

/// The lists whose parts can have breakpoints.
const LISTS: [&[u8]; 6] = [b"system", b"tools", b"messages", b"input", b"content", b"output"];
/// The one object inside a part that can have a breakpoint. The `input` of a call is data of the model.
const OBJECT: &[u8] = b"function";

/// Breakpoints are at most this deep. Everything below is data of the client.
const MAX_DEPTH: usize = 6;

/// The body without its breakpoints. `None` if there are none, or if the body is no object.
pub fn remove(body: &[u8]) -> Option<Vec<u8>> {
    let mut edits = Edits::default();
    let start = Cursor::new(body, usize::MAX).start();
    visit(body, start, MAX_DEPTH, &mut edits).ok()?;
    (!edits.is_empty()).then(|| edits.apply(body))
}

/// Removes the breakpoints of the object at `start` and of the parts in it.
fn visit(body: &[u8], start: usize, depth: usize, edits: &mut Edits) -> Result<(), JsonError> {
    let mut cursor = Cursor::at(body, start, usize::MAX);
    cursor.enter_object()?;
    let (mut members, mut keep, mut parts): (Vec<Span>, Vec<bool>, Vec<usize>) = Default::default();
    let mut first = true;
    while let Some(key) = cursor.key_span(&mut first)? {
        let name = slice(body, &key);
        let is_breakpoint = [CACHE_CONTROL, PROMPT_CACHE_BREAKPOINT]
            .iter()
            .any(|breakpoint| breakpoint.as_bytes() == name);
        let kind = cursor.peek()?;
        let value = cursor.skip()?;
        match kind {
            Kind::Object if depth > 0 && name == OBJECT => parts.push(value.start),
            Kind::Array if depth > 0 && LISTS.contains(&name) => {
                objects(body, value.start, &mut parts)?;
            }
            _ => {}
        }
        members.push(key.start - 1..value.end);
        keep.push(!is_breakpoint);
    }
    if keep.contains(&false) {
        remove_elements(edits, &members, &keep);
    }
    parts.into_iter().try_for_each(|part| visit(body, part, depth - 1, edits))
}

/// Where the objects of the array at `start` begin.
fn objects(body: &[u8], start: usize, found: &mut Vec<usize>) -> Result<(), JsonError> {
    let mut cursor = Cursor::at(body, start, usize::MAX);
    cursor.enter_array()?;
    let mut first = true;
    while cursor.element(&mut first)? {
        let kind = cursor.peek()?;
        let value = cursor.skip()?;
        found.extend((kind == Kind::Object).then_some(value.start));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(body: &str) -> Option<String> {
        remove(body.as_bytes()).map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn breakpoints_are_removed_and_everything_else_stays() {
        let body = r#"{"cache_control":{"type":"ephemeral"}, "system":[ {"type":"text","cache_control":{"ttl":"1h"},"text":"s"}],
            "tools":[{"name":"t","input_schema":{"cache_control":1} , "cache_control":{}},{"type":"function","function":{"name":"f","cache_control":{}}}],
            "messages":[{"content":[{"type":"tool_use","input":{"cache_control":{"a":1}},"cache_control":{}},
                {"type":"tool_result","content":[{"type":"text","text":"r","cache_control":{}}]}],"cache_control":null}, 7, "x"],
            "input":[{"output":[{"type":"input_text","text":"\"cache_control\":{}","prompt_cache_breakpoint":{"mode":"explicit"}}]}]}"#;
        let expected = r#"{"system":[ {"type":"text","text":"s"}],
            "tools":[{"name":"t","input_schema":{"cache_control":1}},{"type":"function","function":{"name":"f"}}],
            "messages":[{"content":[{"type":"tool_use","input":{"cache_control":{"a":1}}},
                {"type":"tool_result","content":[{"type":"text","text":"r"}]}]}, 7, "x"],
            "input":[{"output":[{"type":"input_text","text":"\"cache_control\":{}"}]}]}"#;
        assert_eq!(without(body).as_deref(), Some(expected));
    }

    #[test]
    fn body_without_breakpoints_is_not_copied() {
        for body in [r#"{"messages":[{"role":"user","content":"cache_control"}]}"#, "[]", "{", ""] {
            assert_eq!(without(body), None, "{body}");
        }
        let deep = format!("{}{}", r#"{"content":"#.repeat(100_000), "}".repeat(100_000));
        assert_eq!(without(&deep), None);
    }
}
