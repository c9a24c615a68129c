//! Finds reasoning and signatures in a request that passes through.
//!
//! Several members of a message may repeat the same reasoning. As in the full reader, the most
//! detailed one counts, and the others share its fate.

use std::borrow::Cow;

use crate::dialects::opaque_outline::{
    Bare, Member, OpaqueKind, OpaqueOutline, OpaquePart, RemovablePart, Room, Signature, find,
    find_text, members, spans, wholes,
};
use crate::json::{JsonError, Kind, Span, number, text};

/// Replaces content of which nothing may be sent.
const FILLER: &str = r#"{"type":"text","text":"[reasoning omitted]"}"#;

/// Paths to the signature of a call.
const CALL_SIGNATURES: [&[&str]; 3] = [
    &["extra_content", "google", "thought_signature"],
    &["extra_content", "vertex", "thought_signature"],
    &["provider_specific_fields", "thought_signature"],
];

/// Reads a request.
pub(super) fn read(body: &[u8]) -> Result<OpaqueOutline, JsonError> {
    let top = members(body, 0)?;
    let mut outline = OpaqueOutline::with_settings(body, &top);
    let Some((_, messages)) = find(&top, "messages") else {
        return Ok(outline);
    };
    for (at, (kind, span)) in messages.elements(body)?.into_iter().enumerate() {
        if kind != Kind::Object {
            continue;
        }
        let message = members(body, span.start)?;
        let role = find_text(&message, "role").map(|(_, role)| text(body, &role.value));
        match role.as_deref() {
            Some("user") => outline.turn = at + 1,
            Some("assistant") => {
                outline.add_assistant(at);
                let holder = outline.add_container(wholes(&message), None, None);
                let mut reader =
                    MessageOutliner { body, at, message: &message, holder, outline: &mut outline };
                reader.reasoning()?;
                reader.content()?;
                reader.nothing_else(&span);
                reader.calls()?;
            }
            _ => {}
        }
    }
    Ok(outline.finish(body))
}

/// Reads one assistant message.
struct MessageOutliner<'r, 'a> {
    body: &'a [u8],
    at: usize,
    message: &'r [Member<'a>],
    holder: usize,
    outline: &'r mut OpaqueOutline,
}

impl MessageOutliner<'_, '_> {
    fn opaque(&mut self, index: usize, kind: OpaqueKind) -> &mut OpaquePart {
        self.outline.parts.push(OpaquePart::new((self.at, index), kind));
        let last = self.outline.parts.len() - 1;
        &mut self.outline.parts[last]
    }

    /// Finds the members that hold or repeat reasoning.
    fn reasoning(&mut self) -> Result<(), JsonError> {
        let first = self.outline.parts.len();
        for name in ["reasoning_details", "thinking_blocks"] {
            if let Some((at, list)) = find(self.message, name) {
                let part = RemovablePart::new(self.holder, at);
                if self.outline.parts.len() > first {
                    self.outline.parts[first].whole.push(part);
                } else if list.kind == Kind::Array {
                    self.details(list, part)?;
                } else {
                    self.plain(name);
                }
            }
        }
        for name in ["reasoning_content", "reasoning"] {
            if self.outline.parts.len() == first {
                self.plain(name);
            } else if let Some((at, _)) = find_text(self.message, name) {
                let part = RemovablePart::new(self.holder, at);
                self.outline.parts[first].whole.push(part);
            }
        }
        for opaque in &mut self.outline.parts[first..] {
            opaque.beside = true;
        }
        Ok(())
    }

    /// Records reasoning as plain text.
    fn plain(&mut self, name: &str) {
        if let Some((at, member)) = find_text(self.message, name) {
            let part = RemovablePart::new(self.holder, at);
            let opaque = self.opaque(0, OpaqueKind::Thinking);
            opaque.texts.push(member.value.clone());
            opaque.whole.push(part);
        }
    }

