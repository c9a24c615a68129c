//! Replays: captured replies that are sent unchanged. This file reads a capture and finds the ends
//! of its events; the scenario decides which request gets it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use http::StatusCode;

use crate::fault::Frame;

/// The largest capture that can be replayed.
const MAX_CAPTURE_BYTES: u64 = 64 * 1024 * 1024;

/// A captured reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replay {
    pub(crate) format: ReplayFormat,
    pub(crate) status: StatusCode,
    pub(crate) bytes: Bytes,
}

/// The format of a capture, which its file extension decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayFormat {
    Events,
    Json,
}

impl Replay {
    /// Reads a capture. The error is a message for the user.
    pub(crate) fn load(path: &Path, status: StatusCode) -> Result<Self, String> {
        Self::load_within(path, status, MAX_CAPTURE_BYTES)
    }

    fn load_within(path: &Path, status: StatusCode, limit: u64) -> Result<Self, String> {
        let name = path.display();
        let format = match path.extension().and_then(|end| end.to_str()) {
            Some("sse") => ReplayFormat::Events,
            Some("json") => ReplayFormat::Json,
            _ => return Err(format!("`{name}` must end in `.sse` or `.json`")),
        };
        let unreadable = |error| format!("cannot read `{name}`: {error}");
        let file = File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        // Reads one byte more than the limit to detect a file that is too long, even if it grows.
        let read = file.take(limit + 1).read_to_end(&mut bytes);
        if read.map_err(unreadable)? as u64 > limit {
            return Err(format!("`{name}` is longer than {limit} bytes"));
        }
        Ok(Self { format, status, bytes: bytes.into() })
    }
}

/// The events of a stream, each with the blank line that ends it. Joined, they are the stream.
pub(crate) fn events(stream: &Bytes) -> Vec<Frame> {
    let mut frames = Vec::new();
    let (mut event, mut line, mut blank) = (0, 0, true);
    while let Some(length) = stream[line..].iter().position(|byte| b"\r\n".contains(byte)) {
        let end = line + length;
        blank &= length == 0;
        line = end + 1;
        if stream[end..].starts_with(b"\r\n") {
            line += 1;
        }
        // Blank lines before an event belong to it.
        if length == 0 && !blank {
            frames.push(frame(stream.slice(event..line)));
            (event, blank) = (line, true);
        }
    }
    if event < stream.len() {
        frames.push(frame(stream.slice(event..)));
    }
    frames
}

fn frame(bytes: Bytes) -> Frame {
    Frame { bytes, tokens: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ends_after_its_blank_line() {
        for (stream, expected) in [
            ("", &[][..]),
            ("data: 1\n\n", &["data: 1\n\n"]),
            ("event: a\ndata: 1\n\ndata: 2\n\n", &["event: a\ndata: 1\n\n", "data: 2\n\n"]),
            ("a: 1\r\n\r\nb: 2\r\n\r\n", &["a: 1\r\n\r\n", "b: 2\r\n\r\n"]),
            ("a: 1\r\rb: 2\r\r", &["a: 1\r\r", "b: 2\r\r"]),
            ("a: 1\n\r\nb: 2", &["a: 1\n\r\n", "b: 2"]),
            ("\n\na: 1\n\n\nb: 2\n\n", &["\n\na: 1\n\n", "\nb: 2\n\n"]),
            (": note\n\na: 1\n", &[": note\n\n", "a: 1\n"]),
            ("\n", &["\n"]),
        ] {
            let frames = events(&Bytes::from_static(stream.as_bytes()));
            let found: Vec<&[u8]> = frames.iter().map(|frame| frame.bytes.as_ref()).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|event| event.as_bytes()).collect();
            assert_eq!(found, expected, "{stream:?}");
        }
    }

    #[test]
    fn capture_is_read_up_to_its_size_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sse");
        std::fs::write(&path, b"\xff four").unwrap();
        let replay = Replay::load_within(&path, StatusCode::OK, 6).unwrap();
        assert_eq!(
            (replay.format, replay.bytes.as_ref()),
            (ReplayFormat::Events, &b"\xff four"[..])
        );
        let refused = Replay::load_within(&path, StatusCode::OK, 5).unwrap_err();
        assert!(refused.contains("longer than 5 bytes"), "{refused}");
    }
}
