//! Our reader.

use super::{Format, Reading};
use crate::sink::Sink;
use throughline_codec::text::{Event, Options, Reader, Recipe};

/// Our reader of one text.
pub(crate) struct Ours(Reader);

/// Opens the reader for a format.
pub(crate) fn open(format: Format) -> Ours {
    let recipe = match format {
        Format::Tags => Recipe::named(Some("think"), &[]),
        Format::Hermes => Recipe::family("qwen3"),
        Format::Mistral => Recipe::named(Some("think"), &["mistral"]),
        Format::Qwen3Coder => Recipe::named(Some("think"), &["qwen3_coder"]),
        Format::Pythonic => Recipe::named(Some("think"), &["pythonic"]),
        Format::KimiK2 => Recipe::named(Some("think"), &["kimi_k2"]),
    };
    let recipe = recipe.unwrap_or_else(|error| panic!("no recipe for {format:?}: {error}"));
    Ours(Reader::new(&recipe, Options::default()))
}

impl Ours {
    /// Takes bytes, which may be cut inside a code point.
    pub(crate) fn push_bytes(&mut self, piece: &[u8], sink: &mut impl Sink) {
        self.0.push(piece, |event| emit(event, sink));
    }
}

impl Reading for Ours {
    fn push(&mut self, piece: &str, sink: &mut impl Sink) {
        self.0.push_str(piece, |event| emit(event, sink));
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        self.0.finish(|event| emit(event, sink));
    }
}

fn emit(event: Event<'_>, sink: &mut impl Sink) {
    match event {
        Event::Reasoning(text) => sink.reasoning(text),
        Event::Content(text) => sink.content(text),
        Event::CallStarted { index, name, .. } => sink.call(index, name),
        Event::CallArguments { index, delta } => sink.arguments(index, delta),
        Event::CallEnded { .. } | Event::Fault { .. } | Event::Ended(_) => {}
    }
}
