//! The canonical vocabulary of Throughline.
//!
//! It describes a turn without any vendor's terms: the request, thinking blocks and their origin,
//! the events of a reply, losses and faults. This crate has no wire formats, no async code and no
//! I/O.

pub mod cache;
pub mod citation;
pub mod cost;
pub mod event;
pub mod fate;
pub mod fault;
pub mod loss;
mod loss_terms;
pub mod native;
mod replay_events;
pub mod reply;
pub mod request;
pub mod setting;
pub mod thinking;
#[cfg(test)]
mod typescript;
pub mod usage;

pub use cache::{CacheBreakpoints, CachePlace, CacheTime};
pub use citation::{Citation, Verbatim};
pub use cost::Cost;
pub use event::{
    BlockStart, Delta, EndDetails, EndReason, Event, Out, RoundFacts, Transformation, WaitingCall,
};
pub use fate::{BlockReport, Fate, Reason};
pub use fault::{Fault, FaultKind};
pub use loss::{Loss, Lossy};
pub use loss_terms::{LossReason, LossSubject};
pub use native::{Alignment, MadeTurn, NativePart, NativeTurn};
pub use reply::{Fold, Reply};
pub use request::{
    Block, MediaKind, Message, Output, ProviderState, Request, Role, Sampling, Source, Tool,
    ToolChoice,
};
pub use setting::{Amount, Effort, Show, ThinkingForm, ThinkingSetting};
pub use thinking::{BlockKey, KeyHasher, Origin, Prefix, ThinkingKind};
pub use usage::Usage;
