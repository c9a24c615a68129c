//! The four crossings: each alone, and each written by one and read by the other.
//!
//! - [`crossing`]: how a request crosses;
//! - [`settings`], [`conversation`]: what is read of one and written of one;
//! - [`refused`]: what is no request;
//! - [`replies`]: what clients are sent, and what is read of providers;
//! - [`values`], [`random_requests`], [`random_replies`]: the same for random values.

mod conversation;
mod crossing;
mod random_replies;
mod random_requests;
mod refused;
mod replies;
mod settings;
mod values;

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Lossy, Reply, Request};

use super::Anthropic;
use crate::dialects::{
    ClientDialect, Outgoing, ReplyIdentity, RequestParts, Target, UpstreamDialect,
};

const TARGET: Target<'static> = Target { model: "claude-x", variant: "" };

fn read_request(body: &[u8]) -> Result<Lossy<Request>, Fault> {
    Anthropic.read_request(&RequestParts { path: "/v1/messages", query: "", body })
}

fn read_value(body: &Value) -> Lossy<Request> {
    let read = read_request(body.to_string().as_bytes());
    read.unwrap_or_else(|fault| panic!("{fault}: {body}"))
}

fn write_request(request: &Request) -> Lossy<Outgoing> {
    Anthropic.write_request(request, &TARGET)
}

/// What is written, as JSON, and the losses as one header.
fn written(request: &Request) -> (Value, String) {
    let Lossy { value, losses } = write_request(request);
    let text = String::from_utf8(value.body).unwrap();
    let body = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (body, throughline_canonical::Loss::header(&losses))
}

fn identity() -> ReplyIdentity {
    ReplyIdentity { id: "01abc".to_owned(), created: 1_800_000_000 }
}

/// What a client of model `asked-for` is sent for these events.
fn streamed(events: &[Event<'_>]) -> String {
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    let mut writer = Anthropic.reply_writer(&request, &identity());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// What a client of model `asked-for` is sent for a whole reply.
fn whole(reply: &Reply) -> Value {
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    let bytes = Anthropic.reply_writer(&request, &identity()).whole(reply);
    serde_json::from_slice(&bytes).unwrap()
}

/// The reply in these pieces, folded, and how many ends it had.
fn read_reply<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, streamed: bool) -> (Reply, usize) {
    let mut reader = Anthropic.reply_reader(&TARGET, streamed);
    let (mut fold, mut ends) = (Fold::default(), 0);
    let mut take = |event: Event<'_>| {
        assert_eq!(ends, 0, "{event:?} behind the end");
        ends += usize::from(matches!(event, Event::Ended { .. }));
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    (fold.finish(), ends)
}
