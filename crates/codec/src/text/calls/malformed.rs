//! Malformed arguments of a call that has started. They are content, up to the bracket that ends them.

/// How many brackets are open in malformed arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(usize);

impl Malformed {
    /// Starts with the bracket of the call and this many others open.
    pub(super) const fn new(depth: usize) -> Self {
        Self(depth + 1)
    }

    /// Reads the next text. Returns where it ends, and the byte there: the last closing bracket, a line
    /// break or the start of a marker. They never go past a line or a marker, so that a missing bracket
    /// does not take the rest of the answer.
    pub(super) fn read(&mut self, text: &str) -> Option<(usize, u8)> {
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
