//! Finds reasoning in a request that passes through.

use throughline_canonical::Role;

use super::super::client_request::items::role_of;
use crate::dialects::opaque_outline::{
    Member, OpaqueKind, OpaqueOutline, OpaquePart, RemovablePart, Signature, find, find_text,
    members, spans, wholes,
};
use crate::json::{JsonError, Kind, Span, text};

/// Replaces a conversation of which nothing may be sent.
const FILLER: &str = r#"{"type":"message","role":"assistant","content":"[reasoning omitted]"}"#;

/// Reads a request.
pub(super) fn read(body: &[u8]) -> Result<OpaqueOutline, JsonError> {
    let top = members(body, 0)?;
    let mut outline = OpaqueOutline::with_settings(body, &top);
    let Some((_, input)) = find(&top, "input").filter(|(_, input)| input.kind == Kind::Array)
    else {
        return Ok(outline);
    };
    let items = input.elements(body)?;
    let list = outline.add_container(spans(&items), None, Some(FILLER));
    let mut led = None;
    for (at, (kind, span)) in items.into_iter().enumerate() {
        if kind == Kind::Object {
            let part = RemovablePart::new(list, at);
            led = item(body, &span, (part, at), led, &mut outline)?;
        }
    }
    Ok(outline.finish(body))
}

/// Reads an item. `led` is the reasoning that led to it, if any. Returns the reasoning that leads
/// to the next item.
fn item(
    body: &[u8],
    span: &Span,
    (part, at): (RemovablePart, usize),
    led: Option<usize>,
    outline: &mut OpaqueOutline,
) -> Result<Option<usize>, JsonError> {
    let members = members(body, span.start)?;
    let word = |name: &str| find_text(&members, name).map(|(_, member)| text(body, &member.value));
    let role = word("role");
    match word("type").as_deref() {
        Some("reasoning") => {}
        Some("message") | None if role.as_deref() == Some("user") => {
            outline.turn = at + 1;
            return Ok(None);
        }
        kind => {
            if kind == Some("function_call") {
                outline.add_call_id(find(&members, "call_id").map(|(_, id)| id));
            }
            let by_assistant = role.as_deref() == Some("assistant")
                || kind.is_some_and(|kind| kind.ends_with("_call"));
            outline.has_assistant |= by_assistant;
            let known = kind.filter(|kind| *kind != "message");
            if by_assistant || known.is_some_and(|kind| role_of(kind) == Role::Assistant) {
                outline.assistant_messages.push(at);
            }
            let led = led.filter(|_| by_assistant);
            if let (Some(opaque), Some((id, _))) = (led, find_text(&members, "id")) {
                // The provider uses this id to demand the reasoning that led to the item.
                let holder = outline.add_container(wholes(&members), Some(part), None);
                outline.parts[opaque].whole.push(RemovablePart::new(holder, id));
            }
            return Ok(led);
        }
    }
    outline.add_assistant(at);
    let mut texts = Vec::new();
    for name in ["summary", "content"] {
        if let (true, Some((_, list))) = (texts.is_empty(), find(&members, name)) {
            texts = read_texts(body, list)?;
        }
    }
    let encrypted = find_text(&members, "encrypted_content");
    if texts.is_empty() && encrypted.is_none() {
        // It only refers to an item that the provider stores.
        return Ok(None);
    }
    let signature = encrypted.map(|(index, member)| Signature {
        value: member.value.clone(),
        part: RemovablePart::new(outline.add_container(wholes(&members), Some(part), None), index),
    });
    outline.parts.push(OpaquePart {
        texts,
        joint: "\n\n",
        signature,
        whole: vec![part],
        ..OpaquePart::new((at, 0), OpaqueKind::Thinking)
    });
    Ok(Some(outline.parts.len() - 1))
}

