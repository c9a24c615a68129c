//! One turn to a provider and back: choose a backend, decide what of the past may go, send, read
//! the reply beside the stream, remember its thinking.
//!
//! Start at [`turn`]: it is the path of a request, on one screen.

pub mod across;
pub mod again;
pub mod answer;
pub mod asked;
pub mod backend;
pub mod catalog;
pub mod counters;
pub mod gateway;
pub mod headers;
pub mod ledger;
pub mod models;
mod pass;
pub mod reply;
pub mod route;
pub mod send;
mod separating;
pub mod settings;
mod settle;
pub mod thinking;
pub mod through;
pub mod turn;
pub mod turns;
pub mod upstream;

pub use asked::Asked;
pub use backend::Backend;
pub use gateway::Gateway;
pub use settings::Settings;

/// Milliseconds since 1970, from the one clock the gateway reads.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
