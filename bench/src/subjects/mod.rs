//! The readers that are measured. Each has a file that opens it for a format and passes its output to
//! a sink, with nothing that the reader's interface does not require.

pub(crate) mod dynamo_v1;
pub(crate) mod dynamo_v2;
pub(crate) mod floor;
pub(crate) mod ours;
pub(crate) mod smg;

use crate::sink::Sink;

/// A reader of one text.
pub(crate) trait Reading {
    /// Takes the next piece.
    fn push(&mut self, piece: &str, sink: &mut impl Sink);
    /// Ends the text.
    fn finish(&mut self, sink: &mut impl Sink);
}

/// A reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The least possible work: a scan for `<`, and a copy.
    Floor,
    /// `throughline-codec`.
    Ours,
    /// `dynamo-parsers`.
    DynamoV1,
    /// `dynamo-parsers-v2`.
    DynamoV2,
    /// `reasoning-parser`, followed by `tool-parser`.
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
    /// All formats with calls.
    pub(crate) const WITH_CALLS: [Self; 5] =
        [Self::Hermes, Self::Mistral, Self::KimiK2, Self::Qwen3Coder, Self::Pythonic];
}

impl Subject {
    /// All readers, without the floor.
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

    /// Whether the reader knows this format.
    pub(crate) fn reads(self, format: Format) -> bool {
        self != Self::DynamoV2 || dynamo_v2::family(format).is_some()
    }
}
