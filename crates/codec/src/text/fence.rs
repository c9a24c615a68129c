//! Fenced code in an answer. Markers inside it are only text.

/// Follows the lines of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Fence {
    /// The open fence: its character and how many of them opened it.
    open: Option<(u8, usize)>,
    line: Line,
}

/// How far a fence may be indented, in lists and after the `>` of quotes.
const MAX_INDENT: usize = 16;

/// The position in the current line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// Only indentation so far, this many characters.
    Start(u8),
    /// In a run of fence characters at the start of the line.
    Run(u8, usize),
    /// After the run that opened a fence.
    Info,
    /// After a run that closes the fence, if nothing else follows on the line.
    Closing,
    Middle,
}

impl Default for Fence {
    fn default() -> Self {
        Self { open: None, line: Line::Start(0) }
    }
}

impl Fence {
    /// Whether a fence is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Starts again, after something that is not part of the answer.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Follows text outside a fence. Returns the position after an opening run, if there is one.
    pub(crate) fn outside(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            if let Line::Run(character, count) = self.line {
                let (end, count) = run(bytes, at, character, count);
                at = end;
                if at == bytes.len() {
                    self.line = Line::Run(character, count);
                    return None;
                }
                if count >= 3 {
                    self.open = Some((character, count));
                    self.line = Line::Info;
                    return Some(at);
                }
                self.line = Line::Middle;
            }
            let Some(found) = memchr::memchr2(b'`', b'~', &bytes[at..]) else {
                self.line = self.line.skip(&bytes[at..]);
                return None;
            };
            self.line = self.line.skip(&bytes[at..at + found]);
            at += found;
            if let Line::Start(_) = self.line {
                self.line = Line::Run(bytes[at], 0);
            } else {
                self.line = Line::Middle;
                at += 1;
            }
        }
    }

    /// Follows text inside a fence. Returns the position after the end of the fence, if it closes.
    pub(crate) fn inside(&mut self, bytes: &[u8]) -> Option<usize> {
        let (fence, opened) = self.open?;
        let mut at = 0;
        while at < bytes.len() {
            match self.line {
                // A backtick on the opening line means that this is inline code.
                Line::Info => match memchr::memchr2(fence, b'\n', &bytes[at..]) {
                    None => return None,
                    Some(found) if bytes[at + found] == b'\n' => {
                        at += found + 1;
                        self.line = Line::Start(0);
                    }
                    Some(found) if fence == b'~' => at += found + 1,
                    Some(found) => {
                        self.open = None;
                        self.line = Line::Middle;
                        return Some(at + found + 1);
                    }
                },
                Line::Run(character, count) => {
                    let (end, count) = run(bytes, at, character, count);
                    at = end;
                    self.line = if at == bytes.len() {
                        Line::Run(character, count)
                    } else if count >= opened {
                        Line::Closing
                    } else {
                        Line::Middle
                    };
                }
                Line::Closing => match bytes[at] {
                    b'\n' => {
                        self.open = None;
                        self.line = Line::Start(0);
                        return Some(at + 1);
                    }
                    b' ' | b'\t' | b'\r' => at += 1,
                    _ => self.line = Line::Middle,
                },
                Line::Start(_) | Line::Middle => match memchr::memchr(fence, &bytes[at..]) {
                    None => {
                        self.line = self.line.skip(&bytes[at..]);
                        return None;
                    }
                    Some(found) => {
                        self.line = self.line.skip(&bytes[at..at + found]);
                        at += found;
                        if let Line::Start(_) = self.line {
                            self.line = Line::Run(fence, 0);
                        } else {
                            at += 1;
                        }
                    }
                },
            }
        }
        None
    }
}

/// Returns where a run of one character ends, and its length with the `before` earlier ones.
fn run(bytes: &[u8], from: usize, character: u8, before: usize) -> (usize, usize) {
    let more = bytes[from..].iter().take_while(|byte| **byte == character).count();
    (from + more, before + more)
}

impl Line {
    /// The position after text without fence characters.
    fn skip(self, bytes: &[u8]) -> Self {
        let indents = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'>');
        let indent = bytes.iter().rev().take(MAX_INDENT + 1).take_while(indents).count();
        match bytes.len().checked_sub(indent + 1).map(|before| bytes[before]) {
            _ if indent > MAX_INDENT => Self::Middle,
            Some(b'\n' | b'\r') => Self::Start(indent as u8),
            Some(_) => Self::Middle,
            None => match self {
                Self::Start(before) if usize::from(before) + indent <= MAX_INDENT => {
                    Self::Start(before + indent as u8)
                }
                Self::Start(_) => Self::Middle,
                line => line,
            },
        }
    }
}
