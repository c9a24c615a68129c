//! Cursors of a stream. Each line or frame gets the number of the log entry that it was written from,
//! so that a reader can go on after it. Formats know nothing about logs.

use serde_json::{Map, Value};
use throughline_canonical::Fault;
use throughline_conversations::projects::problem::Problem;

/// The place of a line or frame: the number of its entry, and which of the frames of that entry it
/// is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pub(super) number: u64,
    part: u64,
}

impl Cursor {
    /// Reads `12` or `12.1`.
    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        let (number, part) = text.split_once('.').unwrap_or((text, "0"));
        match (number.parse(), part.parse()) {
            (Ok(number), Ok(part)) => Ok(Self { number, part }),
            _ => Err(Self::unknown(text)),
        }
    }

    /// The error of a cursor that the run does not have.
    pub(super) fn unknown(text: &str) -> Problem {
        Problem::from(Fault::at("after", format!("the run has no event `{text}`")))
            .hint("send the `id` of a frame or the `seq` of a line that you received")
    }

    fn write(self) -> String {
        match self.part {
            0 => self.number.to_string(),
            part => format!("{}.{part}", self.number),
        }
    }
}

/// Numbers the frames of an event stream that were written for one entry, and leaves out those up to
/// `after`.
pub(super) fn number_frames(written: &[u8], number: u64, after: Cursor) -> Vec<u8> {
    let written = String::from_utf8_lossy(written);
    let mut out = Vec::new();
    let frames = written.split("\n\n").filter(|frame| !frame.is_empty());
    for (part, frame) in (0..).zip(frames) {
        let cursor = Cursor { number, part };
        if cursor <= after {
            continue;
        }
        for line in frame.lines().filter(|line| !line.starts_with("id:")) {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
        out.extend_from_slice(format!("id: {}\n\n", cursor.write()).as_bytes());
    }
    out
}

/// Numbers the JSON lines that were written for one entry. `more` is added to the last one. Numbers
/// rise from line to line, so if there are several lines, only the last one has the number.
pub(super) fn number_lines(
    written: &[u8],
    number: u64,
    after: Cursor,
    more: Map<String, Value>,
) -> Vec<u8> {
    if number <= after.number {
        return Vec::new();
    }
    let mut lines: Vec<Map<String, Value>> = written
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    if let Some((last, before)) = lines.split_last_mut() {
        last.shift_remove("seq");
        last.extend(more);
        last.insert("seq".to_owned(), number.into());
        for line in before {
            line.shift_remove("seq");
        }
    }
    let mut out = Vec::new();
    for line in lines {
        out.extend_from_slice(Value::Object(line).to_string().as_bytes());
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_are_written() {
        for text in ["0", "12", "12.1"] {
            assert_eq!(Cursor::read(text).unwrap().write(), text);
        }
        for text in ["", "x", "-1", "1.", "1.2.3"] {
            assert!(Cursor::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn frames_get_the_number_of_their_entry() {
        let written = b"event: a\nid: 1\ndata: {}\n\ndata: [DONE]\n\n";
        let all = number_frames(written, 7, Cursor::default());
        let all = String::from_utf8(all).unwrap();
        assert_eq!(all, "event: a\ndata: {}\nid: 7\n\ndata: [DONE]\nid: 7.1\n\n");
        let rest = number_frames(written, 7, Cursor::read("7").unwrap());
        assert_eq!(String::from_utf8(rest).unwrap(), "data: [DONE]\nid: 7.1\n\n");
    }

    #[test]
    fn lines_get_the_number_of_their_entry() {
        let more: Map<String, Value> = [("nodeId".to_owned(), "n".into())].into_iter().collect();
        let written = b"{\"type\":\"a\",\"seq\":1}\n{\"type\":\"b\",\"seq\":2}\n";
        let all = number_lines(written, 7, Cursor::default(), more);
        let expected = "{\"type\":\"a\"}\n{\"type\":\"b\",\"nodeId\":\"n\",\"seq\":7}\n";
        assert_eq!(String::from_utf8(all).unwrap(), expected);
        assert_eq!(number_lines(written, 7, Cursor::read("7").unwrap(), Map::new()), b"");
    }
}
