//! Compact JSON on its way out: small parts are gathered, long ones are handed on as they are.
//!
//! Without that, a piece of text that holds `{'a': 1, 'b': 2}` would give a delta for every bracket.

use crate::json::escape;

/// From how many bytes on a text is handed on by itself and not copied to its neighbours.
const LONG: usize = 256;

/// How much is gathered at most, so that a huge piece of text is not copied as a whole.
const MOST: usize = 4096;

/// Writes JSON. What was gathered lives with the machine, so that its memory is used again.
pub(crate) struct JsonWriter<'a> {
    gathered: &'a mut String,
    out: &'a mut dyn FnMut(&str),
}

impl<'a> JsonWriter<'a> {
    /// A writer that gathers here and hands on there. What is left at the end waits for
    /// [`JsonWriter::flush`].
    pub(crate) fn new(gathered: &'a mut String, out: &'a mut dyn FnMut(&str)) -> Self {
        Self { gathered, out }
    }

    /// Brackets, numbers and names: what needs no escapes and is short.
    pub(crate) fn push(&mut self, part: &str) {
        if self.gathered.len() + part.len() > MOST {
            self.flush();
        }
        self.gathered.push_str(part);
    }

    /// A run of text that needs no escapes.
    pub(crate) fn pass(&mut self, run: &str) {
        if run.is_empty() {
            return;
        }
        if self.gathered.is_empty() || run.len() >= LONG {
            self.flush();
            (self.out)(run);
        } else {
            self.push(run);
        }
    }

    /// A character of a string, in JSON's shortest form.
    pub(crate) fn escaped(&mut self, character: char) {
        escape(character.encode_utf8(&mut [0; 4]), self.gathered);
        self.bound();
    }

    /// A character as it is.
    pub(crate) fn literal(&mut self, character: char) {
        self.push(character.encode_utf8(&mut [0; 4]));
    }

    /// A whole string.
    pub(crate) fn string(&mut self, text: &str) {
        self.push("\"");
        escape(text, self.gathered);
        self.bound();
        self.push("\"");
    }

    /// Hands on what was gathered if it is much.
    fn bound(&mut self) {
        if self.gathered.len() >= MOST - 16 {
            self.flush();
        }
    }

    /// Hands on what was gathered.
    pub(crate) fn flush(&mut self) {
        if !self.gathered.is_empty() {
            (self.out)(self.gathered);
            self.gathered.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deltas(write: impl FnOnce(&mut JsonWriter<'_>)) -> Vec<String> {
        let (mut gathered, mut deltas) = (String::new(), Vec::new());
        let mut out = |delta: &str| deltas.push(delta.to_owned());
        let mut json = JsonWriter::new(&mut gathered, &mut out);
        write(&mut json);
        json.flush();
        deltas
    }

    #[test]
    fn small_parts_make_one_delta() {
        let written = deltas(|json| {
            json.push("{");
            json.string("a");
            json.push(":");
            json.pass("run");
            json.push("}");
        });
        assert_eq!(written, ["{\"a\":run}"]);
    }

    #[test]
    fn a_run_that_is_first_or_long_is_handed_on_by_itself() {
        let long = "x".repeat(LONG);
        let written = deltas(|json| {
            json.pass("first");
            json.push("\"");
            json.pass(&long);
            json.push("\"");
        });
        assert_eq!(written, ["first", "\"", &long, "\""]);
    }

    #[test]
    fn what_is_gathered_has_a_bound() {
        let written = deltas(|json| (0..MOST * 2).for_each(|_| json.push("[")));
        assert!(written.iter().all(|delta| delta.len() <= MOST));
        assert_eq!(written.concat().len(), MOST * 2);
    }

    #[test]
    fn strings_are_escaped_in_the_shortest_form() {
        let text = "\"\\/\n\r\t\u{8}\u{c}\0\u{1b}\u{7f}é\u{2028}😀";
        let written = deltas(|json| json.string(text)).concat();
        assert_eq!(written, serde_json::to_string(text).unwrap());
    }
}
