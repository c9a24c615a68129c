//! Malformed arguments of a call that has started. They are content, up to the bracket that ends them.

use super::Progress;

/// How many brackets are open in malformed arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(usize);

impl Malformed {
    /// Starts with the bracket of the call and this many others open.
    pub(super) const fn new(depth: usize) -> Self {
        Self(depth + 1)
    }

    /// Reads the next text. Returns the byte that ends the arguments, if it is there: the last closing
    /// bracket, a line break or the start of a marker. The arguments never go past a line or a marker,
    /// so that a missing bracket does not take the rest of the answer.
    pub(super) fn read(&mut self, text: &str) -> (Option<u8>, Progress) {
        let end = self.find_end(text);
        let progress = match end {
            None if text.is_empty() => Progress::More(0),
            _ => Progress::Text(end.map_or(text.len(), |(at, _)| at)),
        };
        (end.map(|(_, byte)| byte), progress)
    }

    fn find_end(&mut self, text: &str) -> Option<(usize, u8)> {
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                b'(' | b'[' | b'{' => self.0 += 1,
                b')' | b']' | b'}' if self.0 > 1 => self.0 -= 1,
                b')' | b']' | b'}' | b'\n' | b'<' => return Some((at, byte)),
                _ => {}
            }
        }
        None
    }
}