/// The texts of a list of parts; empty if they have none.
fn read_texts(body: &[u8], list: &Member<'_>) -> Result<Vec<Span>, JsonError> {
    let mut texts = Vec::new();
    for (kind, part) in list.elements(body)? {
        if kind == Kind::Object
            && let Some((_, text)) = find(&members(body, part.start)?, "text")
            && text.kind == Kind::String
        {
            texts.push(text.value.clone());
        }
    }
    if texts.len() == 1 && texts[0].len() == 2 {
        texts.clear();
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use throughline_canonical::Block;

    use super::*;
    use crate::dialects::opaque_outline::OpaqueEdit;

    const BODY: &str = r#" {"model" : "gpt-x","stream":true,"unknown":[1.50], "input":[{"role":"user","content":"hi"},
 {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"a\u0062"},{"type":"summary_text","text":"c"}],"encrypted_content":"one"} ,
 {"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"7"},
 {"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"raw"}]},{"type":"reasoning","id":"rs_3","summary":[]}]} "#;

    fn rewritten(model: Option<&str>, changes: &[OpaqueEdit]) -> String {
        let outline = read(BODY.as_bytes()).unwrap();
        let (body, filled) = outline.rewrite(BODY.as_bytes(), model, changes);
        assert_eq!(filled, 0);
        body.map_or(BODY.to_owned(), |body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn outline_finds_reasoning() {
        let outline = read(BODY.as_bytes()).unwrap();
        assert_eq!(&BODY[outline.model.clone().unwrap()], "\"gpt-x\"");
        assert!(outline.stream && outline.has_assistant);
        assert_eq!(outline.turn, 1);
        let blocks: Vec<_> = outline
            .parts
            .iter()
            .map(|opaque| (opaque.at.0, opaque.block(BODY.as_bytes())))
            .collect();
        let thinking = |text: &str, signature: Option<&str>| Block::Thinking {
            text: text.to_owned(),
            signature: signature.map(str::to_owned),
        };
        assert_eq!(blocks, [(1, thinking("ab\n\nc", Some("one"))), (4, thinking("raw", None))]);
    }

    #[test]
    fn rewrite_keeps_all_other_bytes() {
        use OpaqueEdit::{Keep, Remove, Sign, Unsign};
        assert_eq!(rewritten(None, &[Keep, Keep]), BODY);
        assert_eq!(rewritten(Some("o"), &[Keep, Keep]), BODY.replace("gpt-x", "o"));
        assert_eq!(
            rewritten(None, &[Sign("two\"".into()), Keep]),
            BODY.replace("\"one\"", "\"two\\\"\"")
        );
        assert_eq!(
            rewritten(None, &[Unsign, Keep]),
            BODY.replace(",\"encrypted_content\":\"one\"", "")
        );
        let without = rewritten(None, &[Remove, Remove]);
        assert!(!without.contains("rs_1") && !without.contains("raw"));
        assert!(without.contains("rs_3") && without.contains("[1.50]"));
        serde_json::from_str::<serde_json::Value>(&without).unwrap();
    }

    #[test]
    fn item_after_removed_reasoning_loses_its_id() {
        let body = r#"{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"x"},{"id":"msg_1","type":"message","role":"assistant","content":[]},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","id":"fo_1","call_id":"c","output":""},{"type":"function_call","id":"fc_2","call_id":"d","name":"f","arguments":"{}"}]}"#;
        let outline = read(body.as_bytes()).unwrap();
        let (edited, _) = outline.rewrite(body.as_bytes(), None, &[OpaqueEdit::Remove]);
        let edited = String::from_utf8(edited.unwrap()).unwrap();
        assert_eq!(
            edited,
            r#"{"input":[{"type":"message","role":"assistant","content":[]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","id":"fo_1","call_id":"c","output":""},{"type":"function_call","id":"fc_2","call_id":"d","name":"f","arguments":"{}"}]}"#
        );
    }

    #[test]
    fn conversation_of_reasoning_only_gets_a_placeholder() {
        let body = br#"{"input":[ {"type":"reasoning","summary":[],"encrypted_content":"x"} ]}"#;
        let outline = read(body).unwrap();
        let (edited, filled) = outline.rewrite(body, Some("m"), &[OpaqueEdit::Remove]);
        let edited = String::from_utf8(edited.unwrap()).unwrap();
        assert_eq!(filled, 1);
        assert_eq!(edited, format!("{{\"input\":[ {FILLER} ],\"model\":\"m\"}}"));
    }

    #[test]
    fn malformed_bodies_do_not_panic() {
        for body in [
            r#"{"input":"x"}"#,
            r#"{"input":[1,null,"a",{"type":5},{"type":"reasoning","summary":7,"content":{}}]}"#,
            r#"{"input":[{"type":"reasoning","summary":[1,{"text":2}],"encrypted_content":3}]}"#,
            "{}",
        ] {
            let outline = read(body.as_bytes()).unwrap();
            assert!(outline.parts.is_empty(), "{body}");
        }
    }
}
