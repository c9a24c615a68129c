//! A server of others as a process of its own, on a free port, for as long as a test needs it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// For a shell: runs a command, and ends it when the input is closed, so also when the test process is killed.
pub(crate) const SERVE: &str =
    r#""$@" & server=$!; read -r _; kill -QUIT "$server"; wait "$server""#;

/// The process, while it runs.
#[derive(Debug, Default)]
pub(crate) struct ServerProcess(Mutex<Option<Child>>);

impl ServerProcess {
    /// Starts it: a shell with [`SERVE`].
    ///
    /// # Panics
    /// If there is no shell.
    pub(crate) fn start(&self, shell: &mut Command) {
        self.stop();
        let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(child.expect("a shell"));
    }

    /// Stops it without a shutdown, as if its machine were lost.
    ///
    /// # Panics
    /// If it does not end.
    pub(crate) fn stop(&self) {
        let child = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut child) = child {
            drop(child.stdin.take());
            child.wait().expect("the server ends");
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A free port. No other process takes it, because the system does not give it away again soon.
pub(crate) fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("an address").port()
}
