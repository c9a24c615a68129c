//! Collects the output of a reader and compares it with the meaning of the text.

use std::hint::black_box;

use serde_json::Value;

/// The output of a reader.
pub(crate) trait Sink {
    /// More reasoning.
    fn reasoning(&mut self, text: &str);
    /// More of the answer.
    fn content(&mut self, text: &str);
    /// A call and its name.
    fn call(&mut self, index: usize, name: &str);
    /// More of a call's arguments.
    fn arguments(&mut self, index: usize, text: &str);
}

/// Keeps nothing: to count only allocations of the reader, and to read without a copy.
pub(crate) struct Nothing;

impl Sink for Nothing {
    fn reasoning(&mut self, text: &str) {
        black_box(text);
    }

    fn content(&mut self, text: &str) {
        black_box(text);
    }

    fn call(&mut self, index: usize, name: &str) {
        black_box((index, name));
    }

    fn arguments(&mut self, index: usize, text: &str) {
        black_box((index, text));
    }
}

/// Keeps everything, in memory that was reserved before.
#[derive(Default)]
pub(crate) struct Collected {
    reasoning: String,
    content: String,
    calls: Vec<Call>,
    deltas: usize,
    spare: Vec<Call>,
}

/// A call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// The tool.
    pub(crate) name: String,
    /// Its arguments, as JSON text.
    pub(crate) arguments: String,
}

impl Collected {
    /// Reserves memory for a text of this many bytes, so that growing is not measured.
    pub(crate) fn with_room(bytes: usize, calls: usize) -> Self {
        Self {
            reasoning: room(bytes),
            content: room(bytes),
            calls: Vec::with_capacity(calls),
            deltas: 0,
            spare: (0..calls)
                .map(|_| Call { name: room(64), arguments: room(2 * bytes / calls) })
                .collect(),
        }
    }

    /// The number of parts in which arguments arrived.
    pub(crate) fn deltas(&self) -> usize {
        self.deltas
    }

    fn call_mut(&mut self, index: usize) -> &mut Call {
        while self.calls.len() <= index {
            self.calls.push(self.spare.pop().unwrap_or_default());
        }
        &mut self.calls[index]
    }
}

impl Sink for Collected {
    fn reasoning(&mut self, text: &str) {
        self.reasoning.push_str(text);
    }

    fn content(&mut self, text: &str) {
        self.content.push_str(text);
    }

    fn call(&mut self, index: usize, name: &str) {
        self.call_mut(index).name.push_str(name);
    }

    fn arguments(&mut self, index: usize, text: &str) {
        self.deltas += usize::from(!text.is_empty());
        self.call_mut(index).arguments.push_str(text);
    }
}

/// An empty string in pages that were touched: the first touch of a page costs more than a write.
fn room(bytes: usize) -> String {
    let mut text = " ".repeat(bytes);
    text.clear();
    text
}

/// The meaning of a text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// All reasoning, joined.
    pub(crate) reasoning: String,
    /// The answer's text, joined; `None` where only the calls count.
    pub(crate) content: Option<String>,
    /// The calls, in order.
    pub(crate) calls: Vec<Call>,
}

impl Truth {
    /// The first difference, in one word. White space and the spelling of arguments are not compared:
    /// formats and readers differ there for good reasons.
    pub(crate) fn difference(&self, found: &Collected) -> Option<&'static str> {
        if !same_text(&self.reasoning, &found.reasoning) {
            return Some("reasoning");
        }
        if let Some(content) = &self.content
            && !same_text(content, &found.content)
        {
            return Some("content");
        }
        if self.calls.len() != found.calls.len() {
            return Some("number of calls");
        }
        for (expected, found) in self.calls.iter().zip(&found.calls) {
            if expected.name != found.name {
                return Some("name");
            }
            let value = |text: &str| serde_json::from_str::<Value>(text).ok();
            if value(&expected.arguments) != value(&found.arguments) {
                return Some("arguments");
            }
        }
        None
    }
}

fn same_text(left: &str, right: &str) -> bool {
    let letters = |text| str::chars(text).filter(|letter| !letter.is_whitespace());
    letters(left).eq(letters(right))
}
