//! Stored conversations, for clients that do not send their history.
//!
//! - [`store`]: the traits of a durable store, [`in_memory`]: a store in RAM, [`suite`]: the tests
//!   that every store must pass;
//! - [`watched_store`]: a store that records the result of each write;
//! - [`sealed_store`]: seals and opens what a store holds, and checks whose it is;
//! - [`bus`]: tells the readers of other instances what is new;
//! - [`runs`]: replies that go on without their client, with a log that readers can resume;
//! - [`front_doors`]: the endpoints of front ends, whose replies are runs;
//! - [`responses`]: the stateful part of the Responses dialect, with any backend;
//! - [`chat_seal`]: seals what projects store, under the key of each project;
//! - [`projects`]: conversations as trees with branches;
//! - [`rooms`]: live places where people and models talk, with hooks;
//! - [`threads`]: message threads of the Anthropic dialect, with any backend;
//! - [`tool_loop`]: models call tools of MCP servers until they have answered;
//! - [`users`]: people with a name, who log in;
//! - [`verify`]: judges stored rows, for the command `keys`.

mod body;
pub mod bus;
pub mod chat_seal;
mod copy;
pub mod front_doors;
pub mod in_memory;
mod in_memory_rooms;
mod in_memory_users;
mod path_suite;
pub mod projects;
pub mod responses;
mod room_suite;
pub mod rooms;
pub mod runs;
pub mod sealed_store;
pub mod store;
pub mod suite;
#[cfg(test)]
mod test_gateway;
pub mod threads;
pub mod tool_loop;
mod user_suite;
pub mod users;
pub mod verify;
pub mod watched_store;

pub use body::Answer;
