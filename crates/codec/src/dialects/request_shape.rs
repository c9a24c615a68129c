//! The shape of a request: its parts in the order in which a provider reads them, with kinds, sizes and fingerprints,
//! but without any content. Two shapes show where a request differs from the one before it.
//!
//! The parts are found by the names of members that all dialects have together, so one walk reads each of them.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::json::{Cursor, JsonError, Kind, Span, each_element, each_member, inside, slice};

/// How many parts are listed. The rest of a longer request is one part.
const MAX_PARTS: usize = 4096;
/// The longest kind or name of a member.
const MAX_NAME_BYTES: usize = 48;
/// How many names a shape has.
const MAX_NAMES: usize = 1000;
/// The name of everything whose own name could be content.
const OTHER: &str = "other";
/// How deep marks of the cache are looked for. Deeper values count with all their bytes.
const MAX_MARK_DEPTH: usize = 6;

/// Where requests keep what comes first.
const SECTIONS: &[(Section, &[&[u8]])] = &[
    (Section::Tools, &[b"tools"]),
    (Section::System, &[b"system", b"instructions", b"systemInstruction", b"system_instruction"]),
    (Section::Messages, &[b"messages", b"input", b"contents"]),
];
/// Members of a message whose elements are parts.
const LISTS: &[&[u8]] = &[b"content", b"parts", b"tool_calls"];
/// Members of a message that are parts if they are text.
const TEXTS: &[&[u8]] = &[b"content", b"reasoning_content", b"reasoning", b"thinking"];
/// Members that mark the cache, and do not change what it holds.
const MARKS: &[&[u8]] = &[b"cache_control", b"prompt_cache_breakpoint"];
/// Members that say what an object is, if it has no `type`.
const KIND_MEMBERS: &[&[u8]] =
    &[b"text", b"functionCall", b"functionResponse", b"inlineData", b"function"];

/// A part of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// What the model may call.
    Tools,
    /// The system text.
    System,
    /// The conversation.
    Messages,
    /// Everything else. It is not part of the prefix that providers cache.
    Settings,
}

/// The shape of a request.
#[derive(Debug, Default)]
pub struct RequestShape {
    parts: Vec<Part>,
    /// Kinds, roles and names of members, each once.
    names: Vec<Box<str>>,
    /// Whether the parts have fingerprints.
    is_comparable: bool,
}

#[derive(Debug)]
struct Part {
    section: Section,
    path: Path,
    kind: u16,
    role: Option<u16>,
    bytes: u32,
    fingerprint: u64,
    /// How many more parts it stands for.
    more: u32,
}

/// A path such as `messages.3.content.0`.
#[derive(Clone, Copy, Debug)]
struct Path {
    member: u16,
    entry: Option<u32>,
    inner: Option<u16>,
    index: Option<u32>,
}

/// A part as reports show it.
#[derive(Serialize)]
struct ShownPart<'a> {
    path: String,
    section: Section,
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    bytes: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "is_zero")]
    more: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl RequestShape {
    /// Reads the shape of a body. `None` if it is not a JSON object.
    ///
    /// Equal parts have equal fingerprints under the same key, and a fingerprint says nothing to those who do not
    /// have it. Without a key there are none.
    pub fn read(body: &[u8], key: Option<&RandomState>) -> Option<Self> {
        let shape = Self { is_comparable: key.is_some(), ..Self::default() };
        let mut reader = Reader { body, key, shape };
        reader.request().ok()?;
        Some(reader.shape)
    }

    /// About how many bytes the shape uses.
    pub fn weight(&self) -> usize {
        let names: usize = self.names.iter().map(|name| name.len() + size_of::<Box<str>>()).sum();
        size_of::<Self>() + self.parts.len() * size_of::<Part>() + names
    }

    fn name(&self, name: u16) -> &str {
        self.names.get(usize::from(name)).map_or("", |name| name)
    }

    fn path(&self, path: &Path) -> String {
        let mut text = self.name(path.member).to_owned();
        let entry = path.entry.map(|at| at.to_string());
        let inner = path.inner.map(|name| self.name(name).to_owned());
        let index = path.index.map(|at| at.to_string());
        for step in [entry, inner, index].into_iter().flatten() {
            text.push('.');
            text.push_str(&step);
        }
        text
    }
}

impl Serialize for RequestShape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.parts.len()))?;
        for part in &self.parts {
            list.serialize_element(&ShownPart {
                path: self.path(&part.path),
                section: part.section,
                kind: self.name(part.kind),
                role: part.role.map(|role| self.name(role)),
                bytes: part.bytes,
                fingerprint: self.is_comparable.then(|| format!("{:016x}", part.fingerprint)),
                more: part.more,
            })?;
        }
        list.end()
    }
}

