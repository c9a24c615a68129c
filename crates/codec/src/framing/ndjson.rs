//! Cuts a stream of bytes into lines of JSON.
//!
//! A line inside one read is passed on without a copy. A line that is split over several reads is
//! collected first. Blank lines are ignored.

/// Cuts a stream into lines.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The start of a line whose end has not arrived.
    carry: Vec<u8>,
    limit: usize,
    /// The current line is longer than the limit, so the rest of it is skipped.
    skipping: bool,
}

impl Lines {
    /// Creates a cutter that skips lines longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { carry: Vec::new(), limit, skipping: false }
    }

    /// Whether the current line is too long and is being skipped.
    pub fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// Takes the next bytes and passes each complete line to `line`.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let piece = &bytes[start..end];
            start = end + 1;
            if self.skipping {
                self.skipping = false;
            } else if self.carry.is_empty() {
                emit(piece, &mut line);
            } else {
                self.carry.extend_from_slice(piece);
                emit(&self.carry, &mut line);
                self.carry.clear();
            }
        }
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

    /// Ends the stream. A last line without a line feed is passed to `line`.
    pub fn finish(&mut self, mut line: impl FnMut(&[u8])) {
        let carry = std::mem::take(&mut self.carry);
        emit(&carry, &mut line);
    }
}

fn emit(found: &[u8], line: &mut impl FnMut(&[u8])) {
    let found = found.trim_ascii();
    if !found.is_empty() {
        line(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]], limit: usize) -> Vec<String> {
        let mut cutter = Lines::new(limit);
        let mut all = Vec::new();
        let mut take = |line: &[u8]| all.push(String::from_utf8_lossy(line).into_owned());
        for piece in pieces {
            cutter.push(piece, &mut take);
        }
        cutter.finish(&mut take);
        all
    }

    #[test]
    fn splits_and_line_endings_do_not_change_the_lines() {
        for (stream, expected) in [
            ("", &[][..]),
            ("{\"a\":1}\n{}\n", &["{\"a\":1}", "{}"]),
            ("\n\n [1] \n\n2", &["[1]", "2"]),
            ("half", &["half"]),
        ] {
            for end in ["\n", "\r\n"] {
                let stream = stream.replace('\n', end);
                let bytes = stream.as_bytes();
                for cut in 0..=bytes.len() {
                    let (one, two) = bytes.split_at(cut);
                    assert_eq!(lines(&[one, two], 100), expected, "{stream:?} at {cut}");
                }
                let single: Vec<&[u8]> = bytes.chunks(1).collect();
                assert_eq!(lines(&single, 100), expected, "{stream:?} by bytes");
            }
        }
    }

    #[test]
    fn a_line_over_the_limit_is_skipped() {
        let long = "x".repeat(200);
        let all = lines(&[long.as_bytes(), b"yyy", b"z\n", b"2\n"], 100);
        assert_eq!(all, ["2"]);
        let mut cutter = Lines::new(10);
        cutter.push(long.as_bytes(), |_| {});
        assert!(cutter.is_skipping());
        cutter.push(b"\n", |_| {});
        assert!(!cutter.is_skipping());
    }
}
