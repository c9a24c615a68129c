//! Detects whether a JSON text that arrives in pieces is complete. It only counts brackets and
//! strings, so it may accept a text that is malformed in another way.

/// Follows a JSON text up to the end of its outermost object or array.
#[derive(Debug, Default)]
pub struct EndDetector {
    depth: usize,
    position: Position,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Only white space so far.
    #[default]
    Before,
    /// Outside of strings.
    Value,
    String,
    /// In a string, after a backslash.
    Escape,
    /// The outermost object or array has ended, or the text is neither.
    End,
}

impl EndDetector {
    /// Whether the whole text has arrived.
    pub fn is_complete(&self) -> bool {
        self.position == Position::End
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let found = match self.position {
                Position::Before => rest.iter().position(|byte| !byte.is_ascii_whitespace()),
                Position::Value => rest.iter().position(|byte| b"{}[]\"".contains(byte)),
                Position::String => memchr::memchr2(b'"', b'\\', rest),
                Position::Escape => Some(0),
                Position::End => return,
            };
            let Some(found) = found else {
                return;
            };
            at += found + 1;
            self.position = match (self.position, rest[found]) {
                (Position::Escape, _) | (Position::Value, b'"') => Position::String,
                (Position::String, b'"') => Position::Value,
                (Position::String, _) => Position::Escape,
                (_, b'{' | b'[') => {
                    self.depth += 1;
                    Position::Value
                }
                (Position::Value, _) if self.depth > 1 => {
                    self.depth -= 1;
                    Position::Value
                }
                // We cannot know where a text ends that is no object or array.
                _ => Position::End,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_complete(pieces: &[&[u8]]) -> bool {
        let mut detector = EndDetector::default();
        for piece in pieces {
            detector.push(piece);
        }
        detector.is_complete()
    }

    #[test]
    fn a_text_is_complete_exactly_at_its_last_bracket() {
        for text in [" {\"a\":[1,{\"b\\\"}\":\"]}\\\\\"}],\"c\":{}}", "\r\n[{},[\"{\"]]"] {
            let text = text.as_bytes();
            for cut in 0..=text.len() {
                let expected = cut == text.len();
                assert_eq!(is_complete(&[&text[..cut]]), expected, "cut at {cut}");
                let (one, two) = text.split_at(cut);
                assert!(is_complete(&[one, two]), "split at {cut}");
            }
            assert!(is_complete(&[text, b"\n"]));
        }
    }

    #[test]
    fn a_text_that_is_no_object_or_list_is_complete_at_once() {
        assert!(is_complete(&[b"null"]));
        assert!(is_complete(&[b"<html>"]));
        assert!(!is_complete(&[b" \n"]));
    }
}
