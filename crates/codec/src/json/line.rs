//! JSON that stands in a line of its own, as events and lines of a reply do.

use super::validate;

/// As deep as a value may be.
const DEEPEST: usize = 512;

/// A text that is JSON, whoever wrote it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<'a>(&'a str);

impl<'a> OneLine<'a> {
    /// None if the text is not JSON.
    pub(crate) fn of(text: &'a str) -> Option<Self> {
        validate(text.as_bytes(), DEEPEST).ok().map(|_| Self(text))
    }

    /// Writes it as it is, but for line breaks: those of strings are escaped, so all others are white
    /// space between its parts.
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
    fn json_is_written_in_one_line_and_nothing_else_is() {
        let mut out = Vec::new();
        let text = "{\r\n \"a\\n\": 1.50,\n\"b\": [ ]\n}";
        OneLine::of(text).unwrap().write(&mut out);
        assert_eq!(out, b"{   \"a\\n\": 1.50, \"b\": [ ] }");
        for broken in ["", "{", "{}{}", "{\"a\":\"\n\"}", "nul"] {
            assert!(OneLine::of(broken).is_none(), "{broken:?}");
        }
    }
}
