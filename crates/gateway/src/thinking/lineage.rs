//! Which conversation a request belongs to.
//!
//! A client's session alone is not enough: title requests, token counts and sub-agents share it. A
//! lineage is therefore the session together with the beginning of the conversation. The session
//! number belongs to the session tag, everything else to the lineage.

use http::HeaderMap;
use throughline_canonical::thinking::hex;
use throughline_canonical::{Block, Request, Role};
use throughline_codec::dialects::blocks::outline::{self, Outline};
use throughline_codec::dialects::blocks::prefix;
use throughline_codec::dialects::client_headers::{SESSIONS, session_in_user};

use super::fingerprint::Fingerprint;
use crate::headers::CONVERSATION;

/// Identifies a client's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionTag(pub [u8; 16]);

/// Identifies one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LineageId(pub [u8; 16]);

impl LineageId {
    /// The short form in logs and reports.
    pub fn text(&self) -> String {
        hex(&self.0[..8])
    }
}

/// The session and the conversation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// The client's session.
    pub tag: SessionTag,
    /// The conversation.
    pub id: LineageId,
}

impl Lineage {
    /// Finds the lineage of an outlined request.
    pub fn find(headers: &HeaderMap, body: &[u8], outline: &Outline) -> Self {
        Self::from(headers, outline.user_id.as_deref(), beginning(body, outline))
    }

    /// Finds the lineage of a canonical request.
    pub fn of_request(headers: &HeaderMap, request: &Request) -> Self {
        let mut beginning = Fingerprint::default();
        request.system.iter().for_each(|text| beginning.add(text));
        let mut messages = request.messages.iter();
        if let Some(first) = messages.find(|message| message.role == Role::User) {
            first.content.iter().for_each(|block| add_block(block, &mut beginning));
        }
        let named = [&request.thread, &request.cache_key, &request.user];
        let name = named.into_iter().find_map(Option::as_deref);
        Self::from(headers, name, beginning.finish())
    }

    fn from(headers: &HeaderMap, name: Option<&str>, beginning: [u8; 16]) -> Self {
        let mut names = std::iter::once(CONVERSATION).chain(SESSIONS);
        let by_header = names.find_map(|name| headers.get(name));
        let tag = match (by_header, name) {
            (Some(value), _) => Fingerprint::of(&[b"header", value.as_bytes()]),
            (None, Some(user)) => Fingerprint::of(&[b"user", session_in_user(user).as_bytes()]),
            (None, None) => Fingerprint::of(&[b"beginning", &beginning]),
        };
        Self { tag: SessionTag(tag), id: LineageId(Fingerprint::of(&[&tag, &beginning])) }
    }
}

/// A digest of the system text and the first user message.
fn beginning(body: &[u8], outline: &Outline) -> [u8; 16] {
    let mut parts = Vec::new();
    if let Some(system) = &outline.system {
        prefix::normalise_system(&body[system.clone()], &mut parts);
    }
    parts.push(0xff);
    let first = outline.messages.iter().find(|message| message.role == outline::Role::User);
    if let Some(first) = first {
        prefix::normalise_message(body, first, &mut parts);
    }
    Fingerprint::of(&[&parts])
}

/// Adds a block. Most are text, and copying a long one into JSON would cost more than hashing it.
fn add_block(block: &Block, fingerprint: &mut Fingerprint) {
    match block {
        Block::Text { text, .. } => fingerprint.add(text),
        other => fingerprint.add(serde_json::to_vec(other).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(body: &str, header: Option<(&'static str, &'static str)>) -> Lineage {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        let outline = Outline::read(body.as_bytes(), 32).unwrap();
        Lineage::find(&headers, body.as_bytes(), &outline)
    }

    #[test]
    fn conversation_keeps_its_lineage_as_it_grows() {
        let session = Some(("x-claude-code-session-id", "s1"));
        let first = find(
            r#"{"system":"s","messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]}"#,
            session,
        );
        let second = find(
            r#"{"system":"s","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"},{"role":"user","content":"more"}]}"#,
            session,
        );
        assert_eq!(first, second);
    }

    #[test]
    fn side_requests_share_the_session_but_not_the_lineage() {
        let session = Some(("x-claude-code-session-id", "s1"));
        let main = find(r#"{"system":"s","messages":[{"role":"user","content":"hi"}]}"#, session);
        let title = find(r#"{"messages":[{"role":"user","content":"title?"}]}"#, session);
        assert_eq!(main.tag, title.tag);
        assert_ne!(main.id, title.id);
        let other = find(
            r#"{"system":"s","messages":[{"role":"user","content":"hi"}]}"#,
            Some(("x-claude-code-session-id", "s2")),
        );
        assert_ne!(main.tag, other.tag);
        assert_ne!(main.id, other.id);
    }

    #[test]
    fn session_is_found_inside_a_user_id() {
        let one = find(
            r#"{"metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"s\"}"},"messages":[]}"#,
            None,
        );
        let two = find(
            r#"{"metadata":{"user_id":"{\"device_id\":\"e\",\"session_id\":\"s\"}"},"messages":[]}"#,
            None,
        );
        assert_eq!(one.tag, two.tag);
    }
}
