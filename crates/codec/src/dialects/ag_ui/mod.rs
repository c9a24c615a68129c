//! The AG-UI protocol, which front ends speak to agents. No provider speaks it.
//!
//! - `client_request`: what a run is given; `client_messages`: its conversation; `content`: the parts
//!   of a message;
//! - `interrupts`: calls that wait for a person, and the answers of the run that goes on; `unanswered`:
//!   calls that nobody waits for any more;
//! - `client_reply`: the events of a run; `run`: what they say of it, and to whom; `frames`: one event
//!   as bytes;
//! - `activity`: what is told while a provider is silent;
//! - `faults`: errors, before a run and in it.

use throughline_canonical::{Delta, Event, Fault, Loss, Lossy, Request};

use crate::dialects::shared::losses::lost_part;
use crate::dialects::{ClientDialect, Operation, ReplyIdentity, ReplyWriter, RequestParts};

mod activity;
mod client_messages;
mod client_reply;
mod client_request;
mod content;
mod errors;
mod frames;
mod interrupts;
mod run;
mod unanswered;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ag_ui";

const PATH: &str = "/ag-ui";

/// What the ids of reasoning that its maker encrypted begin with. They come back with the message, whose
/// content is empty as that of other reasoning may be.
const REDACTED: &str = "redacted_";

/// The member of a message's metadata that is ours. What stands there comes back with the message.
const METADATA: &str = "throughline";
/// In it: the model declined in these words.
const REFUSAL: &str = "refusal";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgUi;

impl ClientDialect for AgUi {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operation(&self, path: &str) -> Option<Operation> {
        pinned(path).map(|_| Operation::Generate)
    }

    fn path_for(&self, _: &str) -> String {
        PATH.to_owned()
    }

    fn forget_own_members(&self, request: &mut Request) {
        // All of them speak to us.
        request.extra.remove(NAME);
    }

    fn stream_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("x-accel-buffering", "no")]
    }

    fn read_request(&self, asked: &RequestParts<'_>) -> Result<Lossy<Request>, Fault> {
        client_request::read(asked)
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::BlockDelta { delta: Delta::Citation(_), .. } => {
                Some(Loss::of_part("citations", "no_word"))
            }
            Event::EndExplained(_) => None,
            event => lost_part(event, NAME),
        }
    }

    fn default_show(&self) -> bool {
        true
    }

    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, identity))
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }
}

/// The backend in a path of this dialect, `/ag-ui/{backend}`; empty if it names none. None for other paths.
fn pinned(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(PATH)?;
    match rest.strip_prefix('/') {
        Some(backend) if !backend.contains('/') => Some(backend),
        None if rest.is_empty() => Some(""),
        _ => None,
    }
}
