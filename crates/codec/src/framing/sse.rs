//! Cuts a stream of bytes into server-sent events.
//!
//! An event inside one read is passed on without a copy. An event that is split over several reads
//! is collected first.

/// Cuts a stream into events.
#[derive(Clone, Debug)]
pub struct Framer {
    /// The start of an event whose end has not arrived.
    carry: Vec<u8>,
    /// Bytes of the current line so far.
    line: usize,
    /// The last byte was a carriage return, so a line feed now belongs to the same line ending.
    after_return: bool,
    limit: usize,
    /// The current event is longer than the limit, so the rest of it is skipped.
    skipping: bool,
}

/// One event: its name and its data, borrowed from the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The value of the last `event:` line. Empty if there is none.
    pub event: &'a [u8],
    /// The value of the first `data:` line. No dialect here splits JSON over several lines.
    pub data: &'a [u8],
}

impl Framer {
    /// Creates a framer that skips events longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { carry: Vec::new(), line: 0, after_return: false, limit, skipping: false }
    }

    /// Whether the stream is between two events.
    pub fn between_events(&self) -> bool {
        self.carry.is_empty() && self.line == 0 && !self.skipping
    }

    /// Whether a line feed may still follow that belongs to the last line ending (`\r\n`).
    pub fn in_line_end(&self) -> bool {
        self.after_return && self.line == 0
    }

    /// Whether the current event is too long and is being skipped.
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The part of the current event that has arrived, or `None` between events. Empty for an event
    /// that is too long to keep.
    pub fn half_event(&self) -> Option<&[u8]> {
        (!self.between_events()).then_some(&self.carry)
    }

    /// Takes the next bytes. Passes each complete event to `frame`, with the offset in `bytes`
    /// where the event ends.
    pub fn push(&mut self, bytes: &[u8], mut frame: impl FnMut(Frame<'_>, usize)) {
        let mut start = 0;
        let mut at = 0;
        for end in memchr::memchr2_iter(b'\n', b'\r', bytes) {
            let length = self.line + (end - at);
            let feed_of_pair = self.after_return && bytes[end] == b'\n' && length == 0;
            self.after_return = bytes[end] == b'\r';
            at = end + 1;
            self.line = 0;
            if feed_of_pair {
                // The second half of a line ending that was handled before.
                if self.carry.is_empty() && start == end {
                    start = at;
                }
                continue;
            }
            if length > 0 {
                continue;
            }
            let piece = &bytes[start..end];
            // Both halves of a line ending belong to the event, if both are here.
            let pair = self.after_return && bytes.get(at) == Some(&b'\n');
            let event_end = at + usize::from(pair);
            start = at;
            if self.skipping {
                self.skipping = false;
                self.carry.clear();
            } else if self.carry.is_empty() {
                emit(piece, event_end, &mut frame);
            } else {
                self.carry.extend_from_slice(piece);
                emit(&self.carry, event_end, &mut frame);
                self.carry.clear();
            }
        }
        self.line += bytes.len() - at;
        let rest = &bytes[start..];
        if self.skipping {
            return;
        }
        if self.carry.len() + rest.len() > self.limit {
            self.skipping = true;
            self.carry = Vec::new();
        } else {
            self.carry.extend_from_slice(rest);
        }
    }

    /// Ends the stream. An event that lacks only its closing blank line is passed to `frame`.
    pub fn finish(&mut self, mut frame: impl FnMut(Frame<'_>, usize)) {
        let carry = std::mem::take(&mut self.carry);
        emit(&carry, 0, &mut frame);
    }
}

fn emit(lines: &[u8], end: usize, frame: &mut impl FnMut(Frame<'_>, usize)) {
    let (mut event, mut data) = (None, None);
    let mut rest = lines;
    while !rest.is_empty() {
        let line_end = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let (line, after) = rest.split_at(line_end);
        rest = after.get(1..).unwrap_or_default();
        if let Some(value) = field(line, b"data") {
            data = data.or(Some(value));
        } else if let Some(value) = field(line, b"event") {
            event = Some(value);
        }
    }
    if event.is_some() || data.is_some() {
        let frame_found =
            Frame { event: event.unwrap_or_default(), data: data.unwrap_or_default() };
        frame(frame_found, end);
    }
}

/// Returns the value of a line if it has this field name.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = line.strip_prefix(name)?.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(pieces: &[&[u8]]) -> (Vec<(String, String)>, bool) {
        let mut framer = Framer::new(1000);
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for piece in pieces {
            framer.push(piece, |frame, _| {
                all.push((text(frame.event), text(frame.data)));
            });
        }
        let between = framer.between_events();
        framer.finish(|frame, _| {
            all.push((text(frame.event), text(frame.data)));
        });
        (all, between)
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected
            .iter()
            .map(|(event, data)| ((*event).to_owned(), (*data).to_owned()))
            .collect();
        for end in ["\n", "\r\n", "\r"] {
            let stream = stream.replace('\n', end);
            let bytes = stream.as_bytes();
            assert_eq!(frames(&[bytes]).0, expected, "{stream:?}");
            for cut in 0..bytes.len() {
                assert_eq!(
                    frames(&[&bytes[..cut], &bytes[cut..]]).0,
                    expected,
                    "{stream:?} cut at {cut}"
                );
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(frames(&single).0, expected, "{stream:?} by bytes");
        }
    }

    #[test]
    fn splits_and_line_endings_do_not_change_the_events() {
        check("", &[]);
        check("event: a\ndata: 1\n\ndata:2\n\n", &[("a", "1"), ("", "2")]);
        check("\n\n: comment\n\nevent: a\n\n", &[("a", "")]);
        check("id: 4\ndata: x\nevent: b\n\n", &[("b", "x")]);
        check("event: a\nevent: ping\ndata: {\n\n", &[("ping", "{")]);
        check("data: unfinished", &[("", "unfinished")]);
    }

    #[test]
    fn between_events_is_true_after_a_blank_line() {
        assert!(frames(&[b"data: 1\n\n"]).1);
        assert!(frames(&[b"data: 1\r\n\r\n"]).1);
        assert!(frames(&[b"data: 1\r\n\r"]).1);
        assert!(!frames(&[b"data: 1\n"]).1);
        assert!(!frames(&[b"data: 1"]).1);
    }

    #[test]
    fn an_event_over_the_limit_is_skipped() {
        let long = format!("data: {}", "x".repeat(2000));
        let (all, _) = frames(&[long.as_bytes(), b"yyy\n\n", b"data: 2\n\n"]);
        assert_eq!(all, [(String::new(), "2".to_owned())]);
    }

    #[test]
    fn offsets_point_to_the_end_of_each_event() {
        let mut offsets = Vec::new();
        let mut framer = Framer::new(100);
        framer.push(b"data: 1\n\ndata: 2\n\nda", |_, end| offsets.push(end));
        framer.push(b"ta: 3\n\nx", |_, end| offsets.push(end));
        assert_eq!(offsets, [9, 18, 7]);
        let mut offsets = Vec::new();
        Framer::new(100).push(b"data: 1\r\n\r\ndata: 2\r\n\r", |_, end| offsets.push(end));
        assert_eq!(offsets, [11, 21]);
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            stream in r#"(event: [ab]\r?\n|data: [a-z]{0,4}\r?\n|\r?\n|\r|: c\n){0,20}"#,
            cuts in proptest::collection::vec(0usize..200, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut start = 0;
            for cut in cuts {
                pieces.push(&bytes[start..cut]);
                start = cut;
            }
            pieces.push(&bytes[start..]);
            prop_assert_eq!(frames(&pieces), frames(&[bytes]));
        }
    }
}
