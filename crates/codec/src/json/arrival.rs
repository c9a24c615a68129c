//! Tells whether a JSON text that arrives in pieces has arrived to its end. It reads no more than that
//! takes: a text that is broken in another way may pass for a whole one.

/// How far a text has arrived.
#[derive(Debug, Default)]
pub struct Arrival {
    depth: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Nothing but white space has come.
    #[default]
    Before,
    /// Outside of strings.
    Value,
    String,
    /// Behind a backslash in a string.
    Escape,
    /// The outermost object or list has ended, or it is none.
    End,
}

impl Arrival {
    /// Whether all of the text has come.
    pub fn is_whole(&self) -> bool {
        self.place == Place::End
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let found = match self.place {
                Place::Before => rest.iter().position(|byte| !byte.is_ascii_whitespace()),
                Place::Value => rest.iter().position(|byte| b"{}[]\"".contains(byte)),
                Place::String => memchr::memchr2(b'"', b'\\', rest),
                Place::Escape => Some(0),
                Place::End => return,
            };
            let Some(found) = found else {
                return;
            };
            at += found + 1;
            self.place = match (self.place, rest[found]) {
                (Place::Escape, _) | (Place::Value, b'"') => Place::String,
                (Place::String, b'"') => Place::Value,
                (Place::String, _) => Place::Escape,
                (_, b'{' | b'[') => {
                    self.depth += 1;
                    Place::Value
                }
                (Place::Value, _) if self.depth > 1 => {
                    self.depth -= 1;
                    Place::Value
                }
                // Where a text that is no object or list ends cannot be told.
                _ => Place::End,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(pieces: &[&[u8]]) -> bool {
        let mut arrival = Arrival::default();
        for piece in pieces {
            arrival.push(piece);
        }
        arrival.is_whole()
    }

    #[test]
    fn a_text_is_whole_at_its_last_bracket_and_not_before() {
        for text in [" {\"a\":[1,{\"b\\\"}\":\"]}\\\\\"}],\"c\":{}}", "\r\n[{},[\"{\"]]"] {
            let text = text.as_bytes();
            for cut in 0..=text.len() {
                let expected = cut == text.len();
                assert_eq!(whole(&[&text[..cut]]), expected, "cut at {cut}");
                let (one, two) = text.split_at(cut);
                assert!(whole(&[one, two]), "split at {cut}");
            }
            assert!(whole(&[text, b"\n"]));
        }
    }

    #[test]
    fn what_is_no_object_or_list_is_never_taken_for_half_of_one() {
        assert!(whole(&[b"null"]));
        assert!(whole(&[b"<html>"]));
        assert!(!whole(&[b" \n"]));
    }
}
