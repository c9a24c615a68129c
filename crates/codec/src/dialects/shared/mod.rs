//! Readers and writers that several dialects share, one file per subject.
//!
//! A reader of provider replies starts with [`reply_framing`] and [`block_emitter`], a writer of
//! client replies with [`open_blocks`].

pub mod arguments;
pub(crate) mod block_emitter;
pub(crate) mod cache_control;
pub(crate) mod canonical_request;
pub(crate) mod chunk_framing;
pub mod custom_tools;
pub(crate) mod error_codes;
pub(crate) mod extensions;
pub(crate) mod fault_status;
pub(crate) mod fields;
pub(crate) mod file_owner;
pub(crate) mod frontend_settings;
pub(crate) mod hidden_reasoning;
pub(crate) mod keep_alive;
pub(crate) mod losses;
pub(crate) mod media;
pub(crate) mod members;
pub(crate) mod model_card;
pub(crate) mod names;
pub(crate) mod number;
mod objects;
pub(crate) mod open_blocks;
pub(crate) mod openai_annotations;
pub(crate) mod openai_errors;
pub(crate) mod openai_models;
pub(crate) mod openai_tools;
pub(crate) mod refusal;
pub(crate) mod refused_setting;
pub(crate) mod reply_end;
pub(crate) mod reply_framing;
pub(crate) mod sampling;
pub mod segments;
pub(crate) mod thinking_options;
pub mod timestamp;
pub(crate) mod tool_names;
