//! Tools of MCP servers: finds them, offers them to models under unique names, and calls them.
//!
//! - [`servers`]: all configured servers, and the tools that a conversation asks for;
//! - [`server`]: one server: its connection, its list of tools, its calls;
//! - `connection`: starts a process or opens HTTP, with either lifecycle of the protocol;
//! - [`output`]: what a call returns, cut at a limit;
//! - `names`: the names under which models see tools.
//!
//! This crate knows nothing about models, gateways or conversations. It never logs arguments or
//! results, and never repeats a call: a tool may not be safe to repeat.

mod connection;
mod input;
mod names;
pub mod output;
pub mod server;
pub mod servers;

pub use input::{InputAnswer, PendingInput};
pub use output::ToolOutput;
pub use server::{CallOutcome, Server, ServerConfig, ToolsError, Transport};
pub use servers::{OfferedTool, ServerState, ServerView, Servers, ToolSet, ToolView};