struct Reader<'a> {
    body: &'a [u8],
    key: Option<&'a RandomState>,
    shape: RequestShape,
}

/// A value of the body.
struct Value {
    kind: Kind,
    span: Span,
}

impl<'a> Reader<'a> {
    fn request(&mut self) -> Result<(), JsonError> {
        let start = Cursor::new(self.body, usize::MAX).start();
        let mut members = Vec::new();
        each_member(self.body, start, |name, kind, span| {
            let of = SECTIONS.iter().find(|(_, names)| names.contains(&name));
            let section = of.map_or(Section::Settings, |(section, _)| *section);
            members.push((section, name, Value { kind, span }));
        })?;
        members.sort_by_key(|(section, ..)| *section);
        for (section, name, value) in members {
            let member = self.intern(name);
            let path = Path { member, entry: None, inner: None, index: None };
            if section == Section::Settings || value.kind != Kind::Array {
                self.add(section, path, None, None, &value)?;
                continue;
            }
            for (at, entry) in self.elements(&value)?.into_iter().enumerate() {
                let path = Path { entry: Some(position(at)), ..path };
                self.entry(section, path, &entry)?;
            }
        }
        Ok(())
    }

    /// An element of a section: a message with its blocks, or a part of its own.
    fn entry(&mut self, section: Section, path: Path, entry: &Value) -> Result<(), JsonError> {
        let members = self.members(entry)?;
        let role =
            members.iter().find(|(name, value)| *name == b"role" && value.kind == Kind::String);
        let Some((_, role)) = role.filter(|_| section == Section::Messages) else {
            return self.add(section, path, None, None, entry);
        };
        let role = Some(self.text_name(role));
        // What a message has besides its parts, such as ids.
        let mut rest = Vec::new();
        for (name, value) in members {
            let inner = Some(self.intern(name));
            match value.kind {
                Kind::Array if LISTS.contains(&name) => {
                    for (at, block) in self.elements(&value)?.into_iter().enumerate() {
                        let path = Path { inner, index: Some(position(at)), ..path };
                        self.add(section, path, None, role, &block)?;
                    }
                }
                Kind::String if TEXTS.contains(&name) => {
                    let kind = if name == b"content" { "text".as_bytes() } else { name };
                    self.add(section, Path { inner, ..path }, Some(kind), role, &value)?;
                }
                Kind::Null => {}
                _ if MARKS.contains(&name) || [&b"role"[..], b"type"].contains(&name) => {}
                _ => rest.push((name, value)),
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        let bytes = rest.iter().map(|(_, value)| value.span.len()).sum();
        let fingerprint = self.members_fingerprint(rest, 0)?;
        let kind = self.intern(b"members");
        self.push(section, path, (kind, role), bytes, fingerprint);
        Ok(())
    }

    /// Adds a value as a part.
    fn add(
        &mut self,
        section: Section,
        path: Path,
        kind: Option<&[u8]>,
        role: Option<u16>,
        value: &Value,
    ) -> Result<(), JsonError> {
        let kind = match kind {
            Some(kind) => self.intern(kind),
            None => self.kind(value)?,
        };
        let fingerprint = self.fingerprint(value, 0)?;
        self.push(section, path, (kind, role), value.span.len(), fingerprint);
        Ok(())
    }

    fn push(
        &mut self,
        section: Section,
        path: Path,
        (kind, role): (u16, Option<u16>),
        bytes: usize,
        fingerprint: u64,
    ) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let shape = &mut self.shape;
        // The role belongs to the parts of its message, so that a changed role shows.
        let role_name = role.map(|role| shape.name(role));
        let combine = |one: u64, other: Option<u64>| {
            self.key.map_or(0, |key| key.hash_one((one, other, role_name)))
        };
        let fingerprint = combine(fingerprint, None);
        if shape.parts.len() < MAX_PARTS {
            shape.parts.push(Part { section, path, kind, role, bytes, fingerprint, more: 0 });
            return;
        }
        let before = shape.parts.last().map(|last| last.fingerprint);
        let fingerprint = combine(fingerprint, before);
        if let Some(last) = shape.parts.last_mut() {
            last.more += 1;
            last.bytes = last.bytes.saturating_add(bytes);
            last.fingerprint = fingerprint;
        }
    }

    /// What a value is: its `type`, or the member that says it.
    fn kind(&mut self, value: &Value) -> Result<u16, JsonError> {
        let members = self.members(value)?;
        let find = |wanted: &[u8]| members.iter().find(|(name, _)| *name == wanted);
        if let Some((_, name)) = find(b"type").filter(|(_, value)| value.kind == Kind::String) {
            return Ok(self.text_name(name));
        }
        let is_true = |(_, value): &&(&[u8], Value)| slice(self.body, &value.span) == b"true";
        if find(b"thought").filter(is_true).is_some() {
            return Ok(self.intern(b"thinking"));
        }
        if let Some(name) = KIND_MEMBERS.iter().find(|name| find(name).is_some()) {
            return Ok(self.intern(name));
        }
        let name: &[u8] = match value.kind {
            Kind::Object if find(b"name").is_some() => b"tool",
            Kind::Object => b"object",
            Kind::Array => b"list",
            Kind::String => b"text",
            Kind::Number => b"number",
            Kind::Bool => b"boolean",
            Kind::Null => b"null",
        };
        Ok(self.intern(name))
    }

    /// A keyed hash of a value. Marks of the cache and the order of members do not count.
    fn fingerprint(&self, value: &Value, depth: usize) -> Result<u64, JsonError> {
        let Some(key) = self.key else {
            return Ok(0);
        };
        let mut hasher = key.build_hasher();
        match value.kind {
            Kind::Object if depth < MAX_MARK_DEPTH => {
                return self.members_fingerprint(self.members(value)?, depth);
            }
            Kind::Array if depth < MAX_MARK_DEPTH => {
                hasher.write_u8(b'[');
                for element in self.elements(value)? {
                    hasher.write_u64(self.fingerprint(&element, depth + 1)?);
                }
            }
            _ => {
                hasher.write_u8(b'=');
                hasher.write(slice(self.body, &value.span));
            }
        }
        Ok(hasher.finish())
    }

    fn members_fingerprint(
        &self,
        members: Vec<(&'a [u8], Value)>,
        depth: usize,
    ) -> Result<u64, JsonError> {
        let Some(key) = self.key else {
            return Ok(0);
        };
        let mut sum = 0_u64;
        for (name, value) in members.into_iter().filter(|(name, _)| !MARKS.contains(name)) {
            sum = sum.wrapping_add(key.hash_one((name, self.fingerprint(&value, depth + 1)?)));
        }
        Ok(key.hash_one(('{', sum)))
    }

    /// The members of an object; none of another value.
    fn members(&self, value: &Value) -> Result<Vec<(&'a [u8], Value)>, JsonError> {
        let mut members = Vec::new();
        if value.kind == Kind::Object {
            each_member(self.body, value.span.start, |name, kind, span| {
                members.push((name, Value { kind, span }));
            })?;
        }
        Ok(members)
    }

    fn elements(&self, value: &Value) -> Result<Vec<Value>, JsonError> {
        let mut elements = Vec::new();
        each_element(self.body, value.span.start, |kind, span| {
            elements.push(Value { kind, span });
        })?;
        Ok(elements)
    }

    /// The text of a string as a name.
    fn text_name(&mut self, string: &Value) -> u16 {
        let text = inside(self.body, &string.span);
        self.intern(text)
    }

    /// Names have letters, digits and a few signs. Anything else could be content.
    fn intern(&mut self, name: &[u8]) -> u16 {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(byte);
        let name = match std::str::from_utf8(name) {
            Ok(text) if text.len() <= MAX_NAME_BYTES && name.iter().all(is_plain) => text,
            _ => OTHER,
        };
        let names = &mut self.shape.names;
        let name = if names.len() < MAX_NAMES { name } else { OTHER };
        let known = names.iter().position(|known| &**known == name);
        let at = known.unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        u16::try_from(at).unwrap_or_default()
    }
}

fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn shape(body: &Json, key: &RandomState) -> Vec<Json> {
        let shape = RequestShape::read(body.to_string().as_bytes(), Some(key)).unwrap();
        serde_json::to_value(shape).unwrap().as_array().unwrap().clone()
    }

    /// Path, kind and role of each part.
    fn outline(body: &Json) -> Vec<String> {
        let parts = shape(body, &RandomState::new());
        let text = |part: &Json, name: &str| part[name].as_str().unwrap_or("-").to_owned();
        parts
            .iter()
            .map(|part| ["path", "kind", "role"].map(|name| text(part, name)).join(" "))
            .collect()
    }

    #[test]
    fn parts_are_in_the_order_in_which_a_provider_reads_them() {
        let body = json!({"model": "m", "messages": [
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, {"type": "text", "text": "a"}]},
        ], "system": [{"type": "text", "text": "s"}], "tools": [{"name": "look", "input_schema": {}}]});
        assert_eq!(
            outline(&body),
            [
                "tools.0 tool -",
                "system.0 text -",
                "messages.0.content text user",
                "messages.1.content.0 thinking assistant",
                "messages.1.content.1 text assistant",
                "model text -",
            ]
        );
    }

    #[test]
    fn each_dialect_shows_its_parts() {
        let chat = json!({"messages": [{"role": "assistant", "content": null, "reasoning_content": "r",
            "tool_calls": [{"id": "c", "type": "function", "function": {}}]},
            {"role": "tool", "tool_call_id": "c", "content": "r"}]});
        assert_eq!(
            outline(&chat),
            [
                "messages.0.reasoning_content reasoning_content assistant",
                "messages.0.tool_calls.0 function assistant",
                "messages.1.content text tool",
                "messages.1 members tool",
            ]
        );
        let responses = json!({"instructions": "s", "input": [{"type": "reasoning", "summary": []},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]}]});
        assert_eq!(
            outline(&responses),
            ["instructions text -", "input.0 reasoning -", "input.1.content.0 input_text user"]
        );
        let gemini = json!({"contents": [{"role": "model", "parts": [{"text": "t", "thought": true},
            {"functionCall": {"name": "f"}}]}], "systemInstruction": {"parts": []}});
        assert_eq!(
            outline(&gemini),
            [
                "systemInstruction object -",
                "contents.0.parts.0 thinking model",
                "contents.0.parts.1 functionCall model",
            ]
        );
    }

    #[test]
    fn equal_parts_have_equal_fingerprints_without_their_marks_of_the_cache() {
        let key = RandomState::new();
        let say = |role: &str, block: Json| {
            let parts = shape(&json!({"messages": [{"role": role, "content": [block]}]}), &key);
            parts[0]["fingerprint"].clone()
        };
        let plain = say("user", json!({"type": "text", "text": "one"}));
        let mark = json!({"type": "ephemeral"});
        assert_eq!(
            plain,
            say("user", json!({"cache_control": mark, "text": "one", "type": "text"}))
        );
        for (role, other) in [
            ("user", json!({"type": "text", "text": "two"})),
            ("system", json!({"type": "text", "text": "one"})),
            ("user", json!({"type": "text", "text": "one", "citations": []})),
            ("user", json!({"type": "one", "text": "text"})),
        ] {
            assert_ne!(plain, say(role, other.clone()), "{role} {other}");
        }
        let nested = |block: Json| say("user", json!({"type": "tool_result", "content": [block]}));
        let text = json!({"type": "text", "text": "r"});
        assert_eq!(
            nested(text.clone()),
            nested(json!({"type": "text", "text": "r", "cache_control": mark}))
        );
        assert_ne!(nested(text), nested(json!({"type": "text", "text": "q"})));
    }

    #[test]
    fn fingerprints_differ_under_another_key_and_are_missing_without_one() {
        let body = json!({"messages": [{"role": "user", "content": "one"}]});
        let one = shape(&body, &RandomState::new());
        assert_ne!(one, shape(&body, &RandomState::new()));
        let private = RequestShape::read(body.to_string().as_bytes(), None).unwrap();
        let private = serde_json::to_value(private).unwrap();
        assert_eq!(private[0]["bytes"], 5);
        assert_eq!(private[0].get("fingerprint"), None);
    }

    #[test]
    fn shape_has_no_content() {
        let body = json!({"a secret name": "a secret value", "messages": [
            {"role": "a secret role", "content": [{"type": "a secret type", "secret": 1}], "name": "secret"},
            {"role": "user", "content": "a secret text"}]});
        let shape = RequestShape::read(body.to_string().as_bytes(), None).unwrap();
        let shown = serde_json::to_string(&shape).unwrap();
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn long_request_is_bounded_and_its_rest_still_compares() {
        let key = RandomState::new();
        let body = |last: &str| {
            let mut messages = vec![json!({"role": "user", "content": "one"}); MAX_PARTS + 7];
            messages.push(json!({"role": "user", "content": last}));
            json!({ "messages": messages })
        };
        let (one, other) = (shape(&body("one"), &key), shape(&body("two"), &key));
        assert_eq!(one.len(), MAX_PARTS);
        assert_eq!(one.last().unwrap()["more"], 8);
        assert_eq!(one[..MAX_PARTS - 1], other[..MAX_PARTS - 1]);
        assert_ne!(one.last(), other.last());
        assert_eq!(shape(&body("one"), &key), one);
    }

    #[test]
    fn body_that_is_no_object_has_no_shape() {
        for body in ["", "[]", "{\"messages\":[", "text"] {
            assert!(RequestShape::read(body.as_bytes(), None).is_none(), "{body}");
        }
    }
}