    /// Records reasoning in pieces. Pieces of a stream with the same kind and index are one.
    fn details(&mut self, list: &Member<'_>, part: RemovablePart) -> Result<(), JsonError> {
        let details = list.elements(self.body)?;
        let holder = self.outline.add_container(spans(&details), Some(part), None);
        let mut last = None;
        for (index, (kind, span)) in details.into_iter().enumerate() {
            if kind != Kind::Object {
                continue;
            }
            let detail = members(self.body, span.start)?;
            let word = find_text(&detail, "type").map(|(_, kind)| text(self.body, &kind.value));
            let (kind, content) = match word.as_deref() {
                Some("reasoning.text") => (OpaqueKind::Thinking, "text"),
                Some("thinking") => (OpaqueKind::Thinking, "thinking"),
                Some("reasoning.summary") => (OpaqueKind::Thinking, "summary"),
                Some("reasoning.encrypted" | "redacted_thinking") => (OpaqueKind::Redacted, "data"),
                _ => {
                    last = None;
                    continue;
                }
            };
            let here = RemovablePart::new(holder, index);
            let content = find_text(&detail, content);
            let signed = match kind {
                OpaqueKind::Redacted => content,
                _ => find_text(&detail, "signature"),
            };
            let signature = signed.map(|(at, member)| Signature {
                value: member.value.clone(),
                part: RemovablePart::new(
                    self.outline.add_container(wholes(&detail), Some(here), None),
                    at,
                ),
            });
            let content = content.filter(|_| kind != OpaqueKind::Redacted);
            if content.is_none() && signature.is_none() {
                continue;
            }
            let number =
                find(&detail, "index").and_then(|(_, index)| number(self.body, &index.value));
            let same = (word.map(Cow::into_owned), number);
            let goes_on = self.outline.parts.last_mut().filter(|opaque| {
                last.as_ref() == Some(&same) && (number.is_some() || opaque.signature.is_none())
            });
            let opaque = match goes_on {
                Some(opaque) => opaque,
                None => self.opaque(index, kind),
            };
            opaque.texts.extend(content.map(|(_, text)| text.value.clone()));
            opaque.whole.push(here);
            if opaque.signature.is_none() {
                opaque.signature = signature;
            }
            last = (kind == OpaqueKind::Thinking).then_some(same);
        }
        Ok(())
    }

    /// Records reasoning chunks of the content.
    fn content(&mut self) -> Result<(), JsonError> {
        let Some((at, content)) = find(self.message, "content") else {
            return Ok(());
        };
        let chunks = content.elements(self.body)?;
        let mut list = None;
        for (index, (kind, span)) in chunks.iter().enumerate() {
            if *kind != Kind::Object {
                continue;
            }
            let chunk = members(self.body, span.start)?;
            let thinks = find_text(&chunk, "type")
                .is_some_and(|(_, kind)| text(self.body, &kind.value) == "thinking");
            let Some((_, thinking)) = find(&chunk, "thinking").filter(|_| thinks) else {
                continue;
            };
            let mut texts = Vec::new();
            if thinking.kind == Kind::String {
                texts.push(thinking.value.clone());
            }
            for (kind, piece) in thinking.elements(self.body)? {
                if kind == Kind::Object
                    && let Some((_, text)) = find_text(&members(self.body, piece.start)?, "text")
                {
                    texts.push(text.value.clone());
                }
            }
            let within = RemovablePart::new(self.holder, at);
            let list = *list.get_or_insert_with(|| {
                self.outline.add_container(spans(&chunks), Some(within), Some(FILLER))
            });
            let here = RemovablePart::new(list, index);
            let signature = find_text(&chunk, "signature").map(|(at, member)| Signature {
                value: member.value.clone(),
                part: RemovablePart::new(
                    self.outline.add_container(wholes(&chunk), Some(here), None),
                    at,
                ),
            });
            let opaque = self.opaque(index, OpaqueKind::Thinking);
            opaque.texts = texts;
            opaque.whole.push(here);
            opaque.signature = signature;
        }
        Ok(())
    }

    /// Records a message that has nothing but reasoning.
    fn nothing_else(&mut self, object: &Span) {
        const CONTENT: [&str; 5] = ["tool_calls", "function_call", "refusal", "audio", "content"];
        let has_content = |name: &str| match find(self.message, name) {
            Some((_, member)) => member.kind != Kind::String || member.is_text(),
            None => false,
        };
        let last = self.outline.parts.last().map(|opaque| opaque.at.0);
        if last != Some(self.at) || CONTENT.into_iter().any(has_content) {
            return;
        }
        let mut members = self.message.iter();
        let content = members.find(|member| member.key == "content");
        self.outline.add_bare_message(Bare {
            object: object.clone(),
            content: content.map(|content| content.value.clone()),
            at: self.at,
        });
    }

