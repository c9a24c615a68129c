//! Logging. Logs never contain keys, and contain message content only with `[debug_log] full_body`.

mod json_lines;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::JsonFields;

use self::json_lines::JsonLines;
use crate::config::{Config, ConfigEnum, Format};

/// Starts logging to stderr. `RUST_LOG` overrides the configuration.
pub fn start(config: &Config) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        let level = if config.debug_log.enabled { "trace" } else { config.log.level.name() };
        // Other crates log warnings and errors only.
        EnvFilter::new(format!("warn,throughline={level}"))
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // They would be printed to stderr too, and that panics if stderr is a file on a full disk.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // A second call, as in tests, keeps the first subscriber.
    let _ = match config.log.format {
        Format::Text => builder.try_init(),
        Format::Json => builder.fmt_fields(JsonFields::new()).event_format(JsonLines).try_init(),
    };
}
