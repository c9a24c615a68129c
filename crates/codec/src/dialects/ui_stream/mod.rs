//! The AI SDK's UI message stream: the requests of `useChat` and the chunks it reads. No provider speaks
//! it.
//!
//! - `client_request` reads a front end's request, `client_reply` writes the chunks of the reply;
//! - `metadata`: values in `providerMetadata`, both ways.

use throughline_canonical::{Event, Fault, Loss, Request};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::shared::fault_status;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::{
    Accepted, ClientDialect, Operation, ReplyIdentity, ReplyWriter, RequestParts, Session,
};

mod client_reply;
mod client_request;
mod metadata;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ui_stream";

const PATH: &str = "/ui/chat";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct UiStream;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate)],
    stream_headers: &[
        ("x-vercel-ai-ui-message-stream", "v1"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ],
    fault_type: "text/plain; charset=utf-8",
    ..ClientDefaults::FRONT_END
};

impl ClientDialect for UiStream {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts)
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(ContinuedMessage(None))
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::EndExplained(_) => None,
            event => lost_part(event, NAME),
        }
    }

    /// The message only: clients show the body of an error to the user.
    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        (fault_status::status(fault.kind), fault.message.clone().into_bytes())
    }
}

/// The id of the message that the reply continues, if it continues one.
#[derive(Debug)]
struct ContinuedMessage(Option<String>);

impl Session for ContinuedMessage {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, self.0.clone(), identity))
    }
}