    /// Records the signatures of calls.
    fn calls(&mut self) -> Result<(), JsonError> {
        let Some((at, list)) = find(self.message, "tool_calls") else {
            return Ok(());
        };
        let calls = list.elements(self.body)?;
        let mut holder = None;
        for (index, (kind, span)) in calls.iter().enumerate() {
            if *kind != Kind::Object {
                continue;
            }
            let within = RemovablePart::new(self.holder, at);
            let mut found = None;
            for path in CALL_SIGNATURES {
                if found.is_none() && reaches(self.body, span, path)? {
                    let list = *holder.get_or_insert_with(|| {
                        self.outline.add_container(spans(&calls), Some(within), None)
                    });
                    found = self.signature(span, path, RemovablePart::new(list, index))?;
                }
            }
            let call = members(self.body, span.start)?;
            self.outline.add_call_id(find(&call, "id").map(|(_, id)| id));
            let bare = find(&call, "extra_content").is_none();
            if found.is_none() && index > 0 {
                continue;
            }
            let opaque = self.opaque(index, OpaqueKind::Call);
            opaque.room = (index == 0 && (bare || found.is_some())).then(|| Room {
                object: span.clone(),
                key: "extra_content",
                around: ("{\"google\":{\"thought_signature\":", "}}"),
            });
            opaque.signature = found;
        }
        Ok(())
    }

    /// Finds the signature at the end of a path, with all containers that hold nothing else.
    fn signature(
        &mut self,
        object: &Span,
        path: &[&str],
        within: RemovablePart,
    ) -> Result<Option<Signature>, JsonError> {
        let (mut object, mut within) = (object.clone(), within);
        for (step, name) in path.iter().enumerate() {
            let members = members(self.body, object.start)?;
            let Some((at, member)) = find(&members, name) else {
                return Ok(None);
            };
            within = RemovablePart::new(
                self.outline.add_container(wholes(&members), Some(within), None),
                at,
            );
            if step + 1 == path.len() {
                return Ok(Some(Signature { value: member.value.clone(), part: within }));
            }
            object = member.value.clone();
        }
        Ok(None)
    }
}

