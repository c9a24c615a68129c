//! The AG-UI protocol, which front ends use to talk to agents. No provider speaks it.
//!
//! - `client_request` reads the input of a run, `client_reply` writes its events;
//! - `run`: the state of a run, and the events that start and end it;
//! - `interrupts`: calls that wait for approval, and the answers in the next run;
//! - `errors`: errors before a run and in it.

use throughline_canonical::{Delta, Event, Fault, Loss, LossReason, LossSubject, Request};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::{
    Accepted, ClientDialect, Operation, ReplyIdentity, ReplyWriter, RequestParts, Session,
};

mod client_reply;
mod client_request;
mod errors;
mod interrupts;
mod run;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ag_ui";

const PATH: &str = "/ag-ui";

/// Prefix of the message ids of encrypted reasoning. Ids come back with the message, whose content
/// is empty like that of other hidden reasoning.
const REDACTED: &str = "redacted_";

/// Our member in the metadata of a message. Clients send it back.
const METADATA: &str = "throughline";
/// In our metadata: the message is a refusal.
const REFUSAL: &str = "refusal";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgUi;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate)],
    ..ClientDefaults::FRONT_END
};

impl ClientDialect for AgUi {
    fn operation(&self, path: &str) -> Option<Operation> {
        pinned(path).map(|_| Operation::Generate)
    }

    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts)
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(RunSession(None))
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::BlockDelta { delta: Delta::Citation(_), .. } => {
                Some(Loss::of_part(LossSubject::Citations, LossReason::NoWord))
            }
            Event::EndExplained(_) => None,
            event => lost_part(event, NAME),
        }
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }
}

/// The run that a client asks for. A request of another dialect has none.
#[derive(Debug)]
struct RunSession(Option<run::Run>);

impl Session for RunSession {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        let run = self.0.clone().unwrap_or_else(|| run::Run::of(request, identity));
        Box::new(client_reply::Writer::new(run, request, identity))
    }

    fn run_name(&self) -> Option<&str> {
        self.0.as_ref().map(|run| run.id.as_str())
    }
}

/// The backend in a path `/ag-ui/{backend}`; empty if it names none. `None` for other paths.
fn pinned(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(PATH)?;
    match rest.strip_prefix('/') {
        Some(backend) if !backend.contains('/') => Some(backend),
        None if rest.is_empty() => Some(""),
        _ => None,
    }
}
