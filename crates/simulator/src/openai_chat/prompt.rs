//! The prompt that a request becomes, and how the server caches it.
//!
//! Servers in front of several providers cache Claude's prompts as Anthropic does: up to the parts
//! that a client marks. All others cache by themselves.

use serde_json::{Value, json};

use super::request::{ParsedRequest, list};
use super::variants::Variant;
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
        return tools.chain(request.messages().iter().map(openai::prompt_part)).collect();
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
