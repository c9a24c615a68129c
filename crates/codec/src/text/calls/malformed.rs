//! Malformed arguments of a call that has started. They are content, up to the bracket that ends them.
//! Brackets that close what the arguments opened are dropped.

use super::Progress;

/// The brackets that are open in malformed arguments.
#[derive(Clone, Debug, Default)]
pub(super) struct Malformed {
    /// What closes the arguments.
    closer: u8,
    /// What closes the containers that were open when the arguments broke, from the outermost one.
    inherited: Vec<u8>,
    /// How many brackets of each kind the malformed text has opened.
    opened: [usize; 3],
}

/// Why malformed arguments end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MalformedEnd {
    /// At their closing bracket, which is unread.
    Closed,
    /// At this byte: a bracket of something around them, a line break or the start of a marker. The
    /// arguments never go past a line or a marker, so that a missing bracket does not take the rest of
    /// the answer.
    Other(u8),
}

impl Malformed {
    /// Starts with these containers open, in arguments that this byte closes.
    pub(super) fn new(closer: u8, inherited: Vec<u8>) -> Self {
        Self { closer, inherited, opened: [0; 3] }
    }

    /// Reads the next text. Returns why the arguments end, if they end before its next byte.
    pub(super) fn read(&mut self, text: &str, last: bool) -> (Option<MalformedEnd>, Progress) {
        for (at, byte) in text.bytes().enumerate() {
            match (byte, kind(byte)) {
                (b'(' | b'[' | b'{', Some(kind)) => self.opened[kind] += 1,
                (_, Some(kind)) if self.opened[kind] > 0 => self.opened[kind] -= 1,
                (_, Some(_)) if at > 0 => return (None, Progress::Text(at)),
                (_, Some(_)) => return self.close(byte, text.as_bytes().get(1), last),
                (b'\n' | b'<', _) => return (Some(MalformedEnd::Other(byte)), Progress::Text(at)),
                _ => {}
            }
        }
        match text.len() {
            0 => (None, Progress::More(0)),
            length => (None, Progress::Text(length)),
        }
    }

    /// Reads a closing bracket that the malformed text did not open.
    fn close(
        &mut self,
        byte: u8,
        next: Option<&u8>,
        last: bool,
    ) -> (Option<MalformedEnd>, Progress) {
        if let Some(at) = self.inherited.iter().rposition(|closer| *closer == byte) {
            self.inherited.truncate(at);
            return (None, Progress::Called(1));
        }
        match next {
            _ if byte == self.closer => (Some(MalformedEnd::Closed), Progress::Text(0)),
            None if !last => (None, Progress::More(0)),
            // A bracket that nothing opened.
            Some(b')' | b']' | b'}') => (None, Progress::Called(1)),
            _ => (Some(MalformedEnd::Other(byte)), Progress::Text(0)),
        }
    }
}

/// The kind of a bracket.
fn kind(byte: u8) -> Option<usize> {
    match byte {
        b'(' | b')' => Some(0),
        b'[' | b']' => Some(1),
        b'{' | b'}' => Some(2),
        _ => None,
    }
}
