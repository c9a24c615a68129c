//! Finds thoughts and signatures in a request that passes through.

use super::super::address::Method;
use super::super::names;
use crate::dialects::opaque_outline::{
    Member, OpaqueKind, OpaqueOutline, OpaquePart, RemovablePart, Room, Signature, members, spans,
    wholes,
};
use crate::json::{JsonError, Kind, Span, slice, text};

/// Replaces a message of which nothing may be sent.
const FILLER: &str = r#"{"text":"[reasoning omitted]"}"#;

/// Reads a request to this model.
pub(super) fn read(body: &[u8], model: &str, method: Method) -> Result<OpaqueOutline, JsonError> {
    let mut outline = OpaqueOutline::of(body);
    outline.model_in_path = Some(model.to_owned());
    outline.stream = method == Method::Stream;
    let mut top = members(body, 0)?;
    if let Some((_, inner)) = find(&top, "generateContentRequest")
        && inner.kind == Kind::Object
    {
        top = members(body, inner.value.start)?;
        // In a count request, the body names the model too.
        if let Some((_, model)) = find(&top, "model")
            && model.kind == Kind::String
        {
            outline.model_prefix =
                if text(body, &model.value).starts_with("models/") { "models/" } else { "" };
            outline.model = Some(model.value.clone());
        }
    }
    let Some((_, contents)) = find(&top, "contents") else {
        return Ok(outline);
    };
    for (at, (kind, content)) in one_or_many(body, contents)?.into_iter().enumerate() {
        if kind == Kind::Object {
            read_content(body, &content, at, &mut outline)?;
        }
    }
    Ok(outline.finish(body))
}

fn find<'m, 'a>(members: &'m [Member<'a>], name: &str) -> Option<(usize, &'m Member<'a>)> {
    members
        .iter()
        .enumerate()
        .find(|(_, member)| names::is(&member.key, name) && member.kind != Kind::Null)
}

/// The elements of a list, or the single value in its place.
fn one_or_many(body: &[u8], member: &Member<'_>) -> Result<Vec<(Kind, Span)>, JsonError> {
    if member.kind == Kind::Object {
        return Ok(vec![(Kind::Object, member.value.clone())]);
    }
    member.elements(body)
}

/// Reads the parts of a message.
fn read_content(
    body: &[u8],
    content: &Span,
    at: usize,
    outline: &mut OpaqueOutline,
) -> Result<(), JsonError> {
    let content = members(body, content.start)?;
    let Some((_, parts)) = find(&content, "parts") else {
        return Ok(());
    };
    let parts = one_or_many(body, parts)?;
    let by_model = find(&content, "role")
        .is_some_and(|(_, role)| role.kind == Kind::String && text(body, &role.value) == "model");
    if !by_model {
        for (kind, part) in &parts {
            if *kind == Kind::Object
                && find(&members(body, part.start)?, "functionResponse").is_none()
            {
                outline.turn = at + 1;
            }
        }
        return Ok(());
    }
    outline.add_assistant(at);
    let list = outline.add_container(spans(&parts), None, Some(FILLER));
    let (mut open, mut called) = (None, false);
    for (index, (kind, span)) in parts.into_iter().enumerate() {
        if kind != Kind::Object {
            continue;
        }
        let part = PartOf {
            members: members(body, span.start)?,
            span,
            at: (at, index),
            part: RemovablePart::new(list, index),
        };
        if part.thinks(body) {
            open = part.thought(open, outline);
        } else if part.says_nothing() {
            continue;
        } else {
            open = None;
            if let Some((_, call)) = find(&part.members, "functionCall")
                && call.kind == Kind::Object
            {
                let call = members(body, call.value.start)?;
                outline.add_call_id(find(&call, "id").map(|(_, id)| id));
            }
            part.signed(&mut called, outline);
        }
    }
    Ok(())
}

struct PartOf<'a> {
    members: Vec<Member<'a>>,
    span: Span,
    at: (usize, usize),
    part: RemovablePart,
}

