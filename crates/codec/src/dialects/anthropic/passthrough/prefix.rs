//! The prefix of a thinking block: the system text, the tools and all messages before it.
//!
//! Newer models sign a block together with its prefix. The hash here follows the same rules, so the
//! gateway knows before sending which blocks the provider will reject: `cache_control`, white space
//! and tools that load later do not count, and a plain string equals one text block. A summary that
//! the provider wrote replaces everything before it.

use sha2::{Digest, Sha256};
use throughline_canonical::{BlockKey, Prefix};

use super::outline::{Content, Message, Outline};
use crate::json::{Cursor, JsonError, Kind, each_element, each_member, slice};

/// The prefixes of a request as it was sent.
#[derive(Clone, Debug)]
pub struct Prefixes {
    before: Vec<Prefix>,
    whole: Prefix,
    /// The message with the last summary that the provider wrote.
    compacted_at: Option<usize>,
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
            normalise_tools(slice(body, tools), &mut buffer);
        }
        buffer.push(0xff);
        let mut hash = Sha256::new();
        hash.update(&buffer);
        let start = Prefix::of(hash);
        let mut running = start;
        let compacted_at = outline.compacted_at();
        let mut before = Vec::with_capacity(outline.messages.len());
        for (at, message) in outline.messages.iter().enumerate() {
            if compacted_at == Some(at) {
                running = start;
            }
            before.push(running);
            buffer.clear();
            normalise_message(body, message, &mut buffer);
            running = running.then(&buffer);
        }
        Self { before, whole: running, compacted_at }
    }

    /// Whether a message follows a summary that the provider wrote, or begins with it.
    pub fn is_after_summary(&self, message: usize) -> bool {
        self.compacted_at.is_some_and(|at| at <= message)
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

/// Copies the tools, without those that load later.
fn normalise_tools(tools: &[u8], out: &mut Vec<u8>) {
    let mut kept = Vec::new();
    let listed = each_element(tools, 0, |kind, span| {
        if kind != Kind::Object || !is_deferred(slice(tools, &span)) {
            kept.push(span);
        }
    });
    if listed.is_err() {
        return normalise(tools, out);
    }
    out.push(b'[');
    for tool in kept {
        normalise(slice(tools, &tool), out);
        out.push(b',');
    }
    out.push(b']');
}

fn is_deferred(tool: &[u8]) -> bool {
    let mut deferred = false;
    let read = each_member(tool, 0, |key, _, span| {
        deferred |= key == b"defer_loading" && slice(tool, &span) == b"true";
    });
    read.is_ok() && deferred
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
    fn tools_that_load_later_and_replaced_turns_do_not_count() {
        let plain = prefixes(r#"{"tools":[{"name":"a"}],"messages":[]}"#);
        let deferred =
            prefixes(r#"{"tools":[{"name":"z","defer_loading":true},{"name":"a"}],"messages":[]}"#);
        let loaded = prefixes(
            r#"{"tools":[{"name":"z","defer_loading":false},{"name":"a"}],"messages":[]}"#,
        );
        assert_eq!(plain.whole(), deferred.whole());
        assert_ne!(plain.whole(), loaded.whole());
        let summary =
            r#"{"role":"assistant","content":[{"type":"compaction","content":"in short"}]}"#;
        let failed = r#"{"role":"assistant","content":[{"type":"compaction","content":null}]}"#;
        let old = r#"{"role":"user","content":"hi"}"#;
        let whole = |messages: &[&str]| {
            prefixes(&format!(r#"{{"messages":[{}]}}"#, messages.join(","))).whole()
        };
        assert_eq!(whole(&[old, summary]), whole(&[summary]));
        assert_ne!(whole(&[old, failed]), whole(&[failed]));
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
