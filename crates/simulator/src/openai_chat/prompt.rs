//! The prompt that a request becomes, and how the server caches it.
//!
//! Servers in front of several providers cache Claude's prompts as Anthropic does: up to the parts
//! that a client marks. All others cache by themselves.

use serde_json::{Value, json};

use super::request::{ParsedRequest, list};
use super::variants::{ReasoningOutput, Variant};
use crate::openai;
use crate::prompt_cache::{Caching, Marks, PromptPart, mark_of, unmarked};
use crate::refusal::Refusal;

/// How the prompt is cached.
pub(super) fn caching(request: &ParsedRequest, variant: &Variant) -> Caching {
    match variant.name {
        _ if has_marks(request, variant) => Caching::Marks { least: openai::MIN_CACHED_TOKENS },
        _ if variant.official => openai::caching(request.get("prompt_cache_options")),
        name if name.starts_with("deepseek") => {
            Caching::Blocks { least: openai::MIN_CACHED_TOKENS, step: 64 }
        }
        _ => Caching::Blocks { least: openai::MIN_CACHED_TOKENS, step: 128 },
    }
}

/// The parts of the prompt, in the order in which the provider reads them.
pub(super) fn parts(request: &ParsedRequest, variant: &Variant) -> Vec<PromptPart> {
    let tools = list(request.get("tools")).iter();
    if !has_marks(request, variant) {
        let tools = tools.map(|tool| PromptPart::new("", &tool.to_string(), None));
        let messages = request.messages().iter().map(|message| read(message, variant));
        return tools.chain(messages.map(|message| openai::prompt_part(&message))).collect();
    }
    let tools = tools.map(|tool| PromptPart::new("", &unmarked(tool).to_string(), mark_of(tool)));
    let mut parts: Vec<PromptPart> = tools.collect();
    for message in request.messages() {
        let mut head = unmarked(message);
        let content = head.as_object_mut().and_then(|head| head.shift_remove("content"));
        parts.push(PromptPart::new("", &head.to_string(), None));
        let content = match content {
            Some(Value::String(text)) => vec![json!({ "type": "text", "text": text })],
            Some(Value::Array(content)) => content,
            _ => Vec::new(),
        };
        let content = content.iter();
        parts.extend(
            content.map(|part| PromptPart::new("", &unmarked(part).to_string(), mark_of(part))),
        );
        if let Some(breakpoint) = mark_of(message) {
            PromptPart::mark_last(&mut parts, breakpoint);
        }
    }
    let root = json!({ "cache_control": request.get("cache_control") });
    if let Some(breakpoint) = mark_of(&root) {
        PromptPart::mark_last(&mut parts, breakpoint);
    }
    parts
}

/// A message as the server reads it. A server that has a member for reasoning ignores reasoning in
/// others, so it is not part of the prompt.
fn read(message: &Value, variant: &Variant) -> Value {
    let mut message = message.clone();
    if let (ReasoningOutput::Field(known), Some(members)) =
        (variant.reasoning_output, message.as_object_mut())
    {
        let reasoning = ["reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"];
        members.retain(|name, _| name == known || !reasoning.contains(&name.as_str()));
    }
    message
}

/// Refuses marks that the provider behind the server refuses.
pub(super) fn check_marks(request: &ParsedRequest, variant: &Variant) -> Result<(), Refusal> {
    if !has_marks(request, variant) {
        return Ok(());
    }
    let mut marks = Marks::default();
    for (at, tool) in list(request.get("tools")).iter().enumerate() {
        marks.read(tool, || format!("tools.{at}"))?;
    }
    for (at, message) in request.messages().iter().enumerate() {
        for (index, part) in list(&message["content"]).iter().enumerate() {
            marks.read(part, || format!("messages.{at}.content.{index}"))?;
        }
        marks.read(message, || format!("messages.{at}"))?;
    }
    marks.read(&json!({ "cache_control": request.get("cache_control") }), String::new)?;
    marks.check()
}

/// Whether the provider behind the server caches what a client marks.
fn has_marks(request: &ParsedRequest, variant: &Variant) -> bool {
    matches!(variant.name, "openrouter" | "litellm") && request.model().contains("claude")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Servers ignore reasoning in a member that they do not know, without an error.
    #[test]
    fn reasoning_counts_only_in_the_member_that_the_server_knows() {
        let tokens = |variant: &str, member: &str| {
            let mut message = json!({"role": "assistant", "content": "Green."});
            if !member.is_empty() {
                message[member] = "I ponder all the colours.".into();
            }
            let body = serde_json::Map::from_iter([("messages".to_owned(), json!([message]))]);
            let variant = Variant::named(variant).expect("a variant");
            PromptPart::total(&parts(&ParsedRequest::read(body), variant))
        };
        for (variant, known, other) in [
            ("llamacpp", "reasoning_content", "reasoning"),
            ("sglang", "reasoning_content", "reasoning"),
            ("vllm", "reasoning", "reasoning_content"),
            ("ollama", "reasoning", "reasoning_content"),
        ] {
            assert_eq!(tokens(variant, other), tokens(variant, ""), "{variant}");
            assert!(tokens(variant, known) > tokens(variant, "") + 6, "{variant}");
        }
    }
}
