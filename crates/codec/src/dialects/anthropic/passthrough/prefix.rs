//! The prefix of a thinking block: the system text, the tools and all messages before it.
//!
//! Newer models sign a block together with its prefix. The hash here follows the same rules, so the
//! gateway knows before sending which blocks the provider will reject: `cache_control` and white
//! space do not count, and a plain string equals one text block.

use sha2::{Digest, Sha256};
use throughline_canonical::{BlockKey, Prefix};

use super::outline::{Content, Message, Outline};
use crate::json::{Cursor, JsonError, Kind, slice};

/// The prefixes of a request as it was sent.
#[derive(Clone, Debug)]
pub struct Prefixes {
    before: Vec<Prefix>,
    whole: Prefix,
}

impl Prefixes {
    /// Hashes a request as it is sent.
    pub fn read(body: &[u8], outline: &Outline) -> Self {
        let mut buffer = Vec::new();
        if let Some(system) = &outline.system {
            normalise_system(slice(body, system), &mut buffer);
        }
        buffer.push(0xff);
        if let Some(tools) = &outline.tools {
            normalise(slice(body, tools), &mut buffer);
        }
        buffer.push(0xff);
        let mut hash = Sha256::new();
        hash.update(&buffer);
        let mut running = Prefix::of(hash);
        let mut before = Vec::with_capacity(outline.messages.len());
        for message in &outline.messages {
            before.push(running);
            buffer.clear();
            normalise_message(body, message, &mut buffer);
            running = running.then(&buffer);
        }
        Self { before, whole: running }
    }

    /// The prefix of a message.
    pub fn before_message(&self, at: usize) -> Prefix {
        self.before.get(at).copied().unwrap_or(self.whole)
    }

    /// The prefix of the reply.
    pub fn whole(&self) -> Prefix {
        self.whole
    }
}

/// The prefix of the next thinking block in the same message.
pub fn after_block(prefix: Prefix, block: &BlockKey) -> Prefix {
    prefix.then(&block.0)
}

/// Copies the system text. A plain string equals a list with one text block.
pub fn normalise_system(system: &[u8], out: &mut Vec<u8>) {
    if system.starts_with(b"\"") {
        out.extend_from_slice(br#"[{"type":"text","text":"#);
        out.extend_from_slice(system);
        out.extend_from_slice(b",},]");
    } else {
        normalise(system, out);
    }
}

/// Copies the role and content of a message in normal form.
pub fn normalise_message(body: &[u8], message: &Message, out: &mut Vec<u8>) {
    out.push(message.role as u8);
    match &message.content {
        Content::Text(span) => {
            out.extend_from_slice(br#"{"type":"text","text":"#);
            out.extend_from_slice(slice(body, span));
            out.extend_from_slice(b",}\xff");
        }
        Content::Blocks(blocks) => {
            for block in blocks {
                normalise(slice(body, &block.span), out);
                out.push(0xff);
            }
        }
        Content::Other => normalise(slice(body, &message.span), out),
    }
}

/// Copies a value without white space and without `cache_control`.
pub fn normalise(value: &[u8], out: &mut Vec<u8>) {
    let mut cursor = Cursor::new(value, value.len());
    // The body is valid, so this cannot fail. If it did, a block would only look stale, and the
    // provider decides about that anyway.
    let copied = copy(&mut cursor, value, out);
    debug_assert!(copied.is_ok(), "{copied:?}");
}

fn copy(cursor: &mut Cursor<'_>, value: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut first = true;
    match cursor.peek()? {
        Kind::Object => {
            cursor.enter_object()?;
            out.push(b'{');
            while let Some(key) = cursor.key(&mut first)? {
                if key == b"cache_control" {
                    cursor.skip()?;
                    continue;
                }
                out.push(b'"');
                out.extend_from_slice(key);
                out.extend_from_slice(b"\":");
                copy(cursor, value, out)?;
                out.push(b',');
            }
            out.push(b'}');
        }
        Kind::Array => {
            cursor.enter_array()?;
            out.push(b'[');
            while cursor.element(&mut first)? {
                copy(cursor, value, out)?;
                out.push(b',');
            }
            out.push(b']');
        }
        _ => {
            let span = cursor.skip()?;
            out.extend_from_slice(slice(value, &span));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(body: &str) -> Prefixes {
        Prefixes::read(body.as_bytes(), &Outline::read(body.as_bytes(), 32).unwrap())
    }

    #[test]
    fn prefix_ignores_what_providers_ignore() {
        let plain = prefixes(r#"{"system":"s","messages":[{"role":"user","content":"hi"}]}"#);
        let marked = prefixes(
            r#"{ "messages" : [ {"content":[{"type":"text", "text":"hi","cache_control":{"type":"ephemeral"}}],"role":"user"}],
                "system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}], "max_tokens": 5}"#,
        );
        assert_eq!(plain.whole(), marked.whole());
    }

    #[test]
    fn prefix_includes_what_providers_compare() {
        let base = r#"{"system":"s","tools":[{"name":"t"}],"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"b"},{"type":"text","text":"x"}]}]}"#;
        let whole = prefixes(base).whole();
        for (from, to) in [
            ("\"s\"", "\"S\""),
            ("\"t\"", "\"u\""),
            ("\"hi\"", "\"ho\""),
            ("\"role\":\"user\"", "\"role\":\"assistant\""),
            ("{\"type\":\"thinking\",\"thinking\":\"a\",\"signature\":\"b\"},", ""),
        ] {
            let changed = base.replacen(from, to, 1);
            assert_ne!(changed, base);
            assert_ne!(prefixes(&changed).whole(), whole, "{from}");
        }
    }

    #[test]
    fn longer_conversation_keeps_earlier_prefixes() {
        let short = prefixes(r#"{"messages":[{"role":"user","content":"hi"}]}"#);
        let long = prefixes(
            r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"yes"}]}"#,
        );
        assert_eq!(long.before_message(1), short.whole());
        assert_ne!(long.whole(), short.whole());
    }
}
