//! Writes a JSON object member by member, directly into bytes.

use serde_json::Value;

use super::string::quote_bytes;

/// An object that is being written. [`ObjectWriter::end`] closes it.
#[derive(Debug)]
pub(crate) struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    /// Writes a key. The caller writes the value.
    pub(crate) fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        quote_bytes(key, self.out);
        self.out.push(b':');
        self.out
    }

    /// Writes a string member.
    pub(crate) fn text(&mut self, key: &str, text: &str) -> &mut Self {
        quote_bytes(text, self.key(key));
        self
    }

    /// Writes a whole number member.
    pub(crate) fn count(&mut self, key: &str, count: u64) -> &mut Self {
        self.raw(key, count.to_string().as_bytes())
    }

    /// Writes a JSON value member.
    pub(crate) fn value(&mut self, key: &str, value: &Value) -> &mut Self {
        self.raw(key, value.to_string().as_bytes())
    }

    /// Writes a member whose value is JSON text.
    pub(crate) fn raw(&mut self, key: &str, json: &[u8]) -> &mut Self {
        self.key(key).extend_from_slice(json);
        self
    }

    /// Opens an object as a member.
    pub(crate) fn object(&mut self, key: &str) -> ObjectWriter<'_> {
        ObjectWriter::new(self.key(key))
    }

    /// Closes the object.
    pub(crate) fn end(&mut self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_written_in_call_order() {
        let mut out = Vec::new();
        let mut object = ObjectWriter::new(&mut out);
        object.text("a\"b", "c\nd").count("n", 7);
        object.object("empty").end();
        object.value("v", &json!({"x": [1.0]})).raw("r", b"[ 1 ]").end();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, r#"{"a\"b":"c\nd","n":7,"empty":{},"v":{"x":[1.0]},"r":[ 1 ]}"#);
    }
}