/// Whether a path leads to a non-empty string.
fn reaches(body: &[u8], object: &Span, path: &[&str]) -> Result<bool, JsonError> {
    let mut object = object.clone();
    for (step, name) in path.iter().enumerate() {
        let members = members(body, object.start)?;
        match find(&members, name) {
            Some((_, member)) if step + 1 == path.len() => return Ok(member.is_text()),
            Some((_, member)) if member.kind == Kind::Object => object = member.value.clone(),
            _ => return Ok(false),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use throughline_canonical::Block;

    use super::*;
    use crate::dialects::opaque_outline::OpaqueEdit::{self, Keep, Remove, Sign};

    fn parts_of(message: &str) -> (String, Vec<Block>) {
        let body = body(message);
        let outline = read(body.as_bytes()).unwrap();
        let blocks = outline
            .parts
            .iter()
            .filter(|opaque| opaque.kind != OpaqueKind::Call || opaque.signature.is_some())
            .map(|opaque| opaque.block(body.as_bytes()))
            .collect();
        (body, blocks)
    }

    fn body(message: &str) -> String {
        format!(
            r#"{{"model":"m","x":1.50,"messages":[{{"role":"user","content":"hi"}},{{"role":"assistant",{message}}}]}}"#
        )
    }

    fn rewritten(message: &str, changes: &[OpaqueEdit]) -> String {
        let body = body(message);
        let outline = read(body.as_bytes()).unwrap();
        assert_eq!(outline.parts.len(), changes.len());
        let (edited, _) = outline.rewrite(body.as_bytes(), None, changes);
        edited.map_or(body, |body| String::from_utf8(body).unwrap())
    }

    fn thinking(text: &str, signature: Option<&str>) -> Block {
        Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
    }

    const DETAILS: &str = r#""content":"a","reasoning":"one two","reasoning_details":[{"type":"reasoning.text","index":0,"text":"one "},{"type":"reasoning.text","index":0,"text":"two","signature":"s"},{"type":"reasoning.encrypted","data":"d","index":1}]"#;

    /// The full reader gives the same blocks.
    #[test]
    fn outline_finds_the_same_reasoning_as_the_reader() {
        use crate::dialects::{ClientDialect, RequestParts};
        for (message, expected) in [
            (DETAILS, vec![thinking("one two", Some("s")), Block::Redacted { data: "d".into() }]),
            (r#""content":"a","reasoning":"r","reasoning_content":"c""#, vec![thinking("c", None)]),
            (
                r#""content":"a","thinking_blocks":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"thinking","thinking":"u","signature":"v"}],"reasoning_content":"tu""#,
                vec![thinking("t", Some("s")), thinking("u", Some("v"))],
            ),
            (r#""content":"a","reasoning_details":"plain""#, vec![thinking("plain", None)]),
            (
                r#""content":[{"type":"thinking","thinking":[{"type":"text","text":"x"},{"type":"text","text":"y"}]},{"type":"text","text":"a"}]"#,
                vec![thinking("xy", None)],
            ),
        ] {
            let (body, found) = parts_of(message);
            assert_eq!(found, expected, "{message}");
            let asked =
                RequestParts { path: "", query: "", body: body.as_bytes(), ..Default::default() };
            let read =
                crate::dialects::openai_chat::OpenAiChat.read_request(&asked).unwrap().request;
            let read: Vec<_> = read.messages[1]
                .content
                .iter()
                .filter(|block| matches!(block, Block::Thinking { .. } | Block::Redacted { .. }))
                .cloned()
                .collect();
            assert_eq!(found, read, "{message}");
        }
    }

    #[test]
    fn removed_parts_leave_no_empty_containers() {
        assert_eq!(rewritten(DETAILS, &[Remove, Remove]), body(r#""content":"a""#));
        assert_eq!(
            rewritten(DETAILS, &[Keep, Remove]),
            body(&DETAILS.replace(r#",{"type":"reasoning.encrypted","data":"d","index":1}"#, ""))
        );
        assert_eq!(
            rewritten(DETAILS, &[Sign("n".into()), Keep]),
            body(&DETAILS.replace("\"s\"", "\"n\""))
        );
        let chunk = r#""content":[{"type":"thinking","thinking":"x"}]"#;
        assert_eq!(rewritten(chunk, &[Remove]), body(&format!("\"content\":[{FILLER}]")));
    }

    #[test]
    fn message_of_reasoning_only_gets_a_placeholder() {
        let filled = "\"content\":\"[reasoning omitted]\"";
        for content in ["\"content\":null", "\"content\":\"\""] {
            let message = format!("{content},\"reasoning\":\"r\"");
            assert_eq!(rewritten(&message, &[Remove]), body(filled));
            assert_eq!(rewritten(&message, &[Keep]), body(&message));
        }
        assert_eq!(rewritten("\"reasoning\":\"r\"", &[Remove]), body(filled));
        // Calls of earlier turns need no signature.
        let earlier = r#"{"role":"assistant","tool_calls":[{"id":"c","function":{}}]},{"role":"user","content":"a"}"#;
        let later = |content: &str| {
            format!(
                r#"{{"messages":[{earlier},{{"role":"assistant",{content}}},{{"role":"user","content":"b"}}]}}"#
            )
        };
        let text = later(r#""content":null,"reasoning":"r""#);
        let outline = read(text.as_bytes()).unwrap();
        let (edited, count) = outline.rewrite(text.as_bytes(), None, &[Remove]);
        assert_eq!(count, 1);
        assert_eq!(String::from_utf8(edited.unwrap()).unwrap(), later(filled));
    }

    #[test]
    fn call_signatures_are_found_in_three_members() {
        let call = |more: &str| {
            format!(
                r#""tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":"{{}}"}}{more}}}]"#
            )
        };
        for more in [
            r#","extra_content":{"google":{"thought_signature":"s"}}"#,
            r#","provider_specific_fields":{"thought_signature":"s"}"#,
        ] {
            let (_, found) = parts_of(&call(more));
            assert_eq!(found, [thinking("", Some("s"))]);
            assert_eq!(rewritten(&call(more), &[Remove]), body(&call("")));
            assert_eq!(
                rewritten(&call(more), &[Sign("n".into())]),
                body(&call(&more.replace("\"s\"", "\"n\"")))
            );
        }
        let beside = r#","extra_content":{"google":{"thought_signature":"s","other":1}}"#;
        assert_eq!(
            rewritten(&call(beside), &[Remove]),
            body(&call(r#","extra_content":{"google":{"other":1}}"#))
        );
        assert_eq!(
            rewritten(&call(""), &[Sign("skip".into())]),
            body(&call(r#","extra_content":{"google":{"thought_signature":"skip"}}"#))
        );
    }
}
