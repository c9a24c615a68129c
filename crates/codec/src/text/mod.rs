//! Reasoning and tool calls in the raw text of open models, read as it streams.
//!
//! What is here so far are the two stages everything else stands on: [`utf8`] turns bytes cut
//! anywhere into text, [`marker`] finds markers cut anywhere in it.

pub mod marker;
pub mod utf8;
