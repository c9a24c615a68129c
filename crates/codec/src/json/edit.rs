//! Changes a few spans of a JSON text and copies the rest unchanged.

use super::cursor::Span;
use super::string::quote_bytes;

/// Changes to one text, applied together.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    changes: Vec<(Span, Vec<u8>)>,
}

impl Edits {
    /// Whether there is anything to change.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Replaces a span. Spans of one text must not overlap.
    pub fn replace(&mut self, span: Span, bytes: impl Into<Vec<u8>>) {
        self.changes.push((span, bytes.into()));
    }

    /// Removes a span.
    pub fn remove(&mut self, span: Span) {
        self.replace(span, Vec::new());
    }

    /// Returns the text with all changes applied.
    pub fn apply(mut self, text: &[u8]) -> Vec<u8> {
        self.changes.sort_by_key(|(span, _)| (span.start, span.end));
        let grown: usize = self.changes.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut edited = Vec::with_capacity(text.len() + grown);
        let mut copied = 0;
        for (span, bytes) in &self.changes {
            debug_assert!(span.start >= copied, "edits overlap");
            edited.extend_from_slice(text.get(copied..span.start).unwrap_or_default());
            edited.extend_from_slice(bytes);
            copied = span.end.max(copied);
        }
        edited.extend_from_slice(text.get(copied..).unwrap_or_default());
        edited
    }
}

/// Removes elements from an array, each with one comma. `keep` holds one flag per element. Returns
/// false, and changes nothing, if no element would stay.
pub fn remove_elements(edits: &mut Edits, elements: &[Span], keep: &[bool]) -> bool {
    debug_assert_eq!(elements.len(), keep.len());
    if !keep.iter().any(|&kept| kept) {
        return false;
    }
    let mut at = 0;
    while at < elements.len() {
        if keep[at] {
            at += 1;
            continue;
        }
        let first = at;
        while at < elements.len() && !keep[at] {
            at += 1;
        }
        // Remove the comma after the run, or the one before it at the end of the array.
        match elements.get(at) {
            Some(next) => edits.remove(elements[first].start..next.start),
            None => edits.remove(elements[first - 1].end..elements[at - 1].end),
        }
    }
    true
}

/// Adds a member at the end of an object. The span includes the braces.
pub fn append_member(edits: &mut Edits, text: &[u8], object: &Span, key: &str, value: &[u8]) {
    let inside = text.get(object.start + 1..object.end - 1).unwrap_or_default();
    let trailing = inside.iter().rev().take_while(|byte| byte.is_ascii_whitespace()).count();
    let at = object.end - 1 - trailing;
    let mut member = Vec::with_capacity(key.len() + value.len() + 4);
    if trailing < inside.len() {
        member.push(b',');
    }
    member.extend_from_slice(&quote(key));
    member.push(b':');
    member.extend_from_slice(value);
    edits.replace(at..at, member);
}

/// Writes a text as a JSON string, with quotes.
pub fn quote(text: &str) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    quote_bytes(text, &mut quoted);
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Cursor;

    fn without(text: &str, keep: &[bool]) -> Option<String> {
        let mut cursor = Cursor::new(text.as_bytes(), 8);
        cursor.enter_array().unwrap();
        let (mut first, mut elements) = (true, Vec::new());
        while cursor.element(&mut first).unwrap() {
            elements.push(cursor.skip().unwrap());
        }
        let mut edits = Edits::default();
        remove_elements(&mut edits, &elements, keep)
            .then(|| String::from_utf8(edits.apply(text.as_bytes())).unwrap())
    }

    #[test]
    fn remove_elements_removes_one_comma_for_each() {
        let text = "[ 1 , 2,\n3 ,4 ]";
        let check = |keep: [bool; 4], expected: &str| {
            assert_eq!(without(text, &keep).as_deref(), Some(expected));
        };
        check([true; 4], text);
        check([false, true, true, true], "[ 2,\n3 ,4 ]");
        check([true, false, true, true], "[ 1 , 3 ,4 ]");
        check([true, true, true, false], "[ 1 , 2,\n3 ]");
        check([false, true, false, true], "[ 2,\n4 ]");
        check([false, false, true, false], "[ 3 ]");
        check([true, false, false, false], "[ 1 ]");
        assert_eq!(without(text, &[false; 4]), None);
    }

    #[test]
    fn append_member_adds_the_last_member() {
        let add = |text: &str| {
            let mut edits = Edits::default();
            append_member(&mut edits, text.as_bytes(), &(0..text.len()), "b", b"2");
            String::from_utf8(edits.apply(text.as_bytes())).unwrap()
        };
        assert_eq!(add(r#"{"a":1}"#), r#"{"a":1,"b":2}"#);
        assert_eq!(add("{}"), r#"{"b":2}"#);
        assert_eq!(add("{ }"), r#"{"b":2 }"#);
        assert_eq!(add("{\"a\":1\n}"), "{\"a\":1,\"b\":2\n}");
    }
}
