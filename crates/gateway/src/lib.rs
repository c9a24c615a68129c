//! One turn to a provider and back: choose a backend, decide which earlier blocks may go to it,
//! send, relay the reply and remember its thinking.
//!
//! Start at [`turn`]: it shows the path of a request on one screen.

pub mod backend;
pub mod catalog;
pub mod cool_down;
pub mod gateway;
pub mod headers;
pub mod history;
mod learnt_reasoning;
pub mod metrics;
pub mod models;
pub mod plan;
mod refused_settings;
pub mod relay;
pub mod reply;
pub mod route;
pub mod settings;
mod shared_store;
pub mod shutdown;
mod stored_settings;
pub mod thinking;
#[cfg(feature = "bench")]
#[path = "../benches/support/translated_stream.rs"]
pub mod translated_stream;
pub mod turn;
pub mod upstream;

pub use backend::Backend;
pub use gateway::Gateway;
pub use settings::Settings;
use throughline_codec::dialects::ReplyIdentity;
pub use turn::request::IncomingRequest;

/// Milliseconds since 1970. This is the only wall clock of the gateway.
pub fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The identity of a reply that begins now.
pub fn reply_identity(id: impl Into<String>) -> ReplyIdentity {
    let now = || unix_ms() / 1000;
    ReplyIdentity { now, ..ReplyIdentity::new(id, now()) }
}
