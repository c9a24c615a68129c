//! The simplest format: a canonical request, and a reply of JSON lines. No provider speaks it.
//!
//! - `client_reply` writes the lines of a reply, or a whole reply.

use serde_json::json;
use throughline_canonical::{Event, Fault, Loss, Request};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::{canonical_request, fault_status};
use crate::dialects::{
    Accepted, ClientDialect, Operation, ReplyIdentity, ReplyWriter, RequestParts, Session,
};

mod client_reply;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ndjson";

const PATH: &str = "/ndjson/chat";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct NdJson;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate)],
    ..ClientDefaults::FRONT_END
};

impl ClientDialect for NdJson {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        canonical_request::read(parts).map(|read| Accepted::new(read, *self))
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::EndExplained(_) => None,
            event => lost_part(event, NAME),
        }
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(*self)
    }

    /// The body is the line of the fault, with the wrong member.
    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        let mut body = json!({"type": "error", "kind": fault.kind, "message": fault.message});
        if let Some(path) = &fault.path {
            body["at"] = path.as_str().into();
        }
        (fault_status::status(fault.kind), body.to_string().into_bytes())
    }
}

impl Session for NdJson {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, identity))
    }

    fn stream_type(&self) -> &'static str {
        "application/x-ndjson"
    }
}
