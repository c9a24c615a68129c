//! Reads one HTTP reply as its bytes arrive, and counts its events. It does just enough to cost
//! little next to the proxy that is measured.

use crate::Failure;

/// The state of one reply.
#[derive(Default)]
pub(super) struct Reader {
    part: Part,
    /// Bytes of a head or a chunk size that is not complete yet.
    pending: Vec<u8>,
    after_line_end: bool,
    /// Events that are complete.
    pub(super) events: u32,
    /// Bytes of the body.
    pub(super) length: usize,
}

/// The part of the reply that the next byte belongs to.
#[derive(Default)]
enum Part {
    #[default]
    Head,
    /// A body of known length, with the bytes that are missing.
    Body(usize),
    ChunkSize,
    Chunk(usize),
    /// The line end after a chunk.
    ChunkEnd(usize),
    /// The empty line after the last chunk.
    LastLine(usize),
}

impl Reader {
    /// Takes bytes; returns whether the reply is complete.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<bool, Failure> {
        while !bytes.is_empty() {
            match self.part {
                Part::Head => {
                    self.pending.extend_from_slice(bytes);
                    let Some(end) = memchr::memmem::find(&self.pending, b"\r\n\r\n") else {
                        return Ok(false);
                    };
                    self.part = self.read_head(end)?;
                    // Only the tail of these bytes belongs to the body.
                    bytes = &bytes[bytes.len() - (self.pending.len() - end - 4)..];
                    self.pending.clear();
                    if matches!(self.part, Part::Body(0)) {
                        return Ok(true);
                    }
                }
                Part::Body(left) => {
                    let take = left.min(bytes.len());
                    self.count(&bytes[..take]);
                    bytes = &bytes[take..];
                    self.part = Part::Body(left - take);
                    if take == left {
                        return Ok(true);
                    }
                }
                Part::ChunkSize => {
                    let Some(end) = memchr::memchr(b'\n', bytes) else {
                        self.pending.extend_from_slice(bytes);
                        return Ok(false);
                    };
                    self.pending.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    let size = std::str::from_utf8(&self.pending)
                        .ok()
                        .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
                        .ok_or("a chunk size is not a number")?;
                    self.pending.clear();
                    self.part = if size == 0 { Part::LastLine(2) } else { Part::Chunk(size) };
                }
                Part::Chunk(left) => {
                    let take = left.min(bytes.len());
                    self.count(&bytes[..take]);
                    bytes = &bytes[take..];
                    self.part =
                        if take == left { Part::ChunkEnd(2) } else { Part::Chunk(left - take) };
                }
                Part::ChunkEnd(left) => {
                    bytes = &bytes[1..];
                    self.part = if left == 1 { Part::ChunkSize } else { Part::ChunkEnd(left - 1) };
                }
                Part::LastLine(left) => {
                    bytes = &bytes[1..];
                    if left == 1 {
                        return Ok(true);
                    }
                    self.part = Part::LastLine(left - 1);
                }
            }
        }
        Ok(false)
    }

    /// Reads the head, which ends at `end` of the pending bytes; returns the part after it.
    fn read_head(&self, end: usize) -> Result<Part, Failure> {
        let head = String::from_utf8_lossy(&self.pending[..end]).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        match length {
            _ if !head.starts_with("http/1.1 200") => {}
            Some(length) => return Ok(Part::Body(length)),
            None if head.contains("chunked") => return Ok(Part::ChunkSize),
            None => {}
        }
        Err(format!("not a good reply: {}", String::from_utf8_lossy(&self.pending)))
    }

    /// An event ends at an empty line, which two pieces may share.
    fn count(&mut self, data: &[u8]) {
        self.length += data.len();
        let Some(last) = data.last() else { return };
        if self.after_line_end && data[0] == b'\n' {
            self.events += 1;
        }
        let inside = memchr::memmem::find_iter(data, b"\n\n").count();
        self.events += u32::try_from(inside).unwrap_or(u32::MAX);
        // A line end that already closed an event does not open the next one.
        self.after_line_end = *last == b'\n' && !data.ends_with(b"\n\n") && data.len() > 1
            || (data == b"\n" && !self.after_line_end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_the_same_for_any_split() {
        let reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
            9\r\ndata: 1\n\n\r\n8\r\ndata: 2\n\r\na\r\n\ndata: 3\n\n\r\n0\r\n\r\n";
        for size in 1..reply.len() {
            let mut reader = Reader::default();
            let pieces: Vec<bool> =
                reply.chunks(size).map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(reader.events, 3, "pieces of {size}");
            assert_eq!(pieces.iter().filter(|end| **end).count(), 1);
        }
    }

    #[test]
    fn whole_reply_ends_after_its_length_for_any_split() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for size in 1..=reply.len() {
            let mut reader = Reader::default();
            let pieces: Vec<bool> =
                reply.chunks(size).map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(pieces.iter().filter(|end| **end).count(), 1, "pieces of {size}");
            assert_eq!(reader.length, 5);
        }
    }

    #[test]
    fn error_reply_is_shown() {
        let mut reader = Reader::default();
        let failure =
            reader.push(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        assert!(failure.contains("502"), "{failure}");
    }
}
