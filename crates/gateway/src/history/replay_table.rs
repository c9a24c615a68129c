//! What of the past goes to which upstream: one table.
//!
//! Thinking goes back to whoever made it, in the form that upstream reads, and to nobody else. A cell
//! says what becomes of one kind of part; `fit` applies it and tells what was left out.

use throughline_codec::dialects::openai_chat::variants::{self, CallSignature, Replay};
use throughline_codec::dialects::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// A part of the past that its maker may want back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Reasoning that can be read, with or without a signature.
    Thinking,
    /// Reasoning its maker encrypted.
    Redacted,
    /// What a maker wants back with a call.
    CallSignature,
    /// What a maker wants back with a text.
    TextSignature,
}

/// Who made it, as the upstream sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// The upstream itself, or one whose signatures it reads.
    Same,
    /// Somebody else.
    Foreign,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Behind the last words of the user: the model is in the middle of something.
    OpenLoop,
    /// In an earlier turn.
    Earlier,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It goes as it is.
    Verbatim,
    /// Its text goes, without a signature.
    Text,
    /// It stays behind, and nothing is lost: this upstream never reads it.
    Unneeded,
    /// It stays behind; that is a loss.
    Omitted,
    /// A mark goes in its place that says it was made elsewhere, where the model wants any.
    Skipped,
}

/// One upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    thinking: Treatment,
    /// Thinking that stands in an earlier turn.
    earlier: Treatment,
    redacted: Treatment,
    call: Treatment,
    foreign_call: Treatment,
    text: Treatment,
}

use Treatment::{Omitted, Skipped, Text, Unneeded, Verbatim};

/// Signed blocks, all of them, for ever.
const ANTHROPIC: Row = Row {
    thinking: Verbatim,
    earlier: Verbatim,
    redacted: Verbatim,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Unneeded,
};

/// Signatures on their own parts; the thoughts are summaries that nobody reads again.
const GEMINI: Row = Row {
    thinking: Unneeded,
    earlier: Unneeded,
    redacted: Unneeded,
    call: Verbatim,
    foreign_call: Skipped,
    text: Verbatim,
};

/// Items as they came.
const RESPONSES: Row = Row {
    thinking: Verbatim,
    earlier: Verbatim,
    redacted: Verbatim,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Verbatim,
};

/// Text and calls.
const NOTHING: Row = Row {
    thinking: Unneeded,
    earlier: Unneeded,
    redacted: Unneeded,
    call: Unneeded,
    foreign_call: Unneeded,
    text: Unneeded,
};

/// Reasoning in a member of its own, as text.
const FIELD: Row = Row { thinking: Text, earlier: Text, ..NOTHING };

/// Reasoning between tags, or in a member that becomes such, as the model wrote it, as long as it is in
/// the middle of something.
const TAGS: Row = Row { thinking: Text, ..NOTHING };

fn row(dialect: &str, variant: &str) -> Row {
    match dialect {
        anthropic::NAME => ANTHROPIC,
        gemini::NAME => GEMINI,
        // Templates leave out what is not of the present turn by themselves.
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

/// Whether an upstream stands before one of the Anthropic dialect, and hands its blocks on.
pub fn hands_on_blocks(dialect: &str, variant: &str) -> bool {
    dialect == openai_chat::NAME && variants::find(variant).replay == Replay::Blocks
}

/// Whether an upstream reads anything of the past that clients may have lost.
pub fn reads_past(dialect: &str, variant: &str) -> bool {
    row(dialect, variant) != NOTHING
}

/// Whether an upstream may refuse a request for thinking of an earlier turn that is not there.
pub fn misses_earlier(dialect: &str, variant: &str) -> bool {
    match dialect {
        openai_responses::NAME => true,
        openai_chat::NAME => variants::find(variant).replay == Replay::ReasoningContentAlways,
        _ => false,
    }
}

/// What becomes of a part of the past.
pub fn treat(dialect: &str, variant: &str, part: Part, maker: Maker, place: Place) -> Treatment {
    let row = row(dialect, variant);
    match (part, maker, place) {
        (Part::Thinking | Part::Redacted, Maker::Foreign, _) => Omitted,
        (Part::Thinking, Maker::Same, Place::OpenLoop) => row.thinking,
        (Part::Thinking, Maker::Same, Place::Earlier) => row.earlier,
        (Part::Redacted, Maker::Same, _) => row.redacted,
        (Part::CallSignature, Maker::Same, _) => row.call,
        (Part::CallSignature, Maker::Foreign, Place::OpenLoop) => row.foreign_call,
        (Part::CallSignature, Maker::Foreign, Place::Earlier) => Unneeded,
        (Part::TextSignature, Maker::Same, _) => row.text,
        (Part::TextSignature, Maker::Foreign, _) => Unneeded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line a cell: upstream, part, made by itself in the open loop, by itself earlier, by
    /// somebody else in the open loop, by somebody else earlier.
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
    fn every_cell_of_the_table_says_what_goes_back() {
        for (dialect, variant, part, cells) in CELLS {
            let mut found = Vec::new();
            for maker in [Maker::Same, Maker::Foreign] {
                for place in [Place::OpenLoop, Place::Earlier] {
                    found.push(treat(dialect, variant, *part, maker, place));
                }
            }
            assert_eq!(found, cells, "{dialect} {variant} {part:?}");
        }
    }

    #[test]
    fn nothing_is_looked_for_where_nothing_is_read() {
        assert!(!reads_past("openai_chat", "openai"));
        assert!(reads_past("openai_chat", "google"));
        assert!(reads_past("gemini", ""));
    }
}
