//! Which parts of the history go to which upstream, as one table.
//!
//! Thinking goes back only to its maker, in the form that this upstream reads. Each cell says what
//! to do with one kind of part. `adapt` applies the table and records what was left
//! out.

use throughline_codec::dialects::openai_chat::variants::{self, CallSignature, Replay};
use throughline_codec::dialects::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// A part of the history that its maker may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Readable reasoning, with or without a signature.
    Thinking,
    /// Reasoning that its maker encrypted.
    Redacted,
    /// The signature of a tool call.
    CallSignature,
    /// The signature of a text.
    TextSignature,
}

/// Who made a part, as the upstream sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The upstream itself, or a backend whose signatures it reads.
    Same,
    /// Another model or provider.
    Foreign,
}

/// Where a part is in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// After the last user message: the model is in the middle of its turn.
    OpenLoop,
    /// In an earlier turn.
    Earlier,
}

/// What to do with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Send it unchanged.
    Verbatim,
    /// Send its text without a signature.
    Text,
    /// Leave it out without a loss: this upstream never reads it.
    Unneeded,
    /// Leave it out and report a loss.
    Omitted,
    /// Send the skip-validation signature instead, if the model needs one.
    Skipped,
}

/// The treatments of one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    thinking: Treatment,
    /// Thinking in an earlier turn.
    earlier: Treatment,
    redacted: Treatment,
    call: Treatment,
    foreign_call: Treatment,
    text: Treatment,
}

use Treatment::{Omitted, Skipped, Text, Unneeded, Verbatim};

/// Signed blocks are always sent back.
const ANTHROPIC: Row = Row {
    thinking: Verbatim,
    earlier: Verbatim,
    redacted: Verbatim,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Unneeded,
};

/// Signatures belong to calls and texts. Thoughts are summaries that no model reads again.
const GEMINI: Row = Row {
    thinking: Unneeded,
    earlier: Unneeded,
    redacted: Unneeded,
    call: Verbatim,
    foreign_call: Skipped,
    text: Verbatim,
};

/// Items are sent back unchanged.
const RESPONSES: Row = Row {
    thinking: Verbatim,
    earlier: Verbatim,
    redacted: Verbatim,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Verbatim,
};

/// Only text and calls are sent back.
const NOTHING: Row = Row {
    thinking: Unneeded,
    earlier: Unneeded,
    redacted: Unneeded,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Unneeded,
};

/// Reasoning is sent back as text, in its own member.
const FIELD: Row = Row { thinking: Text, earlier: Text, ..NOTHING };

/// Reasoning of the present turn is sent back as text, between tags or in a member that the
/// template turns into tags.
const TAGS: Row = Row { thinking: Text, ..NOTHING };

fn row(dialect: &str, variant: &str) -> Row {
    match dialect {
        anthropic::NAME => ANTHROPIC,
        gemini::NAME => GEMINI,
        // Templates drop the reasoning of earlier turns themselves.
        ollama::NAME => TAGS,
        openai_responses::NAME => RESPONSES,
        openai_chat::NAME => chat(variants::find(variant)),
        _ => NOTHING,
    }
}

fn chat(variant: &variants::Variant) -> Row {
    let row = match variant.replay {
        Replay::Nothing => NOTHING,
        Replay::ReasoningContent
        | Replay::ReasoningContentAlways
        | Replay::Reasoning
        | Replay::Chunks => FIELD,
        Replay::Tags => TAGS,
        Replay::Details | Replay::Blocks => ANTHROPIC,
    };
    match variant.call_signature {
        CallSignature::Nowhere => row,
        CallSignature::ExtraContent | CallSignature::ProviderFields => {
            Row { call: Verbatim, foreign_call: Skipped, ..row }
        }
    }
}

/// Whether an upstream is a proxy that forwards blocks to a provider of the Anthropic dialect.
pub fn forwards_blocks(dialect: &str, variant: &str) -> bool {
    dialect == openai_chat::NAME && variants::find(variant).replay == Replay::Blocks
}

