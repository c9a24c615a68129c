//! Logs. They hold no content and no keys unless `[debug_log] full_body` asks for content.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, Format};

/// Starts logging to standard error. `RUST_LOG` wins over the configuration.
pub fn start(config: &Config) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        let level = if config.debug_log.enabled { "trace" } else { config.log.level.word() };
        // Other crates speak up only when something is wrong.
        EnvFilter::new(format!("warn,throughline={level}"))
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start, as in tests, keeps the first subscriber.
    let _ = match config.log.format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}
