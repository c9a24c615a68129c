//! Adds members that some servers require in every message to a request that passes through.

use throughline_canonical::{Loss, Lossy};

use super::super::ids;
use super::super::variants::{Replay, Variant};
use crate::dialects::opaque_outline::{Member, find, find_text, members};
use crate::json::{Edits, JsonError, Kind, Span, append_member, quote, slice, text};

/// The member that must be present while the model thinks; empty if unknown.
const REASONING: &str = "reasoning_content";

/// The name of this member on other servers.
const OTHER_REASONING: &str = "reasoning";

/// Completes the body; `None` if nothing is missing.
pub(super) fn write(body: &[u8], variant: &Variant) -> Lossy<Option<Vec<u8>>> {
    let mut writer = Writer { body, variant, edits: Edits::default(), losses: Vec::new() };
    let wants = variant.nine_letters || variant.replay == Replay::ReasoningContentAlways;
    // The provider rejects malformed requests.
    if !wants || writer.request().is_err() || writer.edits.is_empty() {
        return Lossy::default();
    }
    Lossy { value: Some(writer.edits.apply(body)), losses: writer.losses }
}

struct Writer<'a> {
    body: &'a [u8],
    variant: &'a Variant,
    edits: Edits,
    losses: Vec<Loss>,
}

impl Writer<'_> {
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
                    if thinks && self.variant.replay == Replay::ReasoningContentAlways {
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

    fn reasoning(&mut self, message: &[Member<'_>], object: &Span) {
        match message.iter().find(|member| member.key == REASONING) {
            Some(member) if member.kind == Kind::String => {}
            Some(member) => self.edits.replace(member.value.clone(), "\"\""),
            // Some clients keep it under the other name.
            None => {
                let other = find_text(message, OTHER_REASONING);
                let reasoning = other.map_or(&b"\"\""[..], |(_, it)| slice(self.body, &it.value));
                append_member(&mut self.edits, self.body, object, REASONING, reasoning);
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
