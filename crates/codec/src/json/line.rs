//! JSON on one line, as SSE and NDJSON need it.

use super::validate;

/// Deepest nesting that is accepted.
const MAX_DEPTH: usize = 512;

/// A text that is known to be valid JSON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<'a>(&'a str);

impl<'a> OneLine<'a> {
    /// Returns `None` if the text is not JSON.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        validate(text.as_bytes(), MAX_DEPTH).ok().map(|_| Self(text))
    }

    /// Writes the text with line breaks replaced by spaces. Line breaks in strings are escaped, so
    /// these are only white space between values.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        out.extend(self.0.bytes().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            byte => byte,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_json_is_written_on_one_line() {
        let mut out = Vec::new();
        let text = "{\r\n \"a\\n\": 1.50,\n\"b\": [ ]\n}";
        OneLine::of(text).unwrap().write(&mut out);
        assert_eq!(out, b"{   \"a\\n\": 1.50, \"b\": [ ] }");
        for broken in ["", "{", "{}{}", "{\"a\":\"\n\"}", "nul"] {
            assert!(OneLine::of(broken).is_none(), "{broken:?}");
        }
    }
}
