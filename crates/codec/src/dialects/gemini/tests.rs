//! Properties of this dialect, limits, and replies for its clients. Single cases are in
//! `corpus/gemini`.

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Lossy, Reply, Request};

use super::Gemini;
use super::client_reply::Framing;
use crate::dialects::{
    Accepted, ClientDialect, Outgoing, ReplyIdentity, ReplyWriter, RequestParts, Session, Target,
    UpstreamDialect,
};

mod ends;
mod identity;
mod replies;
mod upstream;
mod written;

const PATH: &str = "/v1beta/models/gemini-3-pro:generateContent";

fn write(request: &Request, variant: &str) -> (Lossy<Outgoing>, Value) {
    let target = Target { model: &request.model, profile: Gemini.profile(variant) };
    let written = Gemini.write_request(request, &target);
    let body = serde_json::from_slice(&written.value.body).unwrap();
    (written, body)
}

/// The events of a reply as JSON lines, and the reply they make.
fn events(streamed: bool, variant: &str, pieces: &[&[u8]]) -> (Vec<String>, Reply) {
    let target = Target { model: "gemini-3-pro", profile: Gemini.profile(variant) };
    let mut reader = Gemini.reply_reader(&target, streamed);
    let (mut lines, mut fold) = (Vec::new(), Fold::default());
    let mut take = |event: Event<'_>| {
        lines.push(serde_json::to_string(&event).unwrap());
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    reader.finish(&mut take);
    (lines, fold.finish())
}

/// The pieces of a stream, as a provider sends them.
fn stream(pieces: &[Value]) -> String {
    pieces.iter().map(|piece| format!("data: {piece}\n\n")).collect()
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("r1", 0)
}

const LIST: Framing = Framing::List { begun: false };

/// A writer for a reply of the model `my-model`.
fn writer(framing: Framing) -> Box<dyn ReplyWriter> {
    let request = Request { model: "my-model".to_owned(), ..Request::default() };
    framing.reply_writer(&request, &identity())
}

/// The stream of these events for a client.
fn streamed(framing: Framing, events: &[Event<'_>]) -> Vec<u8> {
    let mut writer = writer(framing);
    let mut bytes = Vec::new();
    for event in events {
        writer.push(event, &mut bytes);
    }
    bytes
}
