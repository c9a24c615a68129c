//! Properties of this dialect, limits, and replies for its clients. Single cases are in
//! `corpus/openai_chat`.

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Loss, Lossy, Reply, Request};

use super::OpenAiChat;
use crate::dialects::{
    Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, Target, UpstreamDialect,
};

mod identity;
mod keep_alive;
mod malformed;
mod parts;
mod read_replies;
mod upstream_requests;

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("1", 1)
}

fn read_bytes(body: &[u8]) -> Result<Lossy<Request>, Fault> {
    let Accepted { request, losses, .. } = OpenAiChat.read_request(&RequestParts {
        path: "/v1/chat/completions",
        query: "",
        body,
        ..Default::default()
    })?;
    Ok(Lossy { value: request, losses })
}

fn write(request: &Request, variant: &str) -> (Value, Vec<Loss>) {
    let target = Target { model: "m", profile: OpenAiChat.profile(variant) };
    let Lossy { value, losses } = OpenAiChat.write_request(request, &target);
    (serde_json::from_slice(&value.body).unwrap(), losses)
}

/// The events of a reply in these pieces, and the folded reply.
fn read_pieces(variant: &str, streamed: bool, pieces: &[&[u8]]) -> (Vec<String>, Reply) {
    let target = Target { model: "m", profile: OpenAiChat.profile(variant) };
    let mut reader = OpenAiChat.reply_reader(&target, streamed);
    let mut lines = Vec::new();
    let mut fold = Fold::default();
    let mut take = |event: Event<'_>| {
        lines.push(serde_json::to_string(&event).unwrap());
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    (lines, fold.finish())
}

fn read_reply(variant: &str, streamed: bool, bytes: &[u8]) -> Reply {
    read_pieces(variant, streamed, &[bytes]).1
}

/// A stream of these chunks.
fn stream(chunks: &[&str]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// A stream of these deltas, with an ordinary end.
fn deltas(deltas: &[&str], finish: &str) -> String {
    let mut all: Vec<String> = deltas
        .iter()
        .map(|delta| {
            format!(r#"{{"id":"c1","object":"chat.completion.chunk","created":1,"model":"x","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
        })
        .collect();
    all.push(format!(
        r#"{{"id":"c1","model":"x","choices":[{{"index":0,"delta":{{}},"finish_reason":"{finish}"}}]}}"#
    ));
    all.push(r#"{"id":"c1","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#.to_owned());
    all.push("[DONE]".to_owned());
    stream(&all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn write_reply(request: &Request, events: &[Event<'_>]) -> String {
    stream_from(OpenAiChat.session().reply_writer(request, &identity()), events)
}

fn stream_from(mut writer: Box<dyn ReplyWriter>, events: &[Event<'_>]) -> String {
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

fn write_whole(request: &Request, events: &[Event<'_>]) -> Value {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    let body = OpenAiChat.session().reply_writer(request, &identity()).whole(&fold.finish());
    serde_json::from_slice(&body).unwrap()
}
