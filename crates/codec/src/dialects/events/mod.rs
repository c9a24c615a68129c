//! The canonical vocabulary as server-sent events: the request of the `ndjson` dialect, and
//! canonical events as the reply. No provider speaks it.

use throughline_canonical::{Event, Fault, Loss, Request};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::{canonical_request, fault_status};
use crate::dialects::{
    Accepted, ClientDialect, Operation, ReplyIdentity, ReplyWriter, RequestParts, Session,
};

mod client_reply;

/// The dialect's name.
pub const NAME: &str = "events";

const PATH: &str = "/v1/stream";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate)],
    ..ClientDefaults::FRONT_END
};

impl ClientDialect for Events {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        canonical_request::read(parts).map(|read| Accepted::new(read, *self))
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(*self)
    }

    /// Only parts of other dialects are lost.
    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::BlockDelta { .. } | Event::EndExplained(_) => None,
            event => lost_part(event, NAME),
        }
    }

    /// The body is the event of the fault.
    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        let event = Event::Fault(fault.clone());
        let body = serde_json::to_vec(&event).unwrap_or_default();
        (fault_status::status(fault.kind), body)
    }
}

impl Session for Events {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, identity))
    }
}
