//! Replies that can be resumed. They are written from the numbered events of a log, and every frame
//! has a cursor: the number of its event, and its place among the frames of that event. To resume,
//! the reply is written again from the first event, and everything up to the cursor is left out. So
//! the parts of a reply that was cut are, byte for byte, the reply that was not. Of the events before
//! the cursor, those of the [`LogOutline`] are enough.
//!
//! In JSON lines the cursor is `seq`. An event becomes at most one line, if the log ends blocks
//! before it starts others of their index, and reports a fault before a failed end. In server-sent
//! events it is `id`.

use std::fmt;
use std::time::Duration;

use throughline_canonical::{BlockStart, Delta, Event, Fault};

use super::{ClientDialect, ReplyWriter, ag_ui, events, ndjson, ui_stream};

/// The number of the first event of a log.
const FIRST_NUMBER: u64 = 1;
/// The part of a cursor after all frames of its event.
const ALL_PARTS: u32 = u32::MAX;

/// The formats in which the log of a run can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFormat {
    /// JSON lines.
    NdJson,
    /// Canonical events as server-sent events.
    Sse,
    /// AG-UI events.
    AgUi,
    /// The AI SDK's UI message stream.
    Ui,
}

impl ReplyFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NdJson, Self::Sse, Self::AgUi, Self::Ui];

    /// The name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::NdJson => "ndjson",
            Self::Sse => "sse",
            Self::AgUi => "ag-ui",
            Self::Ui => "ui",
        }
    }

    /// Reads a name.
    pub fn read(name: &str) -> Result<Self, Fault> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|format| format!("`{}`", format.name())).join(", ");
            Fault::at("format", format!("is `{name}`; use one of {names}"))
        })
    }

    /// The dialect that has this format.
    pub fn dialect(self) -> &'static dyn ClientDialect {
        match self {
            Self::NdJson => &ndjson::NdJson,
            Self::Sse => &events::Events,
            Self::AgUi => &ag_ui::AgUi,
            Self::Ui => &ui_stream::UiStream,
        }
    }

    /// The format of a dialect, if its replies can be resumed.
    pub fn of(dialect: &dyn ClientDialect) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.dialect().name() == dialect.name())
    }
}

/// A position in the log of a run: after this frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogCursor {
    /// The number of the event. 0 is before the first one.
    pub number: u64,
    /// The place among the frames of the event, from 0.
    pub part: u32,
}

impl LogCursor {
    /// The cursor after all frames of the event with this number.
    pub fn after_event(number: u64) -> Self {
        Self { number, part: ALL_PARTS }
    }

    /// Reads `12` or `12.1`.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let (number, part) = match text.split_once('.') {
            Some((number, part)) => (number, Some(part)),
            None => (text, None),
        };
        let part = part.map_or(Some(0), |part| digits(part)?.parse().ok().filter(|part| *part > 0));
        let number = digits(number).and_then(|number| number.parse().ok());
        match (number, part) {
            (Some(number), Some(part)) => Ok(Self { number, part }),
            _ => Err(Self::unknown(text)),
        }
    }

    /// Reads `RUN:12.1`, a position in a stream over several runs.
    pub fn read_with_run(text: &str) -> Result<(&str, Self), Fault> {
        let (run, cursor) = text.rsplit_once(':').ok_or_else(|| Self::unknown(text))?;
        Ok((run, Self::read(cursor).map_err(|_| Self::unknown(text))?))
    }

    /// The fault of a cursor that no frame has.
    pub fn unknown(text: impl fmt::Display) -> Fault {
        Fault::at("after", format!("`{text}` is not a cursor of this run"))
    }
}

impl fmt::Display for LogCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            0 => write!(formatter, "{}", self.number),
            part => write!(formatter, "{}.{part}", self.number),
        }
    }
}

fn digits(text: &str) -> Option<&str> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text)
}

/// Tells which events of a log a reader needs that resumes after them. The rest of a text changes nothing in
/// what a writer writes later, so only its first delta is needed.
#[derive(Clone, Debug, Default)]
pub struct LogOutline {
    /// Open blocks that have some text, and whether it is thinking.
    begun: Vec<(u32, bool)>,
}

