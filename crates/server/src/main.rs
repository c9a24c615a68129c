//! The `throughline` binary: parses the command line and runs one command.

pub mod admin_api;
pub mod cli;
pub mod client_api;
pub mod commands;
pub mod config;
pub mod cors;
pub mod data_dir;
pub mod guard;
pub mod hosts;
pub mod keyring;
pub mod metrics;
pub mod panic_hook;
pub mod projects_api;
pub mod server;
pub mod session_cookie;
pub mod signals;
pub mod stores;
pub mod telemetry;
#[cfg(feature = "web")]
pub mod web_page;
pub mod wiring;

use std::process::ExitCode;

use clap::Parser;

/// The stack of a worker thread. A body may nest 1024 levels deep, and code that walks it needs stack
/// for each level: more than the usual 2 MiB in a debug build. Only pages that are used cost memory.
const WORKER_STACK_BYTES: usize = 8 << 20;

fn main() -> ExitCode {
    let command = cli::Cli::parse().command;
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(WORKER_STACK_BYTES)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            commands::print_note(&format!("throughline: cannot start the async runtime: {error}"));
            return ExitCode::from(1);
        }
    };
    match runtime.block_on(commands::run(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            commands::print_note(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}