impl PartOf<'_> {
    fn thinks(&self, body: &[u8]) -> bool {
        find(&self.members, "thought").is_some_and(|(_, flag)| slice(body, &flag.value) == b"true")
    }

    fn signature(&self) -> Option<(usize, &Member<'_>)> {
        find(&self.members, "thoughtSignature").filter(|(_, signature)| signature.is_text())
    }

    /// Whether the part is an empty text.
    fn says_nothing(&self) -> bool {
        let text = find(&self.members, "text");
        text.is_some_and(|(_, text)| !text.is_text()) && self.signature().is_none()
    }

    /// Records a thought, which may continue the open one. Returns the open thought.
    fn thought(&self, open: Option<usize>, outline: &mut OpaqueOutline) -> Option<usize> {
        let text = find(&self.members, "text").filter(|(_, text)| text.is_text());
        let text = text.map(|(_, text)| text.value.clone());
        let signature = self.signature();
        if text.is_none() && signature.is_none() {
            return open;
        }
        let signature = signature.map(|(at, member)| Signature {
            value: member.value.clone(),
            part: RemovablePart::new(
                outline.add_container(wholes(&self.members), Some(self.part), None),
                at,
            ),
        });
        let ended = signature.is_some();
        let opaque = match open {
            Some(opaque) => opaque,
            None => {
                outline.parts.push(OpaquePart::new(self.at, OpaqueKind::Thinking));
                outline.parts.len() - 1
            }
        };
        outline.parts[opaque].texts.extend(text);
        outline.parts[opaque].whole.push(self.part);
        outline.parts[opaque].signature = signature;
        (!ended).then_some(opaque)
    }

    /// Records a call, a text or another part that may have a signature.
    fn signed(&self, called: &mut bool, outline: &mut OpaqueOutline) {
        let call = find(&self.members, "functionCall").is_some();
        let first = call && !std::mem::replace(called, *called || call);
        let signature = self.signature();
        if signature.is_none() && !first {
            return;
        }
        let signature = signature.map(|(at, member)| Signature {
            value: member.value.clone(),
            part: RemovablePart::new(
                outline.add_container(wholes(&self.members), Some(self.part), None),
                at,
            ),
        });
        let kind = if call { OpaqueKind::Call } else { OpaqueKind::Text };
        outline.parts.push(OpaquePart {
            signature,
            room: first.then(|| Room {
                object: self.span.clone(),
                key: "thoughtSignature",
                around: ("", ""),
            }),
            ..OpaquePart::new(self.at, kind)
        });
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::Block;

    use super::*;
    use crate::dialects::opaque_outline::OpaqueEdit::{Keep, Remove, Sign};

    const BODY: &str = r#"{"contents":[{"role":"user","parts":[{"text":"hi"}]},
{"role":"model","parts":[{"functionCall":{"name":"a","args":{}}}]},
{"role":"user","parts":[{"functionResponse":{"name":"a","response":{}}},{"text":"go on"}]},
{"role":"model","parts":[{"thought":true,"text":"one "},{"text":"","thought":true},{"text":""},{"thought":true,"text":"two","thoughtSignature":"t"},{"text":"said","thought_signature":"x"},
 {"functionCall":{"name":"b","args":{}},"thoughtSignature":"c"},{"functionCall":{"name":"b","args":{}}}]},
{"role":"user","parts":{"functionResponse":{"name":"b","response":{}}}},
{"role":"model","parts":[{"functionCall":{"name":"d","args":{"k":1.0}}},{"functionCall":{"name":"d","args":{}}}]}],"generationConfig":{"topK":1.0}}"#;

    fn outline() -> OpaqueOutline {
        read(BODY.as_bytes(), "g", Method::Stream).unwrap()
    }

    #[test]
    fn outline_finds_thoughts_and_signatures() {
        let outline = outline();
        assert!(outline.stream && outline.has_assistant && outline.model_in_path.is_some());
        assert_eq!(outline.turn, 3);
        let found: Vec<_> = outline
            .parts
            .iter()
            .map(|opaque| {
                (opaque.at, opaque.kind, opaque.room.is_some(), opaque.block(BODY.as_bytes()))
            })
            .collect();
        let block = |text: &str, signature: Option<&str>| Block::Thinking {
            text: text.to_owned(),
            signature: signature.map(str::to_owned),
        };
        assert_eq!(
            found,
            [
                ((3, 0), OpaqueKind::Thinking, false, block("one two", Some("t"))),
                ((3, 4), OpaqueKind::Text, false, block("", Some("x"))),
                ((3, 5), OpaqueKind::Call, true, block("", Some("c"))),
                ((5, 0), OpaqueKind::Call, true, block("", None)),
            ]
        );
    }

    #[test]
    fn rewrite_keeps_all_other_bytes() {
        let rewritten = |changes: &[_]| {
            let (body, filled) = outline().rewrite(BODY.as_bytes(), Some("other"), changes);
            assert_eq!(filled, 0);
            body.map_or(BODY.to_owned(), |body| String::from_utf8(body).unwrap())
        };
        assert_eq!(rewritten(&[Keep, Keep, Keep, Keep]), BODY);
        assert_eq!(
            rewritten(&[Keep, Remove, Sign("n".into()), Sign("skip".into())]),
            BODY.replace(",\"thought_signature\":\"x\"", "")
                .replace("\"c\"", "\"n\"")
                .replace("{\"k\":1.0}}}", "{\"k\":1.0}},\"thoughtSignature\":\"skip\"}")
        );
        let without = rewritten(&[Remove, Keep, Keep, Keep]);
        assert!(!without.contains("one ") && !without.contains("\"t\""));
        serde_json::from_str::<serde_json::Value>(&without).unwrap();
    }

    #[test]
    fn message_of_thoughts_only_gets_a_placeholder() {
        let body = br#"{"contents":{"role":"model","parts":[ {"thought":true,"text":"a"} ]}}"#;
        let outline = read(body, "g", Method::Generate).unwrap();
        let (edited, filled) = outline.rewrite(body, None, &[Remove]);
        assert_eq!(filled, 1);
        assert_eq!(
            String::from_utf8(edited.unwrap()).unwrap(),
            format!(r#"{{"contents":{{"role":"model","parts":[ {FILLER} ]}}}}"#)
        );
    }

    #[test]
    fn part_with_only_a_signature_is_removed_with_it() {
        let body =
            br#"{"contents":[{"role":"model","parts":[{"text":"a"},{"thoughtSignature":"s"}]}]}"#;
        let outline = read(body, "g", Method::Generate).unwrap();
        let (edited, _) = outline.rewrite(body, None, &[Remove]);
        assert_eq!(
            String::from_utf8(edited.unwrap()).unwrap(),
            r#"{"contents":[{"role":"model","parts":[{"text":"a"}]}]}"#
        );
    }

    #[test]
    fn count_request_names_its_model_in_the_body_too() {
        let body = br#"{"generateContentRequest":{"model":"models/g","contents":[]}}"#;
        let outline = read(body, "g", Method::Count).unwrap();
        let (edited, _) = outline.rewrite(body, Some("h"), &[]);
        assert_eq!(
            String::from_utf8(edited.unwrap()).unwrap(),
            r#"{"generateContentRequest":{"model":"models/h","contents":[]}}"#
        );
    }
}
