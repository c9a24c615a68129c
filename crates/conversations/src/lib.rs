//! Conversations that are kept, for clients that keep none.
//!
//! - [`store`]: what a durable store must do; [`in_memory`]: one that lasts as long as the process;
//!   [`suite`]: what every store has to pass;
//! - [`shelf`]: what is kept, sealed on its way there;
//! - [`responses`]: the stateful half of the Responses dialect, over any backend.

pub mod in_memory;
pub mod responses;
pub mod shelf;
pub mod store;
pub mod suite;
