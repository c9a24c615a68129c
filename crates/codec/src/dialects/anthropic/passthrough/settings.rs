//! Reads the settings of a request without its conversation, and finds the members to rewrite after
//! a change.

use throughline_canonical::{Request, Tool};

use super::super::upstream_request::{self, BETWEEN_TOOLS};
use super::super::{NAME, PATH_COUNT, client_request, profile};
use super::outline::Outline;
use crate::dialects::{RequestParts, Target};
use crate::json::{Span, each_member, slice};

/// The members that are settings.
const SETTINGS: &[&str] =
    &["max_tokens", "thinking", "output_config", "temperature", "top_p", "top_k", "tool_choice"];

/// A member to change: its name and its new value. `None` removes it.
pub type Change = (&'static str, Option<Vec<u8>>);

/// Reads the settings; `None` if they are malformed.
pub fn read(body: &[u8], outline: &Outline) -> Option<Request> {
    // Uses the full reader, which requires a conversation.
    let mut alone = br#"{"model":"","messages":[{"role":"user","content":"-"}]"#.to_vec();
    for member in &outline.members {
        if SETTINGS.iter().any(|name| is(body, member, name)) {
            alone.push(b',');
            alone.extend_from_slice(slice(body, member));
        }
    }
    alone.push(b'}');
    let parts = RequestParts { path: PATH_COUNT, query: "", body: &alone, ..Default::default() };
    let mut request = client_request::read(&parts).ok()?.value;
    if outline.tools.is_some() {
        // Only the presence of tools matters, not which ones.
        request.tools.push(Tool::Function {
            name: String::new(),
            description: None,
            parameters: serde_json::Value::Null,
            strict: None,
        });
    }
    Some(request)
}

/// The members to change so that the request has the new settings.
pub fn changes(before: &Request, after: &Request) -> Vec<Change> {
    let (before, after) = (written(before), written(after));
    SETTINGS
        .iter()
        .zip(before.into_iter().zip(after))
        .filter(|(_, (before, after))| before != after)
        .map(|(name, (_, after))| (*name, after))
        .collect()
}

/// The members as the request writer writes them.
fn written(request: &Request) -> Vec<Option<Vec<u8>>> {
    let target = Target { model: "", profile: &profile::PROFILES[0] };
    let body = upstream_request::write(request, &target).value.body;
    let mut values = vec![None; SETTINGS.len()];
    let checked = each_member(&body, 0, |key, _, span| {
        if let Some(at) = SETTINGS.iter().position(|name| name.as_bytes() == key) {
            values[at] = Some(slice(&body, &span).to_vec());
        }
    });
    debug_assert!(checked.is_ok(), "it was written just now");
    if request.max_tokens.is_none() {
        // The writer always adds a limit, but a token count has none.
        values[0] = None;
    }
    values
}

/// Whether a member has this name.
pub(crate) fn is(body: &[u8], member: &Span, name: &str) -> bool {
    let rest = slice(body, member).strip_prefix(b"\"");
    rest.and_then(|rest| rest.strip_prefix(name.as_bytes()))
        .is_some_and(|rest| rest.starts_with(b"\""))
}

/// Whether the request asks for thinking between tool calls only.
pub fn thinks_between_tools(request: &Request) -> bool {
    let extra = request.extra.get(NAME);
    let thinking = extra.and_then(|extra| extra.get("thinking"));
    thinking.and_then(|thinking| thinking.get("type")?.as_str()) == Some(BETWEEN_TOOLS)
}

/// Removes the setting for thinking between tool calls.
pub fn forget_between_tools(request: &mut Request) {
    let extra = request.extra.get_mut(NAME);
    if let Some(thinking) =
        extra.and_then(|extra| extra.get_mut("thinking")).and_then(serde_json::Value::as_object_mut)
    {
        thinking.shift_remove("type");
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::{Amount, ToolChoice};

    use super::*;

    fn read(body: &str) -> Option<Request> {
        let outline = Outline::read(body.as_bytes(), 32).unwrap();
        super::read(body.as_bytes(), &outline)
    }

    #[test]
    fn settings_are_read_next_to_other_members() {
        let body = r#"{"temperature":0.5,"messages":[{"role":"robot"}],"tools":[7],"thinking":{"type":"enabled","budget_tokens":2048},"x":{"top_k":1},"max_tokens":9}"#;
        let request = read(body).unwrap();
        assert_eq!(request.sampling.temperature, Some(0.5));
        assert_eq!(request.sampling.top_k, None);
        assert_eq!(request.max_tokens, Some(9));
        let budget = Amount::Budget { tokens: 2048 };
        assert_eq!(request.thinking.amount, Some(budget));
        assert_eq!(read(r#"{"thinking":{"type":"dreaming"}}"#), None);
    }

    #[test]
    fn only_changed_settings_are_written() {
        let body = r#"{"max_tokens":9,"tools":[],"tool_choice":{"type":"any","disable_parallel_tool_use":true},"top_p":0.5,"thinking":{"type":"adaptive","display":"omitted"}}"#;
        let before = read(body).unwrap();
        assert_eq!(changes(&before, &before), []);
        let mut after = before.clone();
        after.tool_choice = Some(ToolChoice::Auto);
        after.sampling.top_p = None;
        let choice = br#"{"type":"auto","disable_parallel_tool_use":true}"#;
        let expected = [("top_p", None), ("tool_choice", Some(choice.to_vec()))];
        assert_eq!(changes(&before, &after), expected);
    }
}
