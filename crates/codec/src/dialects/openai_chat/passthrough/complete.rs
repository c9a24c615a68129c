//! Adds members that some servers require in every message to a request that passes through.

use throughline_canonical::{Loss, Lossy};

use super::super::ids;
use super::super::variants::{REASONING, REASONING_CONTENT, Replay, Variant};
use crate::dialects::opaque_outline::{Member, find, find_text, members};
use crate::json::{Edits, JsonError, Kind, Span, append_member, quote, slice, text};

/// The members in which clients keep reasoning as a string.
const KEPT: [&str; 3] = [REASONING_CONTENT, REASONING, "reasoning_details"];

/// Completes the body; `None` if nothing is missing.
pub(super) fn write(body: &[u8], variant: &Variant) -> Lossy<Option<Vec<u8>>> {
    let mut writer = BodyCompleter { body, variant, edits: Edits::default(), losses: Vec::new() };
    let wants = variant.nine_letters || is_plain(variant.replay);
    // The provider rejects malformed requests.
    if !wants || writer.request().is_err() || writer.edits.is_empty() {
        return Lossy::default();
    }
    Lossy { value: Some(writer.edits.apply(body)), losses: writer.losses }
}

/// Whether reasoning goes back as a string, in a member whose name differs between servers.
fn is_plain(replay: Replay) -> bool {
    matches!(
        replay,
        Replay::ReasoningContent
            | Replay::ReasoningContentAlways
            | Replay::Reasoning
            | Replay::BothMembers
    )
}

struct BodyCompleter<'a> {
    body: &'a [u8],
    variant: &'a Variant,
    edits: Edits,
    losses: Vec<Loss>,
}

