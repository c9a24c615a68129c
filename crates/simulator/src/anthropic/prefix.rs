//! The prefix a thinking block is bound to.
//!
//! Values are compared, not bytes: key order, white space, escapes and `cache_control` do not
//! count, and a content string equals its text block. Turns are a flat list of blocks, because the
//! API merges adjacent messages of one role.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::request::{ParsedRequest, Turn, is_thinking, kind_of};
use crate::signing::{Hash, hash};

/// The conversation up to a point.
#[derive(Clone, Debug)]
pub(crate) struct Prefix {
    /// Everything so far.
    whole: Hash,
    /// Within a response: a hash of everything before it and of its thinking so far. Text and calls
    /// between two thinking blocks of one response are not bound.
    response: Option<Hash>,
}

impl Prefix {
    /// The prefix before the first message.
    pub(crate) fn new(request: &ParsedRequest) -> Self {
        let mut hasher = Sha256::new();
        // Tools that load later are not compared.
        let loaded = |tool: &&Value| tool["defer_loading"] != Value::Bool(true);
        let system: Vec<&Value> = request.system.iter().collect();
        let tools: Vec<&Value> = request.tools.iter().filter(loaded).collect();
        for list in [system, tools] {
            hasher.update((list.len() as u64).to_be_bytes());
            list.iter().for_each(|item| feed(&mut hasher, item));
        }
        Self { whole: hasher.finalize().into(), response: None }
    }

    /// The prefix of a turn of an earlier conversation.
    pub(crate) fn resumed(whole: Hash) -> Self {
        Self { whole, response: None }
    }

    /// Starts the next turn.
    pub(crate) fn start_turn(&mut self, turn: &Turn) {
        if turn.is_assistant() {
            self.response.get_or_insert(self.whole);
        } else {
            self.response = None;
        }
        if turn.members.keys().any(|key| key != "cache_control") {
            let members = Value::Object(turn.members.clone());
            self.whole = hash(&[&self.whole, turn.role.as_bytes(), &digest(&members)]);
        }
    }

    /// Adds a block of the current turn.
    pub(crate) fn push_block(&mut self, role: &str, block: &Value) {
        let digest = digest(block);
        self.whole = hash(&[&self.whole, role.as_bytes(), &digest]);
        if is_thinking(block)
            && let Some(response) = &mut self.response
        {
            *response = hash(&[response, &digest]);
        }
    }

    /// Starts the reply.
    pub(crate) fn begin_response(&mut self) {
        self.response.get_or_insert(self.whole);
    }

    /// The hash that a thinking block at this point is bound to.
    pub(crate) fn binding(&self) -> Hash {
        self.response.unwrap_or(self.whole)
    }

    /// A hash of the whole conversation.
    pub(crate) fn whole(&self) -> Hash {
        self.whole
    }
}

fn digest(value: &Value) -> Hash {
    let mut hasher = Sha256::new();
    feed(&mut hasher, value);
    hasher.finalize().into()
}

fn feed(hasher: &mut Sha256, value: &Value) {
    let mut leaf = |tag: u8, bytes: &[u8]| {
        hasher.update([tag]);
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    match value {
        Value::Null => leaf(b'0', b""),
        Value::Bool(yes) => leaf(b'b', &[u8::from(*yes)]),
        Value::Number(number) => leaf(b'n', number.to_string().as_bytes()),
        Value::String(text) => leaf(b's', text.as_bytes()),
        Value::Array(items) => {
            leaf(b'a', &(items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| feed(hasher, item));
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> =
                members.iter().filter(|(key, _)| *key != "cache_control").collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            leaf(b'o', &(members.len() as u64).to_be_bytes());
            for (key, member) in members {
                feed(hasher, &Value::String(key.clone()));
                match member {
                    Value::String(text) if key == "content" && kind_of(value) == "tool_result" => {
                        let block = serde_json::json!([{ "type": "text", "text": text }]);
                        feed(hasher, &block);
                    }
                    _ => feed(hasher, member),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn whole(body: Value) -> Hash {
        let Value::Object(body) = body else {
            panic!("an object");
        };
        let request = ParsedRequest::read(body);
        let mut prefix = Prefix::new(&request);
        for turn in &request.turns {
            prefix.start_turn(turn);
            for block in &turn.blocks {
                prefix.push_block(&turn.role, block);
            }
        }
        prefix.whole()
    }

    #[test]
    fn equivalent_forms_of_a_conversation_have_one_prefix() {
        let plain = whole(json!({"system": "s", "messages": [{"role": "user", "content": "a"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}]}));
        let blocks = whole(json!({
            "system": [{"text": "s", "type": "text", "cache_control": {"type": "ephemeral"}}], "tools": [],
            "messages": [{"content": [{"text": "a", "cache_control": {}, "type": "text"},
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]}], "role": "user"}]}));
        assert_eq!(plain, blocks);
    }

    #[test]
    fn different_conversations_have_different_prefixes() {
        let base = json!({"system": "s", "tools": [{"name": "t"}], "messages": [
            {"role": "user", "content": "a"}, {"role": "system", "content": "n", "output_config": {"effort": "low"}}]});
        let mut seen = vec![whole(base.clone())];
        for (pointer, value) in [
            ("/system", json!("S")),
            ("/tools/0/name", json!("u")),
            ("/tools", json!([])),
            ("/messages/0/content", json!("b")),
            ("/messages/0/role", json!("system")),
            ("/messages/1/output_config/effort", json!("high")),
        ] {
            let mut changed = base.clone();
            *changed.pointer_mut(pointer).unwrap() = value;
            let hash = whole(changed);
            assert!(!seen.contains(&hash), "{pointer}");
            seen.push(hash);
        }
    }
}
