//! The prompt that a request becomes: tools, system texts and messages, with the marks for the
//! prompt cache.

use serde_json::{Value, json};

use super::request::{ParsedRequest, kind_of};
use crate::prompt_cache::{Caching, Lifetime, Marks, PromptPart, mark_of, unmarked};
use crate::refusal::Refusal;

/// The shortest prefix that is cached: parts of model names and a number of tokens. Most models
/// cache from 1024 tokens on.
const MIN_TOKENS: &[(&str, usize)] = &[
    ("opus-5", 512),
    ("fable-5", 512),
    ("mythos-5", 512),
    ("opus-4-5", 4096),
    ("opus-4-6", 4096),
    ("opus-4-7", 4096),
    ("haiku-4-5", 4096),
];
const DEFAULT_MIN_TOKENS: usize = 1024;

/// How a model's prompts are cached.
pub(crate) fn caching(model: &str) -> Caching {
    let name = model.to_lowercase().replace('.', "-");
    let row = MIN_TOKENS.iter().find(|(part, _)| name.contains(part));
    Caching::Marks { least: row.map_or(DEFAULT_MIN_TOKENS, |(_, least)| *least) }
}

/// The parts of the prompt, in the order in which the provider reads them. The parts of messages
/// depend on the settings that change how messages are read.
pub(crate) fn parts(request: &ParsedRequest) -> Vec<PromptPart> {
    let tools = request.tools.iter().map(|tool| PromptPart::new("", &text(tool), mark_of(tool)));
    let system =
        request.system.iter().map(|block| PromptPart::new("", &text(block), mark_of(block)));
    let mut parts: Vec<PromptPart> = tools.chain(system).collect();
    let mut settings = format!("{}{}", request.thinking["type"], request.tool_choice);
    for turn in &request.turns {
        let members = Value::Object(turn.members.clone());
        for block in &turn.blocks {
            let context = format!("{settings}{}{members}", turn.role);
            parts.push(PromptPart::new(&context, &text(block), breakpoint(block)));
            settings.clear();
        }
    }
    if let Some(breakpoint) = mark_of(&json!({ "cache_control": request.cache_control })) {
        PromptPart::mark_last(&mut parts, breakpoint);
    }
    parts
}

/// Refuses marks that the provider refuses.
pub(crate) fn check_marks(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut marks = Marks::default();
    for (at, tool) in request.tools.iter().enumerate() {
        marks.read(tool, || format!("tools.{at}"))?;
    }
    for (at, block) in request.system.iter().enumerate() {
        marks.read(block, || format!("system.{at}"))?;
    }
    for (at, turn) in request.turns.iter().enumerate() {
        for (index, block) in turn.blocks.iter().enumerate() {
            let path = || format!("messages.{at}.content.{index}");
            for (inner, part) in inner_parts(block).iter().enumerate() {
                marks.read(part, || format!("{}.content.{inner}", path()))?;
            }
            marks.read(block, path)?;
        }
    }
    let last = request.turns.last().and_then(|turn| turn.blocks.last());
    if last.and_then(breakpoint).is_none() {
        marks.read(&json!({ "cache_control": request.cache_control }), String::new)?;
    }
    marks.check()
}

/// The breakpoint of a block, or of a part inside it, which counts at the end of the block.
fn breakpoint(block: &Value) -> Option<Lifetime> {
    mark_of(block).or_else(|| inner_parts(block).iter().rev().find_map(mark_of))
}

fn inner_parts(block: &Value) -> &[Value] {
    match &block["content"] {
        Value::Array(parts) if kind_of(block) == "tool_result" => parts,
        _ => &[],
    }
}

/// A tool or a block as the model reads it. A result that is a string is one text.
fn text(part: &Value) -> String {
    let mut part = unmarked(part);
    if kind_of(&part) == "tool_result"
        && let Some(content) = part.get_mut("content")
    {
        *content = match &*content {
            Value::String(text) => json!([{ "type": "text", "text": text }]),
            Value::Array(parts) => parts.iter().map(unmarked).collect(),
            other => other.clone(),
        };
    }
    part.to_string()
}
