//! The vocabulary of Throughline.
//!
//! What a turn is made of, told without any vendor's words: what a client asks, thinking blocks and
//! where they come from, the events of a reply, what was lost on the way and what went wrong. No bytes, no async,
//! no I/O live here.

pub mod citation;
pub mod event;
pub mod fate;
pub mod fault;
pub mod loss;
mod replay_events;
pub mod reply;
pub mod request;
pub mod setting;
pub mod thinking;
pub mod usage;

pub use citation::{Citation, Verbatim};
pub use event::{BlockStart, Delta, EndDetails, EndReason, Event, Transformation};
pub use fate::{BlockReport, Fate, Reason};
pub use fault::{Fault, FaultKind};
pub use loss::{Loss, Lossy};
pub use reply::{Fold, Reply};
pub use request::{
    Block, MediaKind, Message, Output, Request, Role, Sampling, Source, Tool, ToolChoice,
};
pub use setting::{Amount, Effort, Show, ThinkingForm, ThinkingSetting};
pub use thinking::{BlockKey, KeyHasher, Origin, Prefix, ThinkingKind};
pub use usage::Usage;