impl LogOutline {
    /// Whether the next event of the log is needed.
    pub fn needs(&mut self, event: &Event<'_>) -> bool {
        let (text, begun) = match event {
            Event::BlockDelta { index, delta: Delta::Text(text) } => (text, (*index, false)),
            Event::BlockDelta { index, delta: Delta::Thinking(text) } => (text, (*index, true)),
            Event::BlockStarted { index, .. } | Event::BlockEnded { index } => {
                self.begun.retain(|(known, _)| known != index);
                return true;
            }
            _ => return true,
        };
        if self.begun.contains(&begun) {
            return false;
        }
        self.begun.extend((!text.is_empty()).then_some(begun));
        true
    }
}

/// The kinds of blocks that a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    text: bool,
    thinking: bool,
    tools: bool,
    /// Blocks that have no kind.
    others: bool,
}

impl Kinds {
    /// All blocks.
    pub const ALL: Self = Self { text: true, thinking: true, tools: true, others: true };

    /// Reads a list such as `text,tools`.
    pub fn read(list: &str) -> Result<Self, Fault> {
        let mut kinds = Self { text: false, thinking: false, tools: false, others: false };
        for kind in list.split(',') {
            match kind.trim() {
                "text" => kinds.text = true,
                "thinking" => kinds.thinking = true,
                "tools" => kinds.tools = true,
                other => {
                    let why = format!("has `{other}`; use `text`, `thinking` and `tools`");
                    return Err(Fault::at("kinds", why));
                }
            }
        }
        Ok(kinds)
    }

    fn wants(self, block: &BlockStart<'_>) -> bool {
        match block {
            BlockStart::Text { .. } | BlockStart::Refusal { .. } => self.text,
            BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => self.thinking,
            BlockStart::ToolCall { .. } => self.tools,
            BlockStart::Opaque { .. } => self.others,
        }
    }
}

/// Writes the events of a log, with cursors.
pub struct ResumableReply {
    writer: Box<dyn ReplyWriter>,
    format: ReplyFormat,
    kinds: Kinds,
    /// Open blocks of kinds that the reader does not want.
    unwanted: Vec<u32>,
    /// Frames up to this one are left out.
    after: LogCursor,
    /// Whether the frame of that cursor was written, or its event had none.
    found: bool,
    begun: bool,
    /// Comes before each cursor, in streams over several runs.
    prefix: String,
    /// The last frame. Frames about a silence repeat its cursor, because the log has none of them.
    last: Option<LogCursor>,
    frames: Vec<u8>,
}

