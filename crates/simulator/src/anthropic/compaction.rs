//! Compaction: the provider writes a summary that replaces the turns before it.
//!
//! The signature of a summary has the prefix hashes of the turns that it replaces. So the thinking of
//! turns that a client keeps after the summary stays valid, although the simulator stores nothing.

use serde_json::Value;

use super::models::Model;
use super::prefix::Prefix;
use super::reply::Block;
use super::request::{ApiHeaders, ParsedRequest, kind_of};
use crate::refusal::Refusal;
use crate::signing::{Claim, Hash, SignatureKind, Signer, hash};

/// The type of a summary.
pub(crate) const KIND: &str = "compaction";
/// The start of the beta's name, whatever its date.
const BETA: &str = "compact-";
/// The word in the user's text that makes the simulator write a summary.
const TRIGGER: &str = "compact";

/// The edit of a request that allows a summary.
#[derive(Debug)]
pub(crate) struct CompactionEdit {
    /// Whether the reply ends after the summary.
    pub(crate) pauses: bool,
}

impl CompactionEdit {
    /// Reads it from `context_management`.
    pub(crate) fn read(context_management: &Value) -> Option<Self> {
        let edits = context_management["edits"].as_array()?;
        let is_it =
            |edit: &&Value| edit["type"].as_str().is_some_and(|kind| kind.starts_with("compact_"));
        let edit = edits.iter().find(is_it)?;
        Some(Self { pauses: edit["pause_after_compaction"] == Value::Bool(true) })
    }
}

/// Refuses the edit without its beta.
pub(crate) fn check(request: &ParsedRequest, api_headers: &ApiHeaders) -> Result<(), Refusal> {
    let has_beta = api_headers.betas.iter().any(|beta| beta.starts_with(BETA));
    match &request.compaction {
        Some(_) if !has_beta => Err(Refusal::extra("context_management.edits.0")),
        _ => Ok(()),
    }
}

/// Whether a block is a summary, and did not fail.
pub(crate) fn is_summary(block: &Value) -> bool {
    kind_of(block) == KIND && block["content"].is_string()
}

/// Drops the turns that the last summary replaces.
pub(crate) fn drop_replaced(request: &mut ParsedRequest) {
    let holds = |turn: &super::request::Turn| turn.blocks.iter().any(is_summary);
    if let Some(at) = request.turns.iter().rposition(holds) {
        request.turns.drain(..at);
        if let Some(turn) = request.turns.first_mut()
            && let Some(start) = turn.blocks.iter().rposition(is_summary)
        {
            turn.blocks.drain(..start);
        }
    }
}

/// Writes the summary that a request asks for.
pub(crate) fn write(
    request: &ParsedRequest,
    user_text: &str,
    signer: &Signer,
    model: &Model,
    boundaries: &[Hash],
) -> Option<Block> {
    request.compaction.as_ref().filter(|_| user_text.to_lowercase().contains(TRIGGER))?;
    let texts = request.turns.iter().flat_map(|turn| &turn.blocks).filter_map(|block| {
        let text = if is_summary(block) { &block["content"] } else { &block["text"] };
        text.as_str()
    });
    let summary = format!("So far: {}", texts.collect::<Vec<_>>().join(" / "));
    // Only summaries of models that bind their thinking keep later turns valid.
    let hidden = match model.preserved {
        true => boundaries.iter().map(hex).collect::<Vec<_>>().join(" "),
        false => String::new(),
    };
    let claim = Claim {
        family: model.family,
        shown: &summary,
        hidden: &hidden,
        prefix: Prefix::new(request).whole(),
        nonce: 0,
        ordinal: 0,
    };
    let signature = signer.sign(SignatureKind::Summary, &claim);
    Some(Block::Compaction { summary, signature })
}

/// Verifies a summary. Returns the prefixes that a turn after it may have been made after.
pub(crate) fn verify(
    block: &Value,
    path: &str,
    signer: &Signer,
    start: &Prefix,
) -> Result<Vec<Prefix>, Refusal> {
    let signature = block["signature"].as_str().unwrap_or_default();
    let summary = block["content"].as_str().unwrap_or_default();
    let opened = signer
        .open(SignatureKind::Summary, signature)
        .filter(|opened| opened.shown == hash(&[summary.as_bytes()]));
    let Some(opened) = opened else {
        let message = format!("{path}: Invalid `signature` in `compaction` block");
        return Err(Refusal {
            code: Some("compaction_signature_invalid"),
            ..Refusal::invalid(message)
        });
    };
    if opened.prefix != start.whole() {
        return Ok(Vec::new());
    }
    Ok(opened.hidden.split(' ').filter_map(unhex).map(Prefix::resumed).collect())
}

fn hex(hash: &Hash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    for (index, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(hash)
}
