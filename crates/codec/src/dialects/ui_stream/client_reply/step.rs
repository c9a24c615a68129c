//! The open parts of a reply. All text and reasoning must be closed before a step ends, so open
//! parts are tracked here.

use super::super::metadata::{self, ProviderValue};
use crate::dialects::shared::arguments::or_empty_object;
use crate::json::{OneLine, escape_bytes, quote_bytes};

/// An open part.
#[derive(Debug)]
pub(super) struct Part {
    /// Its index in the incoming events.
    pub(super) index: u32,
    pub(super) kind: PartKind,
    /// Whether its start chunk was written.
    begun: bool,
    /// The id of the part, or of the call, as JSON.
    id: Vec<u8>,
    /// A delta chunk up to its text.
    head: Vec<u8>,
    /// A later signature replaces an earlier one. Only the last chunk carries it.
    signature: String,
    call: Call,
}

/// The kind of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    Text,
    Reasoning,
    Call,
}

/// Details of a call.
#[derive(Debug, Default)]
struct Call {
    /// The name of the tool, as JSON.
    name: Vec<u8>,
    /// Whether the request does not define this tool. Then the part has the dynamic type.
    dynamic: bool,
    arguments: String,
}

impl Part {
    /// Creates a part of text or reasoning.
    pub(super) fn new(index: u32, kind: PartKind, number: usize) -> Self {
        let mut id = Vec::new();
        let prefix = if kind == PartKind::Text { 't' } else { 'r' };
        quote_bytes(&format!("{prefix}{number}"), &mut id);
        Self::with_id(index, kind, id)
    }

    /// Creates a part for a tool call.
    pub(super) fn call(index: u32, id: &str, name: &str, dynamic: bool) -> Self {
        let (mut quoted, mut tool) = (Vec::new(), Vec::new());
        quote_bytes(id, &mut quoted);
        quote_bytes(name, &mut tool);
        let mut part = Self::with_id(index, PartKind::Call, quoted);
        part.call.name = tool;
        part.call.dynamic = dynamic;
        part
    }

    fn with_id(index: u32, kind: PartKind, id: Vec<u8>) -> Self {
        let mut head = Vec::new();
        head.extend_from_slice(b"data: {\"type\":\"");
        head.extend_from_slice(match kind {
            PartKind::Text => b"text-delta\",\"id\":".as_slice(),
            PartKind::Reasoning => b"reasoning-delta\",\"id\":",
            PartKind::Call => b"tool-input-delta\",\"toolCallId\":",
        });
        head.extend_from_slice(&id);
        head.extend_from_slice(match kind {
            PartKind::Call => b",\"inputTextDelta\":\"".as_slice(),
            _ => b",\"delta\":\"",
        });
        Self {
            index,
            kind,
            begun: false,
            id,
            head,
            signature: String::new(),
            call: Call::default(),
        }
    }

    /// Starts a chunk of this kind.
    fn open(&self, kind: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(b"data: {\"type\":\"");
        out.extend_from_slice(match self.kind {
            PartKind::Text => b"text-".as_slice(),
            PartKind::Reasoning => b"reasoning-",
            PartKind::Call => b"tool-input-",
        });
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(match self.kind {
            PartKind::Call => b"\",\"toolCallId\":".as_slice(),
            _ => b"\",\"id\":",
        });
        out.extend_from_slice(&self.id);
        if self.kind == PartKind::Call {
            out.extend_from_slice(b",\"toolName\":");
            out.extend_from_slice(&self.call.name);
        }
    }

    /// Writes the start chunk, once.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.begun, true) {
            return;
        }
        self.open("start", out);
        self.close(out);
    }

    fn close(&self, out: &mut Vec<u8>) {
        if self.call.dynamic {
            out.extend_from_slice(b",\"dynamic\":true");
        }
        out.extend_from_slice(b"}\n\n");
    }

    /// Writes the growth of the part.
    pub(super) fn grow(&mut self, more: &str, out: &mut Vec<u8>) {
        if more.is_empty() {
            return;
        }
        self.begin(out);
        if self.kind == PartKind::Call {
            self.call.arguments.push_str(more);
        }
        out.extend_from_slice(&self.head);
        escape_bytes(more, out);
        out.extend_from_slice(b"\"}\n\n");
    }

    pub(super) fn sign(&mut self, signature: &str) {
        signature.clone_into(&mut self.signature);
    }

    /// Whether it may be a cut call: its arguments are empty or malformed.
    pub(super) fn may_be_cut(&self) -> bool {
        self.kind == PartKind::Call && OneLine::of(&self.call.arguments).is_none()
    }

    /// Writes the end of the part, with its signature.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        // An empty text leaves no part, unless it has a signature.
        if self.kind == PartKind::Text && !self.begun && self.signature.is_empty() {
            return;
        }
        self.begin(out);
        match self.kind {
            PartKind::Call => self.end_call(out),
            PartKind::Text | PartKind::Reasoning => self.open("end", out),
        }
        if !self.signature.is_empty() {
            metadata::write(ProviderValue::Signature(&self.signature), out);
        }
        self.close(out);
    }

    fn end_call(&self, out: &mut Vec<u8>) {
        let arguments = or_empty_object(&self.call.arguments);
        match OneLine::of(arguments) {
            Some(line) => {
                self.open("available", out);
                out.extend_from_slice(b",\"input\":");
                line.write(out);
            }
            None => {
                self.open("error", out);
                out.extend_from_slice(b",\"input\":");
                quote_bytes(arguments, out);
                out.extend_from_slice(
                    b",\"errorText\":\"the model wrote arguments that are not JSON\"",
                );
            }
        }
    }

    /// Writes the end of a cut part, without a signature. A cut call stays incomplete so that
    /// clients do not run it.
    pub(super) fn give_up(&mut self, out: &mut Vec<u8>) {
        if self.kind != PartKind::Call {
            self.signature.clear();
            self.end(out);
        }
    }

    /// Writes encrypted reasoning.
    pub(super) fn redacted(mut self, data: &str, out: &mut Vec<u8>) {
        self.begin(out);
        self.open("end", out);
        metadata::write(ProviderValue::Redacted(data), out);
        self.close(out);
    }
}