impl fmt::Debug for ResumableReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ResumableReply")
            .field("format", &self.format)
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl ResumableReply {
    /// A reply from its beginning. The writer is of the format's dialect.
    pub fn new(writer: Box<dyn ReplyWriter>, format: ReplyFormat) -> Self {
        Self {
            writer,
            format,
            kinds: Kinds::ALL,
            unwanted: Vec::new(),
            after: LogCursor::default(),
            found: true,
            begun: false,
            prefix: String::new(),
            last: None,
            frames: Vec::new(),
        }
    }

    /// Leaves out everything up to this cursor.
    #[must_use]
    pub fn after(mut self, cursor: LogCursor) -> Self {
        self.after = cursor;
        // An event may have no frame, but not a second one without a first.
        self.found = cursor.part == 0 || cursor.part == ALL_PARTS;
        self
    }

    /// Leaves out blocks of other kinds.
    #[must_use]
    pub fn with_kinds(mut self, kinds: Kinds) -> Self {
        self.kinds = kinds;
        self
    }

    /// The format.
    pub fn format(&self) -> ReplyFormat {
        self.format
    }

    /// Names the run in each cursor.
    #[must_use]
    pub fn in_run(mut self, run: &str) -> Self {
        self.prefix = format!("{run}:");
        self
    }

    /// Whether the frame of the cursor was written, or its event had none.
    pub fn knows_cursor(&self) -> bool {
        self.found
    }

    /// The cursor of the last frame.
    pub fn last(&self) -> Option<LogCursor> {
        self.last
    }

    /// Writes what comes before the first event. Its frames belong to that event.
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            self.frames.clear();
            self.writer.begin(&mut self.frames);
            self.write_frames(FIRST_NUMBER, out);
        }
    }

    /// Writes the event with this number.
    pub fn push(&mut self, number: u64, event: &Event<'_>, out: &mut Vec<u8>) {
        self.begin(out);
        if !self.is_wanted(event) {
            return self.writer.omit(event);
        }
        self.frames.clear();
        self.writer.settle(&mut self.frames);
        self.write_extra(out);
        self.writer.number(number);
        self.writer.push(event, &mut self.frames);
        self.write_frames(number, out);
    }

    /// Writes the frames of an event.
    fn write_frames(&mut self, number: u64, out: &mut Vec<u8>) {
        if self.format == ReplyFormat::NdJson {
            if !self.frames.is_empty() {
                self.last = Some(LogCursor { number, part: 0 });
            }
            if number > self.after.number {
                out.extend_from_slice(&self.frames);
            }
            self.found |= number == self.after.number;
            return;
        }
        let first = self.last.filter(|last| last.number == number).map_or(0, |last| last.part + 1);
        let frames = std::mem::take(&mut self.frames);
        for (part, frame) in (first..).zip(split_frames(&frames)) {
            let cursor = LogCursor { number, part };
            self.last = Some(cursor);
            self.found |= cursor == self.after;
            if cursor > self.after {
                self.write_frame(frame, cursor, out);
            }
        }
        self.frames = frames;
    }

    /// Writes a keep-alive after a silence of this length.
    pub fn wait(&mut self, silent: Duration, out: &mut Vec<u8>) {
        self.begin(out);
        self.frames.clear();
        match self.last {
            Some(_) => self.writer.wait(silent, &mut self.frames),
            None => self.writer.keep_alive(&mut self.frames),
        }
        self.write_extra(out);
    }

    /// Writes frames that are not in the log.
    fn write_extra(&mut self, out: &mut Vec<u8>) {
        let frames = std::mem::take(&mut self.frames);
        match self.last {
            Some(last) if self.format != ReplyFormat::NdJson => {
                for frame in split_frames(&frames) {
                    match frame.starts_with(b":") {
                        true => out.extend_from_slice(frame),
                        false => self.write_frame(frame, last, out),
                    }
                }
            }
            _ => out.extend_from_slice(&frames),
        }
        self.frames = frames;
        self.frames.clear();
    }

    /// Writes a frame with its cursor instead of an id of its own.
    fn write_frame(&self, frame: &[u8], cursor: LogCursor, out: &mut Vec<u8>) {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(self.prefix.as_bytes());
        out.extend_from_slice(cursor.to_string().as_bytes());
        out.push(b'\n');
        let lines = frame.split_inclusive(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.starts_with(b"id: ")) {
            out.extend_from_slice(line);
        }
    }

    fn is_wanted(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::BlockStarted { index, block } => {
                self.unwanted.retain(|unwanted| unwanted != index);
                let wanted = self.kinds.wants(block);
                self.unwanted.extend((!wanted).then_some(*index));
                wanted
            }
            Event::BlockDelta { index, .. } => !self.unwanted.contains(index),
            Event::BlockEnded { index } => {
                match self.unwanted.iter().position(|open| open == index) {
                    Some(at) => {
                        self.unwanted.remove(at);
                        false
                    }
                    None => true,
                }
            }
            Event::ToolStarted { .. } | Event::ApprovalNeeded { .. } | Event::ToolResult { .. } => {
                self.kinds.tools
            }
            _ => true,
        }
    }
}

/// The frames of a stream of server-sent events, each with the blank line at its end.
fn split_frames(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end =
            bytes.windows(2).position(|pair| pair == b"\n\n").map_or(bytes.len(), |at| at + 2);
        let (frame, rest) = bytes.split_at(end);
        bytes = rest;
        (!frame.is_empty()).then_some(frame)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_reads_what_it_writes_and_nothing_else() {
        for (text, number, part) in [("0", 0, 0), ("12", 12, 0), ("12.1", 12, 1)] {
            let cursor = LogCursor::read(text).unwrap();
            assert_eq!((cursor, cursor.to_string().as_str()), (LogCursor { number, part }, text));
        }
        assert_eq!(
            LogCursor::read_with_run("a:b:3.2").unwrap(),
            ("a:b", LogCursor { number: 3, part: 2 })
        );
        for text in ["", "x", "-1", "+1", "1.", "1.0", ".1", "1.x", "1.2.3", "99999999999999999999"]
        {
            assert!(LogCursor::read(text).is_err(), "{text}");
            assert!(LogCursor::read_with_run(text).is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_kinds_and_formats_are_faults() {
        assert!(Kinds::read("text, thinking,tools").is_ok());
        for list in ["", "text,", "words"] {
            assert_eq!(Kinds::read(list).unwrap_err().path.as_deref(), Some("kinds"), "{list}");
        }
        for format in ReplyFormat::ALL {
            assert_eq!(ReplyFormat::read(format.name()).unwrap(), format);
            assert_eq!(ReplyFormat::of(format.dialect()), Some(format));
        }
        assert!(ReplyFormat::read("xml").is_err());
    }
}
