//! Writes the calls of a streamed reply.

use serde_json::Value;

use super::Writer;
use crate::dialects::shared::number::write_number;

impl Writer {
    pub(super) fn call(&mut self, id: &str, name: &str, number: usize, out: &mut Vec<u8>) {
        self.open(out);
        if self.form.legacy {
            out.extend_from_slice(b"\"function_call\":{\"name\":\"");
            self.escape(name);
            out.extend_from_slice(self.escaped.as_bytes());
            out.extend_from_slice(b"\",\"arguments\":\"\"}");
        } else {
            out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
            write_number(number, out);
            out.extend_from_slice(b",\"id\":\"");
            self.escape(id);
            out.extend_from_slice(self.escaped.as_bytes());
            out.extend_from_slice(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
            self.escape(name);
            out.extend_from_slice(self.escaped.as_bytes());
            out.extend_from_slice(b"\",\"arguments\":\"\"}}]");
        }
        self.close(out);
    }

    pub(super) fn arguments(&mut self, text: &str, number: usize, out: &mut Vec<u8>) {
        self.escape(text);
        self.open(out);
        if self.form.legacy {
            out.extend_from_slice(b"\"function_call\":{\"arguments\":\"");
            out.extend_from_slice(self.escaped.as_bytes());
            out.extend_from_slice(b"\"}");
        } else {
            out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
            write_number(number, out);
            out.extend_from_slice(b",\"function\":{\"arguments\":\"");
            out.extend_from_slice(self.escaped.as_bytes());
            out.extend_from_slice(b"\"}}]");
        }
        self.close(out);
    }

    /// Writes a complete custom call.
    pub(super) fn custom(&mut self, json: &str, number: usize, out: &mut Vec<u8>) {
        let Ok(Value::Object(mut call)) = serde_json::from_str(json) else {
            return;
        };
        if self.form.legacy {
            return;
        }
        call.insert("index".to_owned(), number.into());
        self.open(out);
        out.extend_from_slice(b"\"tool_calls\":[");
        out.extend_from_slice(Value::Object(call).to_string().as_bytes());
        out.extend_from_slice(b"]");
        self.close(out);
    }

    pub(super) fn call_signature(&mut self, signature: &str, number: usize, out: &mut Vec<u8>) {
        if self.form.legacy {
            return;
        }
        self.escape(signature);
        self.open(out);
        out.extend_from_slice(b"\"tool_calls\":[{\"index\":");
        write_number(number, out);
        // The official Python client rejects a fragment without a function.
        out.extend_from_slice(b",\"function\":{\"arguments\":\"\"}");
        out.extend_from_slice(b",\"extra_content\":{\"google\":{\"thought_signature\":\"");
        out.extend_from_slice(self.escaped.as_bytes());
        out.extend_from_slice(b"\"}}}]");
        self.close(out);
    }
}
