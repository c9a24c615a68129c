//! In fenced code after text. It is a list of calls if it contains nothing else and ends the answer,
//! so it is held until the end of the text is known.

use super::states::{Core, Flow, State};
use crate::text::calls::{JsonScanner, MAX_HELD, ScanResult, prefix_up_to};
use crate::text::event::Out;

/// Fenced code that may be a list of calls.
#[derive(Debug)]
pub(super) struct Fenced {
    /// Index of the format, and its first step.
    format: (usize, usize),
    /// The code so far, with its fence.
    raw: String,
    position: Position,
    /// Finds the end of the list.
    scanner: JsonScanner,
}

#[derive(Clone, Copy, Debug)]
enum Position {
    /// In the opening line, of which this many characters were read.
    Line(usize),
    /// In the white space at the end of the opening line.
    LineEnd,
    /// Before the list.
    Before,
    /// After the bracket of the list, before its first call.
    Bracket,
    /// In the list.
    List,
    /// After the list: this many characters of the closing fence were read.
    After(usize),
}

/// The opening line. The name of the language may be missing.
const OPENING: &[u8] = b"```json";
const FENCE: usize = 3;

impl Fenced {
    /// Starts before the fence.
    pub(super) fn new(which: usize, step: usize) -> Self {
        Self {
            format: (which, step),
            raw: String::new(),
            position: Position::Line(0),
            scanner: JsonScanner::default(),
        }
    }

    /// The code so far, with its fence.
    pub(super) fn text(&self) -> &str {
        &self.raw
    }

    /// Reads the next text. Returns the position of the first byte that does not fit, if there is
    /// one.
    fn read(&mut self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            self.position = match self.position {
                Position::Line(read) if OPENING.get(read) == Some(&byte) => {
                    Position::Line(read + 1)
                }
                Position::Line(FENCE | 7) | Position::LineEnd if is_space => match byte {
                    b'\n' => Position::Before,
                    _ => Position::LineEnd,
                },
                Position::Before | Position::Bracket if is_space => self.position,
                Position::Before if byte == b'[' => {
                    self.scanner.read(b"[");
                    Position::Bracket
                }
                Position::Bracket | Position::List if byte == b'{' || self.is_in_list() => {
                    match self.scanner.read(&bytes[at..]) {
                        ScanResult::All => {
                            self.position = Position::List;
                            return None;
                        }
                        ScanResult::Ended(used) => {
                            at += used;
                            self.position = Position::After(0);
                            continue;
                        }
                        ScanResult::Broken(used) => return Some(at + used),
                    }
                }
                Position::After(0 | FENCE) if is_space => self.position,
                Position::After(read) if byte == b'`' && read < FENCE => Position::After(read + 1),
                _ => return Some(at),
            };
            at += 1;
        }
        None
    }

    fn is_in_list(&self) -> bool {
        matches!(self.position, Position::List)
    }
}

impl Core {
    /// Holds fenced code while it may be a list of calls.
    pub(super) fn fenced(&mut self, text: &str, at: usize, out: Out<'_>) -> Flow {
        let State::Fenced(fenced) = &mut self.state else {
            return Flow::Wait(at);
        };
        let rest = prefix_up_to(&text[at..], MAX_HELD.saturating_sub(fenced.raw.len()));
        let misfit = fenced.read(rest);
        let used = misfit.unwrap_or(rest.len());
        fenced.raw.push_str(&rest[..used]);
        if misfit.is_none() && at + used == text.len() {
            return Flow::Wait(text.len());
        }
        let raw = std::mem::take(&mut fenced.raw);
        self.state = State::Content;
        self.emit_unparsed(&raw, out);
        Flow::On(at + used)
    }

    /// The text ends. Opens a block for fenced code that is a list of calls, and returns the code.
    pub(super) fn finish_fenced(&mut self, out: Out<'_>) -> Option<String> {
        let State::Fenced(fenced) = &mut self.state else {
            return None;
        };
        let raw = std::mem::take(&mut fenced.raw);
        let ((which, step), position) = (fenced.format, fenced.position);
        self.state = State::Content;
        if let Position::After(_) = position {
            self.open_block(which, step, "", None, true);
            return Some(raw);
        }
        self.emit_unparsed(&raw, out);
        None
    }
}