/// Whether an upstream reads anything that clients may have lost.
pub fn reads_past(dialect: &str, variant: &str) -> bool {
    row(dialect, variant) != NOTHING
}

/// Whether an upstream may refuse a request because thinking of an earlier turn is missing.
pub fn needs_earlier_thinking(dialect: &str, variant: &str) -> bool {
    match dialect {
        openai_responses::NAME => true,
        openai_chat::NAME => variants::find(variant).replay == Replay::ReasoningContentAlways,
        _ => false,
    }
}

/// What to do with a part of the history.
pub fn treat(
    dialect: &str,
    variant: &str,
    part: Part,
    maker: Maker,
    position: Position,
) -> Treatment {
    let row = row(dialect, variant);
    match (part, maker, position) {
        (Part::Thinking | Part::Redacted, Maker::Foreign, _) => Omitted,
        (Part::Thinking, Maker::Same, Position::OpenLoop) => row.thinking,
        (Part::Thinking, Maker::Same, Position::Earlier) => row.earlier,
        (Part::Redacted, Maker::Same, _) => row.redacted,
        (Part::CallSignature, Maker::Same, _) => row.call,
        (Part::CallSignature, Maker::Foreign, Position::OpenLoop) => row.foreign_call,
        (Part::CallSignature, Maker::Foreign, Position::Earlier) => Unneeded,
        (Part::TextSignature, Maker::Same, _) => row.text,
        (Part::TextSignature, Maker::Foreign, _) => Unneeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row each: upstream, variant, part, then the treatment by maker and position: same maker
    /// in the open loop, same maker earlier, other maker in the open loop, other maker earlier.
    #[rustfmt::skip]
    const CELLS: &[(&str, &str, Part, [Treatment; 4])] = &[
        ("anthropic", "", Part::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("anthropic", "", Part::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("anthropic", "", Part::CallSignature, [Unneeded; 4]),
        ("anthropic", "", Part::TextSignature, [Unneeded; 4]),
        ("gemini", "", Part::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("gemini", "", Part::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("gemini", "", Part::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
        ("gemini", "", Part::TextSignature, [Verbatim, Verbatim, Unneeded, Unneeded]),
        ("openai_responses", "", Part::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_responses", "", Part::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_responses", "", Part::CallSignature, [Unneeded; 4]),
        ("openai_responses", "", Part::TextSignature, [Verbatim, Verbatim, Unneeded, Unneeded]),
        ("ollama", "", Part::Thinking, [Text, Unneeded, Omitted, Omitted]),
        ("ollama", "", Part::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("ollama", "", Part::CallSignature, [Unneeded; 4]),
        ("ollama", "", Part::TextSignature, [Unneeded; 4]),
        ("openai_chat", "ollama", Part::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "openai", Part::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "openai", Part::CallSignature, [Unneeded; 4]),
        ("openai_chat", "deepseek-r1", Part::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "deepseek-v4", Part::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "vllm", Part::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "glm", Part::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "mistral", Part::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "think-tags", Part::Thinking, [Text, Unneeded, Omitted, Omitted]),
        ("openai_chat", "think-tags", Part::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "openrouter", Part::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "openrouter", Part::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "litellm", Part::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "litellm", Part::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
        ("openai_chat", "google", Part::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "google", Part::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
    ];

    /// Covers: S4-20, C-1, C-17
    #[test]
    fn every_cell_of_the_table_matches() {
        for (dialect, variant, part, cells) in CELLS {
            let mut found = Vec::new();
            for maker in [Maker::Same, Maker::Foreign] {
                for position in [Position::OpenLoop, Position::Earlier] {
                    found.push(treat(dialect, variant, *part, maker, position));
                }
            }
            assert_eq!(found, cells, "{dialect} {variant} {part:?}");
        }
    }

    #[test]
    fn history_is_not_looked_up_if_the_upstream_reads_none() {
        assert!(!reads_past("openai_chat", "openai"));
        assert!(reads_past("openai_chat", "google"));
        assert!(reads_past("gemini", ""));
    }
}
