//! Values in `providerMetadata`. Front ends keep them and send them back unread.

use serde_json::Value;
use throughline_canonical::CacheTime;

use crate::json::{Node, quote_bytes};

/// A value that the provider wants back with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProviderValue<'a> {
    /// A signature.
    Signature(&'a str),
    /// Encrypted reasoning.
    Redacted(&'a str),
}

/// Our own key; below it is a signature or encrypted reasoning.
const OURS: &str = "throughline";
const SIGNATURE: &str = "signature";
const REDACTED: &str = "redacted";

/// Members that hold signatures: ours, and those of the AI SDK's own providers, which older
/// conversations may contain.
const SIGNATURES: &[(&str, &str)] = &[
    (OURS, SIGNATURE),
    ("anthropic", "signature"),
    ("google", "thoughtSignature"),
    ("vertex", "thoughtSignature"),
    ("googleVertex", "thoughtSignature"),
];
/// Members that hold encrypted reasoning.
const ENCRYPTED: &[(&str, &str)] = &[(OURS, REDACTED), ("anthropic", "redactedData")];

/// Reads the value from a member of a part.
pub(super) fn read<'a>(part: &Node<'a>, member: &str) -> Option<ProviderValue<'a>> {
    let metadata = part.value().get(member)?;
    let find = |members: &[(&str, &str)]| {
        let text = |(provider, name): &(&str, &str)| metadata.get(provider)?.get(name)?.as_str();
        members.iter().filter_map(text).find(|text| !text.is_empty())
    };
    let redacted = find(ENCRYPTED).map(ProviderValue::Redacted);
    redacted.or_else(|| find(SIGNATURES).map(ProviderValue::Signature))
}

/// Reads the signature from a member of a part.
pub(super) fn signature(part: &Node<'_>, member: &str) -> Option<String> {
    match read(part, member)? {
        ProviderValue::Signature(text) => Some(text.to_owned()),
        ProviderValue::Redacted(_) => None,
    }
}

/// Members that end a prefix for the prompt cache after a part.
const BREAKPOINTS: &[(&str, &str)] = &[
    (OURS, "cacheControl"),
    ("anthropic", "cacheControl"),
    ("anthropic", "cache_control"),
    ("openrouter", "cacheControl"),
    ("openrouter", "cache_control"),
];

/// Reads the breakpoint of a part for the prompt cache.
pub(super) fn cache_breakpoint(part: &Node<'_>) -> Option<CacheTime> {
    let metadata = part.value().get("providerMetadata")?;
    let breakpoint = |(provider, name): &(&str, &str)| metadata.get(provider)?.get(name);
    let breakpoint =
        BREAKPOINTS.iter().find_map(breakpoint).filter(|breakpoint| breakpoint.is_object())?;
    Some(match breakpoint.get("ttl").and_then(Value::as_str) {
        Some("1h") => CacheTime::Hour,
        _ => CacheTime::Minutes,
    })
}

/// Writes the metadata member of a chunk, with a comma before it.
pub(super) fn write(value: ProviderValue<'_>, out: &mut Vec<u8>) {
    let (name, text) = match value {
        ProviderValue::Signature(text) => (SIGNATURE, text),
        ProviderValue::Redacted(text) => (REDACTED, text),
    };
    out.extend_from_slice(b",\"providerMetadata\":{\"");
    out.extend_from_slice(OURS.as_bytes());
    out.extend_from_slice(b"\":{\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    quote_bytes(text, out);
    out.extend_from_slice(b"}}");
}
