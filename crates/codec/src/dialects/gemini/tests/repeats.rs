//! Calls that are told twice, and calls that are two.

use serde_json::json;
use throughline_canonical::Block;

use super::*;

/// The calls of a reply in these pieces, each a list of parts: arguments and signature.
fn calls(pieces: &[Value]) -> Vec<(String, Option<String>)> {
    let pieces: Vec<Value> = pieces
        .iter()
        .map(|parts| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]}))
        .chain([json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]})])
        .collect();
    let (lines, reply) = events(true, "", &[stream(&pieces).as_bytes()]);
    let count = |kind: &str| lines.iter().filter(|line| line.contains(kind)).count();
    assert_eq!(count("block_started"), count("block_ended"), "{lines:?}");
    let blocks = reply.content.into_iter();
    blocks
        .filter_map(|block| match block {
            Block::ToolCall { arguments, signature, .. } => Some((arguments, signature)),
            _ => None,
        })
        .collect()
}

fn call(id: &str, row: u64, signature: &str) -> Value {
    let mut part = json!({"functionCall": {"name": "lookup", "args": {"row": row, "of": "a"}}});
    if !id.is_empty() {
        part["functionCall"]["id"] = id.into();
    }
    if !signature.is_empty() {
        part["thoughtSignature"] = signature.into();
    }
    part
}

fn told(calls: &[(u64, Option<&str>)]) -> Vec<(String, Option<String>)> {
    let one = |(row, signature): &(u64, Option<&str>)| {
        let arguments = json!({"row": row, "of": "a"}).to_string();
        (arguments, signature.map(str::to_owned))
    };
    calls.iter().map(one).collect()
}

/// Covers: case 33
#[test]
fn a_call_that_is_told_again_is_one_and_keeps_its_signature() {
    let signed = Some("s");
    for (pieces, expected) in [
        // Either of the two has it.
        (vec![json!([call("", 1, "s")]), json!([call("", 1, "")])], told(&[(1, signed)])),
        (vec![json!([call("", 1, "")]), json!([call("", 1, "s")])], told(&[(1, signed)])),
        // An id says it, whatever stands between.
        (
            vec![json!([call("x", 1, "s")]), json!([{"text": "so"}]), json!([call("x", 1, "")])],
            told(&[(1, signed)]),
        ),
        (vec![json!([call("x", 1, ""), call("x", 1, "s")])], told(&[(1, signed)])),
        // Several at once, in their order; what follows them is new.
        (
            vec![
                json!([call("", 1, "s"), call("", 2, "")]),
                json!([call("", 1, ""), call("", 2, "t"), call("", 2, "")]),
            ],
            told(&[(1, signed), (2, Some("t")), (2, None)]),
        ),
        // The last of several.
        (
            vec![json!([call("", 1, "s"), call("", 2, "")]), json!([call("", 2, "t")])],
            told(&[(1, signed), (2, Some("t"))]),
        ),
        // Empty pieces say nothing.
        (
            vec![json!([call("", 1, "s")]), json!([{"text": ""}]), json!([call("", 1, "")])],
            told(&[(1, signed)]),
        ),
    ] {
        assert_eq!(calls(&pieces), expected, "{pieces:?}");
    }
    let spaced = r#"[{"functionCall":{"name":"lookup","args":{ "of":"a", "row":1 }}}]"#;
    let spaced: Value = serde_json::from_str(spaced).unwrap();
    assert_eq!(calls(&[json!([call("", 1, "s")]), spaced]).len(), 1);
}

/// Covers: case 33
#[test]
fn calls_that_are_alike_are_two_where_nothing_says_they_are_one() {
    for pieces in [
        // At once: of parallel calls only the first is signed.
        vec![json!([call("", 1, ""), call("", 1, "")])],
        vec![json!([call("", 1, "s"), call("", 1, "")])],
        // None signed, or both.
        vec![json!([call("", 1, "")]), json!([call("", 1, "")])],
        vec![json!([call("", 1, "s")]), json!([call("", 1, "t")])],
        // Something between.
        vec![json!([call("", 1, "s")]), json!([{"text": "and"}]), json!([call("", 1, "")])],
        vec![json!([call("", 1, "s")]), json!([{"text": "hm", "thought": true}, call("", 1, "")])],
        // Not the same.
        vec![json!([call("", 1, "s")]), json!([call("", 2, "")])],
        vec![json!([call("x", 1, "s")]), json!([call("y", 1, "")])],
        vec![json!([call("x", 1, "s")]), json!([call("", 1, "")])],
    ] {
        assert_eq!(calls(&pieces).len(), 2, "{pieces:?}");
    }
    // Neither the first nor the last of those before.
    let three = json!([call("", 1, "s"), call("", 2, ""), call("", 3, "")]);
    assert_eq!(calls(&[three, json!([call("", 2, "t")])]).len(), 4);
}
