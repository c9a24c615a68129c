//! Which parts of the history go to which upstream, as one table.
//!
//! The row of an upstream is the `replay` of its profile. Thinking goes back only to its maker, in the form that this upstream reads. Each cell says what
//! to do with one kind of part. `adapt` applies the table and records what was left
//! out.

use throughline_codec::dialects::profile::{Profile, Treatment};

/// A part of the history that its maker may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastPart {
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

/// What to do with a part of the history.
pub fn treat(profile: &Profile, part: PastPart, maker: Maker, position: Position) -> Treatment {
    let row = &profile.replay;
    match (part, maker, position) {
        (PastPart::Thinking | PastPart::Redacted, Maker::Foreign, _) => Treatment::Omitted,
        (PastPart::Thinking, Maker::Same, Position::OpenLoop) => row.thinking,
        (PastPart::Thinking, Maker::Same, Position::Earlier) => row.earlier,
        (PastPart::Redacted, Maker::Same, _) => row.redacted,
        (PastPart::CallSignature, Maker::Same, _) => row.call,
        (PastPart::CallSignature, Maker::Foreign, Position::OpenLoop) => row.foreign_call,
        (PastPart::CallSignature, Maker::Foreign, Position::Earlier) => Treatment::Unneeded,
        (PastPart::TextSignature, Maker::Same, _) => row.text,
        (PastPart::TextSignature, Maker::Foreign, _) => Treatment::Unneeded,
    }
}

#[cfg(test)]
mod tests {
    use throughline_codec::dialects;

    use super::*;
    use Treatment::{Omitted, Skipped, Text, Unneeded, Verbatim};

    fn profile(dialect: &str, variant: &str) -> &'static Profile {
        dialects::upstream(dialect).unwrap().profile(variant)
    }

    /// One row each: upstream, variant, part, then the treatment by maker and position: same maker
    /// in the open loop, same maker earlier, other maker in the open loop, other maker earlier.
    #[rustfmt::skip]
    const CELLS: &[(&str, &str, PastPart, [Treatment; 4])] = &[
        ("anthropic", "", PastPart::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("anthropic", "", PastPart::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("anthropic", "", PastPart::CallSignature, [Unneeded; 4]),
        ("anthropic", "", PastPart::TextSignature, [Unneeded; 4]),
        ("gemini", "", PastPart::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("gemini", "", PastPart::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("gemini", "", PastPart::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
        ("gemini", "", PastPart::TextSignature, [Verbatim, Verbatim, Unneeded, Unneeded]),
        ("openai_responses", "", PastPart::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_responses", "", PastPart::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_responses", "", PastPart::CallSignature, [Unneeded; 4]),
        ("openai_responses", "", PastPart::TextSignature, [Verbatim, Verbatim, Unneeded, Unneeded]),
        ("ollama", "", PastPart::Thinking, [Text, Unneeded, Omitted, Omitted]),
        ("ollama", "", PastPart::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("ollama", "", PastPart::CallSignature, [Unneeded; 4]),
        ("ollama", "", PastPart::TextSignature, [Unneeded; 4]),
        ("openai_chat", "ollama", PastPart::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "openai", PastPart::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "openai", PastPart::CallSignature, [Unneeded; 4]),
        ("openai_chat", "deepseek-r1", PastPart::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "deepseek-v4", PastPart::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "vllm", PastPart::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "glm", PastPart::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "mistral", PastPart::Thinking, [Text, Text, Omitted, Omitted]),
        ("openai_chat", "think-tags", PastPart::Thinking, [Text, Unneeded, Omitted, Omitted]),
        ("openai_chat", "think-tags", PastPart::Redacted, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "openrouter", PastPart::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "openrouter", PastPart::Redacted, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "litellm", PastPart::Thinking, [Verbatim, Verbatim, Omitted, Omitted]),
        ("openai_chat", "litellm", PastPart::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
        ("openai_chat", "google", PastPart::Thinking, [Unneeded, Unneeded, Omitted, Omitted]),
        ("openai_chat", "google", PastPart::CallSignature, [Verbatim, Verbatim, Skipped, Unneeded]),
    ];

    /// Covers: S4-20, C-1, C-17
    #[test]
    fn every_cell_of_the_table_matches() {
        for (dialect, variant, part, cells) in CELLS {
            let mut found = Vec::new();
            for maker in [Maker::Same, Maker::Foreign] {
                for position in [Position::OpenLoop, Position::Earlier] {
                    found.push(treat(profile(dialect, variant), *part, maker, position));
                }
            }
            assert_eq!(found, cells, "{dialect} {variant} {part:?}");
        }
    }
}
