//! A private Redis server for tests: a new folder, and a free port on loopback.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::server_process::{SERVE, ServerProcess, free_port};

/// How long a start may take on a busy machine.
const MAX_START: Duration = Duration::from_secs(30);

/// A running Redis server, which writes everything to files.
#[derive(Debug)]
pub struct Redis {
    /// Its address.
    pub url: String,
    port: u16,
    server: ServerProcess,
    folder: TempDir,
}

/// What a client of Redis receives that listens to channels.
#[derive(Debug)]
pub struct RedisMessages {
    client: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Redis {
    /// Starts an empty server.
    ///
    /// # Panics
    /// If Redis is not installed.
    pub fn start() -> Self {
        let port = free_port();
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("redis://127.0.0.1:{port}");
        let server = Self { url, port, server: ServerProcess::default(), folder };
        server.restart();
        server
    }

    /// Stops the server without a shutdown, as if its machine were lost.
    ///
    /// # Panics
    /// If the server does not end.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Starts the server again, on the same port and with its data.
    ///
    /// # Panics
    /// If the server does not start.
    pub fn restart(&self) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SERVE, "sh", "redis-server", "--port", &self.port.to_string()]);
        command.args(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "no"]);
        // A search for words must find them.
        command.args(["--rdbcompression", "no"]);
        command.arg("--dir").arg(self.folder.path());
        self.server.start(&mut command);
        let began = Instant::now();
        while self.try_command(&["PING"]).is_none_or(|answer| answer.trim() != "PONG") {
            assert!(
                began.elapsed() < MAX_START,
                "Redis did not start; install it with `apt-get install redis-server`"
            );
        }
    }

    /// Runs a command with `redis-cli`, and returns its output.
    ///
    /// # Panics
    /// If that fails.
    pub fn command(&self, arguments: &[&str]) -> String {
        self.try_command(arguments).unwrap_or_else(|| panic!("{arguments:?} fails"))
    }

    fn try_command(&self, arguments: &[&str]) -> Option<String> {
        let output = self.client().args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(text)
    }

    fn client(&self) -> Command {
        let mut client = Command::new("redis-cli");
        client.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        client.stderr(Stdio::null());
        client
    }

    /// Listens to all channels of a pattern, with `redis-cli`.
    ///
    /// # Panics
    /// If that fails.
    pub fn listen(&self, pattern: &str) -> RedisMessages {
        let mut client = self.client();
        client.args(["--csv", "PSUBSCRIBE", pattern]).stdout(Stdio::piped());
        let mut client = client.spawn().expect("redis-cli starts");
        let output = client.stdout.take().expect("an output");
        let mut lines = BufReader::new(output).lines();
        // It says first how to end it.
        while !lines.next().expect("an answer").expect("a line").starts_with("\"psubscribe\"") {}
        RedisMessages { client, lines }
    }

    /// Writes a snapshot. Returns the folder with it and with the log of all writes.
    pub fn save(&self) -> &Path {
        assert_eq!(self.command(&["SAVE"]).trim(), "OK");
        self.folder.path()
    }
}

impl RedisMessages {
    /// Waits for the next message: its channel and its text.
    ///
    /// # Panics
    /// If there is none any more.
    pub fn next_message(&mut self) -> (String, String) {
        let line = self.lines.next().expect("a message").expect("a line");
        let parts = read_csv(&line);
        let [kind, _, channel, text] = parts.as_slice() else {
            panic!("not a message: {line}");
        };
        assert_eq!(kind, "pmessage");
        (channel.clone(), text.clone())
    }
}

impl Drop for RedisMessages {
    fn drop(&mut self) {
        // It may have ended with its server.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

/// The strings of a line, as `redis-cli` writes them: in quotes, with backslashes.
fn read_csv(line: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut bytes = line.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'"' {
            continue;
        }
        let mut part = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            part.push(if byte == b'\\' { escaped(&mut bytes) } else { byte });
        }
        parts.push(String::from_utf8(part).expect("UTF-8"));
    }
    parts
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next().expect("a character") {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let digits: String = bytes.take(2).map(char::from).collect();
            u8::from_str_radix(&digits, 16).expect("two digits")
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_client_is_read_with_its_escapes() {
        let line = r#""pmessage","chat*","chat_stream::a","{\"content\":\"\xc3\xa4\\n, \n\"}""#;
        let expected = ["pmessage", "chat*", "chat_stream::a", "{\"content\":\"ä\\n, \n\"}"];
        assert_eq!(read_csv(line), expected);
    }
}
