//! Reports panics by their place alone. The message of a panic may quote what a person or a model said.

use std::panic::PanicHookInfo;

/// The variable with which a developer asks for messages and backtraces of panics.
const BACKTRACE: &str = "RUST_BACKTRACE";

/// Sets the hook of a server.
pub fn install() {
    if std::env::var_os(BACKTRACE).is_none_or(|value| value == "0") {
        std::panic::set_hook(Box::new(|info| tracing::error!("{}", describe(info))));
    }
}

/// Where a panic happened, and in which thread.
fn describe(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name").to_owned();
    match info.location() {
        Some(position) => {
            format!("thread `{thread}` panicked at {position}; the message is not logged")
        }
        None => format!("thread `{thread}` panicked; the message is not logged"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    ///
    #[test]
    fn panic_is_described_without_its_message() {
        let seen = Arc::new(Mutex::new(String::new()));
        let hook_seen = seen.clone();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| *hook_seen.lock().unwrap() = describe(info)));
        let result = std::panic::catch_unwind(|| panic!("a word: secretmark"));
        std::panic::set_hook(before);
        assert!(result.is_err());
        let seen = seen.lock().unwrap().clone();
        assert!(seen.contains("panic_hook.rs:") && !seen.contains("secretmark"), "{seen}");
    }
}
