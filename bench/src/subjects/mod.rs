//! Who is measured. Each reader has its file, which opens it for a format and tells a sink what it
//! read; nothing is done there that the reader's interface does not ask for.

pub(crate) mod dynamo_v1;
pub(crate) mod dynamo_v2;
pub(crate) mod floor;
pub(crate) mod ours;
pub(crate) mod smg;

use crate::sink::Sink;

/// A reader at work on one text.
pub(crate) trait Reading {
    /// Takes the next piece.
    fn push(&mut self, piece: &str, sink: &mut impl Sink);
    /// The text has ended.
    fn finish(&mut self, sink: &mut impl Sink);
}

/// A reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// What nobody can go below: a scan for `<`, and the copy.
    Floor,
    /// `throughline-codec`.
    Ours,
    /// `dynamo-parsers`.
    DynamoV1,
    /// `dynamo-parsers-v2`.
    DynamoV2,
    /// `reasoning-parser`, and `tool-parser` behind it.
    Smg,
}

/// How a text writes its calls. Reasoning is between `<think>` and `</think>` in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// No calls, and no tools offered.
    Tags,
    /// `<tool_call>{json}</tool_call>`
    Hermes,
    /// `[TOOL_CALLS] [{json}]`
    Mistral,
    /// `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`
    Qwen3Coder,
    /// `[name(key="value")]`
    Pythonic,
    /// `<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{json}<|tool_call_end|>`
    KimiK2,
}

impl Format {
    /// All that have calls.
    pub(crate) const WITH_CALLS: [Self; 5] =
        [Self::Hermes, Self::Mistral, Self::KimiK2, Self::Qwen3Coder, Self::Pythonic];
}

impl Subject {
    /// All that read.
    pub(crate) const READERS: [Self; 4] = [Self::Ours, Self::DynamoV1, Self::DynamoV2, Self::Smg];

    /// The name in the tables.
    pub(crate) fn name(self, format: Format) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ours => "throughline",
            Self::DynamoV1 => "dynamo-parsers",
            Self::DynamoV2 => "dynamo-parsers-v2",
            Self::Smg if format == Format::Tags => "reasoning-parser",
            Self::Smg => "reasoning-parser + tool-parser",
        }
    }

    /// Whether there is such a format.
    pub(crate) fn reads(self, format: Format) -> bool {
        self != Self::DynamoV2 || dynamo_v2::family(format).is_some()
    }
}