impl BodyCompleter<'_> {
    fn request(&mut self) -> Result<(), JsonError> {
        let body = self.body;
        let top = members(body, body.len() - body.trim_ascii_start().len())?;
        let thinks = !self.is_off(&top)?;
        let Some((_, messages)) = find(&top, "messages") else {
            return Ok(());
        };
        for (kind, span) in messages.elements(body)? {
            if kind != Kind::Object {
                continue;
            }
            let message = members(body, span.start)?;
            let role = find_text(&message, "role").map(|(_, role)| text(body, &role.value));
            match role.as_deref() {
                Some("assistant") => {
                    if thinks && is_plain(self.variant.replay) {
                        self.reasoning(&message, &span);
                    }
                    self.calls(&message)?;
                }
                Some("tool") => self.id(&message, "tool_call_id"),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the request switches thinking off.
    fn is_off(&self, top: &[Member<'_>]) -> Result<bool, JsonError> {
        let Some((_, thinking)) = find(top, "thinking").filter(|(_, it)| it.kind == Kind::Object)
        else {
            return Ok(false);
        };
        let thinking = members(self.body, thinking.value.start)?;
        let kind = find_text(&thinking, "type");
        Ok(kind.is_some_and(|(_, kind)| text(self.body, &kind.value) == "disabled"))
    }

    /// Adds reasoning that the client keeps under another name: the server ignores that one.
    fn reasoning(&mut self, message: &[Member<'_>], object: &Span) {
        let is_required = self.variant.replay == Replay::ReasoningContentAlways;
        let text = |name| find_text(message, name).map(|(_, it)| slice(self.body, &it.value));
        let reasoning = KEPT.into_iter().filter_map(text).find(|text| text.len() > 2);
        let reasoning = reasoning.or(is_required.then_some(&b"\"\""[..]));
        let Some(reasoning) = reasoning else {
            return;
        };
        for name in self.variant.replay.members() {
            let is_kept = |member: &Member<'_>| {
                let value = slice(self.body, &member.value);
                member.kind == Kind::String && (value.len() > 2 || value == reasoning)
            };
            match message.iter().find(|member| member.key == *name) {
                Some(member) if is_kept(member) => {}
                Some(member) => self.edits.replace(member.value.clone(), reasoning),
                None => append_member(&mut self.edits, self.body, object, name, reasoning),
            }
        }
    }

    fn calls(&mut self, message: &[Member<'_>]) -> Result<(), JsonError> {
        let Some((_, calls)) = find(message, "tool_calls") else {
            return Ok(());
        };
        for (kind, span) in calls.elements(self.body)? {
            if kind == Kind::Object {
                self.id(&members(self.body, span.start)?, "id");
            }
        }
        Ok(())
    }

    fn id(&mut self, members: &[Member<'_>], name: &str) {
        let Some((_, id)) = find_text(members, name).filter(|_| self.variant.nine_letters) else {
            return;
        };
        let given = text(self.body, &id.value);
        let spelled = ids::nine_letters(&given);
        if spelled == given {
            return;
        }
        self.edits.replace(id.value.clone(), quote(&spelled));
        if self.losses.is_empty() {
            self.losses.push(ids::SPELLED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::variants::find as variant;
    use super::*;
    use crate::dialects::UpstreamDialect;
    use crate::dialects::openai_chat::OpenAiChat;

    fn completed(body: &str, name: &str) -> Option<String> {
        let body = write(body.as_bytes(), variant(name)).value;
        body.map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn required_reasoning_is_added_to_every_answer() {
        let body = |one: &str, two: &str, more: &str| {
            format!(
                r#" {{"x":1.50,"messages":[{{"role":"user","content":"a"}},{{"role":"assistant","content":"b"{one}}}, {{"role" : "assistant",{two}"content":"c" }}]{more}}}"#
            )
        };
        let bare = body("", r#""reasoning_content":null,"#, "");
        let whole = body(r#","reasoning_content":"""#, r#""reasoning_content":"","#, "");
        assert_eq!(completed(&bare, "deepseek-v4").unwrap(), whole);
        assert_eq!(completed(&whole, "deepseek-v4"), None);
        let reasoning = body(r#","reasoning_content":"r""#, r#""reasoning_content":"s","#, "");
        assert_eq!(completed(&reasoning, "deepseek-v4"), None);
        let other = r#"{"messages":[{"role":"assistant","reasoning":"r \"1\"","content":"b"}]}"#;
        assert_eq!(
            completed(other, "deepseek-v4").unwrap(),
            r#"{"messages":[{"role":"assistant","reasoning":"r \"1\"","content":"b","reasoning_content":"r \"1\""}]}"#
        );
        let off = body("", "", r#","thinking":{"type":"disabled"}"#);
        assert_eq!(completed(&off, "deepseek-v4"), None);
        for other in ["openai", "deepseek-r1", "vllm", "openrouter"] {
            assert_eq!(completed(&bare, other), None, "{other}");
        }
    }

    #[test]
    fn reasoning_is_repeated_under_the_name_that_the_server_knows() {
        let message =
            |more: &str| format!(r#"{{"messages":[{{"role":"assistant","content":"b"{more}}}]}}"#);
        let (content, reasoning) = (r#","reasoning_content":"r""#, r#","reasoning":"r""#);
        let both = [content, reasoning].concat();
        let turned = [reasoning, content].concat();
        for (name, kept, expected) in [
            ("llamacpp", content, None),
            ("llamacpp", reasoning, Some(turned.as_str())),
            (
                "llamacpp",
                r#","reasoning_details":"r""#,
                Some(r#","reasoning_details":"r","reasoning_content":"r""#),
            ),
            ("llamacpp", r#","reasoning_content":"","reasoning":"r""#, Some(both.as_str())),
            ("groq", content, Some(both.as_str())),
            ("groq", reasoning, None),
            ("vllm", content, Some(both.as_str())),
            ("vllm", reasoning, Some(turned.as_str())),
            ("vllm", &both, None),
            ("vllm", "", None),
            ("openai", content, None),
            ("openrouter", content, None),
        ] {
            let written = completed(&message(kept), name);
            assert_eq!(written, expected.map(message), "{name} {kept}");
        }
        for (member, expected) in [(REASONING, Some(&both)), (REASONING_CONTENT, None)] {
            let named = OpenAiChat.with_member(OpenAiChat.profile("vllm"), member);
            let written = write(message(content).as_bytes(), named.chat()).value;
            let written = written.map(|body| String::from_utf8(body).unwrap());
            assert_eq!(written, expected.map(|more| message(more)), "{member}");
        }
    }

    #[test]
    fn call_ids_get_nine_letters_and_still_match() {
        let body = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"toolu_01A2b3C4d5"},{"id":"D681PevKs"}]},{"role":"tool","tool_call_id":"toolu_01A2b3C4d5","content":"1"},{"role":"tool","tool_call_id":"D681PevKs","content":"2"}]}"#;
        let spelled = ids::nine_letters("toolu_01A2b3C4d5");
        let written = write(body.as_bytes(), variant("mistral"));
        assert_eq!(written.value.unwrap(), body.replace("toolu_01A2b3C4d5", &spelled).as_bytes());
        assert_eq!(written.losses, [ids::SPELLED]);
        assert_eq!(completed(body, "openai"), None);
    }

    #[test]
    fn malformed_request_stays_unchanged() {
        for body in ["", "[]", "{\"messages\":7}", "{\"messages\":[7,{}]}", "{"] {
            assert_eq!(completed(body, "deepseek-v4"), None, "{body}");
        }
    }
}
