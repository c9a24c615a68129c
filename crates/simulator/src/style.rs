//! Signature styles: where a backend puts the signature, if it signs.

use std::str::FromStr;

/// How thinking is signed on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignatureStyle {
    /// In its own delta before the block ends, as Anthropic does.
    #[default]
    Delta,
    /// Whole in the block's start, as GLM does.
    Start,
    /// An empty string, as llama.cpp does; nothing is verified.
    Empty,
    /// In its own delta, long after the text and after a ping.
    Late,
}

/// The error for an unknown style name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown signature style `{0}`; use one of delta, start, empty, late")]
pub struct UnknownStyle(String);

impl FromStr for SignatureStyle {
    type Err = UnknownStyle;

    fn from_str(text: &str) -> Result<Self, UnknownStyle> {
        match text.trim() {
            "delta" => Ok(Self::Delta),
            "start" => Ok(Self::Start),
            "empty" => Ok(Self::Empty),
            "late" => Ok(Self::Late),
            other => Err(UnknownStyle(other.to_owned())),
        }
    }
}
