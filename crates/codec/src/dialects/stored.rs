//! The dialect between the gateway and our own store of conversations. It never crosses a wire: the
//! store hands over canonical requests and reads canonical events. So it is no row of
//! [`CLIENT`](super::CLIENT), and no path leads to it.
//!
//! The store keeps whole turns itself. It gets the provider's own signatures, so the vault
//! stores nothing of its turns.

use serde_json::json;
use throughline_canonical::{BlockReport, Event, Fault, FaultKind, Loss, Reply, Request};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::shared::{canonical_request, fault_status};
use crate::dialects::{Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, Session};

/// The dialect's name in reports.
pub const NAME: &str = "conversation";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    keeps_turns: true,
    retries: 2,
    fault_type: "application/problem+json",
    ..ClientDefaults::FRONT_END
};

impl Stored {
    /// A request of the store. `left_out` and `losses` list the parts of the conversation that are
    /// not in the request.
    pub fn accept(request: Request, left_out: Vec<BlockReport>, losses: Vec<Loss>) -> Accepted {
        Accepted { request, losses, left_out, session: Box::new(Self) }
    }
}

impl ClientDialect for Stored {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        canonical_request::read(parts).map(|read| Accepted::new(read, *self))
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(*self)
    }

    /// The store keeps every event.
    fn loss_of(&self, _: &Event<'_>) -> Option<Loss> {
        None
    }

    /// A problem as RFC 9457 defines it, with the wrong member and the code, if there are any.
    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        let status = fault_status::status(fault.kind);
        let mut problem = json!({
            "type": "about:blank",
            "title": title(fault.kind),
            "status": status,
            "detail": fault.message,
        });
        for (name, value) in [("path", &fault.path), ("code", &fault.code)] {
            if let Some(value) = value {
                problem[name] = value.as_str().into();
            }
        }
        (status, problem.to_string().into_bytes())
    }
}

/// The title of a problem: the same for all faults of one kind.
fn title(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Invalid => "Invalid request",
        FaultKind::Unauthenticated => "Not authenticated",
        FaultKind::Forbidden => "Forbidden",
        FaultKind::NotFound => "Not found",
        FaultKind::WrongMethod => "Method not allowed",
        FaultKind::Conflict => "Conflict",
        FaultKind::TooLarge => "Too large",
        FaultKind::RateLimited => "Too many requests",
        FaultKind::Overloaded => "Overloaded",
        FaultKind::Unreachable => "Provider unreachable",
        FaultKind::TimedOut => "Provider timed out",
        FaultKind::ToolCallUnreadable => "Unreadable tool call",
        FaultKind::Internal => "Internal error",
    }
}

impl Session for Stored {
    fn reply_writer(&self, _: &Request, _: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(Writer)
    }

    fn stream_type(&self) -> &'static str {
        "application/x-ndjson"
    }
}

/// Writes canonical events, one per line. The store reads events, so only a turn that ends without
/// a model's answer is written.
struct Writer;

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut *out, event);
        out.push(b'\n');
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.push(b'\n');
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        serde_json::to_vec(reply).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use throughline_canonical::{BlockStart, Delta, EndReason};

    use super::*;
    use crate::dialects::{self, CLIENT};

    #[test]
    fn store_is_not_among_the_dialects_of_clients() {
        assert!(dialects::client(NAME).is_none());
        let keeping = |dialect: &&&dyn ClientDialect| dialect.defaults().keeps_turns;
        assert_eq!(CLIENT.iter().filter(keeping).count(), 0);
        assert!(Stored.defaults().keeps_turns && Stored.defaults().paths.is_empty());
    }

    #[test]
    fn fault_is_written_as_a_problem() {
        let fault = Fault::at("messages[2].role", "is required").with_code("no_role");
        let (status, body) = Stored.write_fault(&fault, "turn_1");
        assert_eq!(status, 400);
        assert_eq!(
            serde_json::from_slice::<Value>(&body).unwrap(),
            json!({
                "type": "about:blank",
                "title": "Invalid request",
                "status": 400,
                "detail": "messages[2].role: is required",
                "path": "messages[2].role",
                "code": "no_role",
            })
        );
    }

    #[test]
    fn every_event_is_kept() {
        let opaque = BlockStart::Opaque { dialect: "gemini".into(), name: "part".into() };
        for event in [
            Event::BlockStarted { index: 0, block: opaque },
            Event::BlockDelta { index: 0, delta: Delta::Text("yes".into()) },
            Event::Ended { reason: EndReason::Stop },
        ] {
            assert_eq!(Stored.loss_of(&event), None);
            let mut line = Vec::new();
            Writer.push(&event, &mut line);
            assert_eq!(serde_json::from_slice::<Event<'_>>(&line).unwrap(), event);
        }
    }
}
