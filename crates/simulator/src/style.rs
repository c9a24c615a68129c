//! Signature styles: where backends put a signature, or that they put none.

use std::str::FromStr;

/// How thinking is signed on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignatureStyle {
    /// In its own delta before the block ends, as Anthropic does.
    #[default]
    Delta,
    /// Whole in the block's start, as GLM does.
    Start,
    /// An empty string, as llama.cpp does; nothing is verified then.
    Empty,
    /// In its own delta, but long after the text: a ping stands between.
    Late,
}

/// A style that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no signature style is called `{0}`; there are delta, start, empty, late")]
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
