//! A request made ready for one backend: what goes out, and what becomes of each block.

pub(crate) mod opaque;
mod opaque_retry;
pub mod outlined;
mod outlined_retry;
pub(crate) mod passthrough;
mod thinking_controls;
pub(crate) mod thinking_setting;
pub(crate) mod translate;
mod translate_retry;
pub(crate) mod translated_reply;
