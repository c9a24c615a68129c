//! Writes compact JSON. Small parts are joined, long parts are passed on without a copy.
//!
//! Otherwise a piece of text such as `{'a': 1, 'b': 2}` would give one delta per bracket.

use crate::json::escape;

/// Text of at least this many bytes is passed on directly and not copied.
const MIN_DIRECT: usize = 256;

/// Limit for the buffer, so that a huge piece of text is not copied as a whole.
const MAX_BUFFERED: usize = 4096;

/// Writes JSON. The machine owns the buffer, so that its memory is reused.
pub(crate) struct JsonWriter<'a> {
    buffer: &'a mut String,
    out: &'a mut dyn FnMut(&str),
}

impl<'a> JsonWriter<'a> {
    /// Creates a writer with this buffer and output. [`JsonWriter::flush`] emits the rest of the
    /// buffer.
    pub(crate) fn new(buffer: &'a mut String, out: &'a mut dyn FnMut(&str)) -> Self {
        Self { buffer, out }
    }

    /// Writes brackets, numbers and names: short text without escapes.
    pub(crate) fn push(&mut self, part: &str) {
        if self.buffer.len() + part.len() > MAX_BUFFERED {
            self.flush();
        }
        self.buffer.push_str(part);
    }

    /// Writes text that needs no escapes.
    pub(crate) fn write_raw(&mut self, run: &str) {
        if run.is_empty() {
            return;
        }
        if self.buffer.is_empty() || run.len() >= MIN_DIRECT {
            self.flush();
            (self.out)(run);
        } else {
            self.push(run);
        }
    }

    /// Writes a character of a string, escaped in JSON's shortest form.
    pub(crate) fn write_escaped(&mut self, character: char) {
        escape(character.encode_utf8(&mut [0; 4]), self.buffer);
        self.flush_if_full();
    }

    /// Writes a character unchanged.
    pub(crate) fn write_char(&mut self, character: char) {
        self.push(character.encode_utf8(&mut [0; 4]));
    }

    /// Writes a complete string.
    pub(crate) fn write_string(&mut self, text: &str) {
        self.push("\"");
        escape(text, self.buffer);
        self.flush_if_full();
        self.push("\"");
    }

    /// Emits the buffer if it is nearly full.
    fn flush_if_full(&mut self) {
        if self.buffer.len() >= MAX_BUFFERED - 16 {
            self.flush();
        }
    }

    /// Emits the buffer.
    pub(crate) fn flush(&mut self) {
        if !self.buffer.is_empty() {
            (self.out)(self.buffer);
            self.buffer.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deltas(write: impl FnOnce(&mut JsonWriter<'_>)) -> Vec<String> {
        let (mut buffer, mut deltas) = (String::new(), Vec::new());
        let mut out = |delta: &str| deltas.push(delta.to_owned());
        let mut json = JsonWriter::new(&mut buffer, &mut out);
        write(&mut json);
        json.flush();
        deltas
    }

    #[test]
    fn small_parts_are_joined_into_one_delta() {
        let written = deltas(|json| {
            json.push("{");
            json.write_string("a");
            json.push(":");
            json.write_raw("run");
            json.push("}");
        });
        assert_eq!(written, ["{\"a\":run}"]);
    }

    #[test]
    fn a_first_or_long_run_is_not_copied() {
        let long = "x".repeat(MIN_DIRECT);
        let written = deltas(|json| {
            json.write_raw("first");
            json.push("\"");
            json.write_raw(&long);
            json.push("\"");
        });
        assert_eq!(written, ["first", "\"", &long, "\""]);
    }

    #[test]
    fn the_buffer_is_limited() {
        let written = deltas(|json| (0..MAX_BUFFERED * 2).for_each(|_| json.push("[")));
        assert!(written.iter().all(|delta| delta.len() <= MAX_BUFFERED));
        assert_eq!(written.concat().len(), MAX_BUFFERED * 2);
    }

    #[test]
    fn strings_are_escaped_in_the_shortest_form() {
        let text = "\"\\/\n\r\t\u{8}\u{c}\0\u{1b}\u{7f}é\u{2028}😀";
        let written = deltas(|json| json.write_string(text)).concat();
        assert_eq!(written, serde_json::to_string(text).unwrap());
    }
}
