//! A thinking block has one key: the key computed while a reply is read equals the key found when a
//! client sends the block back.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_canonical::{BlockKey, BlockStart, Delta, Event, KeyHasher, ThinkingKind};
use throughline_codec::dialects::anthropic::outline::Outline;

use super::upstream_reply::{Incoming, replies_of};

type Key = (ThinkingKind, Option<BlockKey>);

/// A reply as the gateway stores it and as a client keeps it.
#[derive(Default)]
struct Folded {
    open: BTreeMap<u32, Open>,
    /// The keys of the closed thinking blocks, by index.
    keys: BTreeMap<u32, Key>,
    /// The closed blocks as a client sends them back.
    content: BTreeMap<u32, Value>,
}

struct Open {
    hasher: Option<(ThinkingKind, KeyHasher)>,
    block: Value,
}

impl Folded {
    fn of<'a>(capture: &Incoming, pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut folded = Self::default();
        capture.read(pieces, |event| folded.take(event));
        folded
    }

    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::BlockStarted { index, block } => {
                self.open.insert(*index, Open::new(block));
            }
            Event::BlockDelta { index, delta } => {
                if let Some(open) = self.open.get_mut(index) {
                    open.grow(delta);
                }
            }
            Event::BlockEnded { index } => {
                if let Some(open) = self.open.remove(index) {
                    if let Some((kind, hasher)) = open.hasher {
                        let signature = open.block["signature"].as_str().unwrap_or_default();
                        self.keys.insert(*index, (kind, Some(hasher.finish(signature))));
                    }
                    self.content.insert(*index, open.block);
                }
            }
            _ => {}
        }
    }

    /// The keys in the order of the message.
    fn keys(&self) -> Vec<Key> {
        self.keys.values().copied().collect()
    }

    /// A request that sends the message back.
    fn sent_back(&self) -> Value {
        let content: Vec<&Value> = self.content.values().collect();
        json!({"model": "m", "max_tokens": 5, "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "and?"},
        ]})
    }
}

impl Open {
    fn new(start: &BlockStart<'_>) -> Self {
        let hash = |kind, text: &str| {
            let mut hasher = KeyHasher::new(kind);
            hasher.push(text.as_bytes());
            Some((kind, hasher))
        };
        match start {
            BlockStart::Thinking { text, signature } => Self {
                hasher: hash(ThinkingKind::Thinking, text),
                block: json!({"type": "thinking", "thinking": text, "signature": signature}),
            },
            BlockStart::Redacted { data } => Self {
                hasher: hash(ThinkingKind::Redacted, data),
                block: json!({"type": "redacted_thinking", "data": data}),
            },
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                Self::other(json!({"type": "text", "text": text}))
            }
            BlockStart::ToolCall { id, name } => {
                Self::other(json!({"type": "tool_use", "id": id, "name": name, "input": ""}))
            }
            BlockStart::Opaque { name, .. } => Self::other(json!({"type": name})),
        }
    }

    fn other(block: Value) -> Self {
        Self { hasher: None, block }
    }

    fn grow(&mut self, delta: &Delta<'_>) {
        match delta {
            Delta::Text(text) | Delta::Thinking(text) => {
                let member = match &mut self.hasher {
                    Some((_, hasher)) => {
                        hasher.push(text.as_bytes());
                        "thinking"
                    }
                    None => "text",
                };
                self.append(member, text);
            }
            // The last signature wins.
            Delta::Signature(signature) if !signature.is_empty() => {
                self.block["signature"] = json!(signature);
            }
            Delta::ToolArguments(piece) => self.append("input", piece),
            Delta::Signature(_) | Delta::Citation(_) | Delta::Opaque(_) => {}
        }
    }

    fn append(&mut self, member: &str, piece: &str) {
        let before = self.block[member].as_str().unwrap_or_default();
        self.block[member] = json!(format!("{before}{piece}"));
    }
}

/// Covers: S1-25, S1-26, S1-27, S1-30, case 8
#[test]
fn a_block_sent_back_has_the_key_it_was_read_with() {
    let mut found = 0;
    for capture in replies_of("anthropic") {
        let folded = Folded::of(&capture, [&capture.bytes[..]]);
        let request = folded.sent_back();
        // A client may spell the JSON in its own way.
        for body in [
            serde_json::to_vec(&request).unwrap(),
            serde_json::to_vec_pretty(&request).unwrap(),
            ascii(&request.to_string()).into_bytes(),
        ] {
            let outline = Outline::read(&body, 64).unwrap();
            let keys: Vec<Key> =
                outline.thinking_blocks().map(|(_, _, kind, key)| (kind, key)).collect();
            assert_eq!(keys, folded.keys(), "{}", capture.name);
        }
        found += folded.keys.len();
    }
    assert!(found > 40, "only {found} thinking blocks in the corpus");
}

/// Covers: S1-25
#[test]
fn any_split_gives_the_same_keys() {
    for capture in replies_of("anthropic") {
        let expected = Folded::of(&capture, [&capture.bytes[..]]).keys();
        for size in [1, 2, 3, 5, 7, 11, 13, 16, 64] {
            let keys = Folded::of(&capture, capture.bytes.chunks(size)).keys();
            assert_eq!(keys, expected, "{} by {size}", capture.name);
        }
    }
}

/// A block that was cut has no key. A block that was closed before the cut has one.
#[test]
fn a_cut_gives_keys_of_closed_blocks_only() {
    for capture in replies_of("anthropic") {
        let all = Folded::of(&capture, [&capture.bytes[..]]).keys;
        let mut most = 0;
        for cut in (0..=capture.bytes.len()).step_by(3) {
            let keys = Folded::of(&capture, [&capture.bytes[..cut]]).keys;
            for (index, key) in &keys {
                assert_eq!(all.get(index), Some(key), "{} at {cut}", capture.name);
            }
            assert!(keys.len() >= most, "{} at {cut}", capture.name);
            most = keys.len();
        }
    }
}

/// Covers: S1-26
#[test]
fn a_whole_reply_gives_the_keys_of_its_stream() {
    let replies = replies_of("anthropic");
    let mut pairs = 0;
    for whole in &replies {
        let Some(name) = whole.name.strip_prefix("anthropic/whole-") else {
            continue;
        };
        if let Some(stream) = replies.iter().find(|other| other.name == format!("anthropic/{name}"))
        {
            let keys = |capture| Folded::of(capture, [&capture.bytes[..]]).keys();
            assert_eq!(keys(whole), keys(stream), "{name}");
            pairs += 1;
        }
    }
    assert!(pairs > 5);
}

/// The same JSON with everything but ASCII escaped.
fn ascii(json: &str) -> String {
    let mut text = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    text
}
