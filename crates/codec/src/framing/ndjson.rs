//! Lines of JSON, cut out of a stream of bytes however it arrives.
//!
//! A line that lies whole in one read is handed over where it stands, one that is split over reads is
//! collected first. Blank lines say nothing and are passed over.

/// Cuts a stream into lines.
#[derive(Debug)]
pub struct Lines {
    /// The beginning of a line whose end has not arrived.
    carry: Vec<u8>,
    limit: usize,
    /// A line was longer than the limit; the rest of it is skipped.
    skipping: bool,
}

impl Lines {
    /// A cutter that skips lines longer than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { carry: Vec::new(), limit, skipping: false }
    }

    /// Whether the stream stands in a line that is too long to be kept.
    pub fn skips(&self) -> bool {
        self.skipping
    }

    /// Takes the next bytes and hands over each line that is now complete.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let piece = &bytes[start..end];
            start = end + 1;
            if self.skipping {
                self.skipping = false;
            } else if self.carry.is_empty() {
                hand_over(piece, &mut line);
            } else {
                self.carry.extend_from_slice(piece);
                hand_over(&self.carry, &mut line);
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

    /// The stream has ended: hands over a line that lacked only its end.
    pub fn finish(&mut self, mut line: impl FnMut(&[u8])) {
        let carry = std::mem::take(&mut self.carry);
        hand_over(&carry, &mut line);
    }
}

fn hand_over(found: &[u8], line: &mut impl FnMut(&[u8])) {
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
    fn lines_are_the_same_for_every_split_and_line_end() {
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
    fn a_line_over_the_limit_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(200);
        let all = lines(&[long.as_bytes(), b"yyy", b"z\n", b"2\n"], 100);
        assert_eq!(all, ["2"]);
        let mut cutter = Lines::new(10);
        cutter.push(long.as_bytes(), |_| {});
        assert!(cutter.skips());
        cutter.push(b"\n", |_| {});
        assert!(!cutter.skips());
    }
}
