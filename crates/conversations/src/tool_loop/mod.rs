//! The tool loop: the model calls tools of MCP servers, the server runs them, and the model is asked
//! again, until it has answered. All rounds are one run and one answer.
//!
//! - [`machine`]: decides what happens next;
//! - `driver`: does it: asks the model, notes and makes calls, writes the events of all rounds;
//! - `joined_rounds`: joins the events of all rounds into those of one reply;
//! - [`approvals`]: calls that wait for a person, and what people decide.
//!
//! A call is in the log before it is made, and is never made twice. If the run ends first, the log
//! says that the call may have run (`runs/event_log.rs`).

pub mod approvals;
pub(crate) mod driver;
pub(crate) mod joined_rounds;
pub mod machine;

pub use machine::Limits;
