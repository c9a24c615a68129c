//! Reads a front end's request: everything but the messages.

use throughline_canonical::{Fault, Request};

use self::messages::Regenerate;
use super::ContinuedMessage;
use crate::dialects::shared::fields::string;
use crate::dialects::shared::frontend_settings;
use crate::dialects::{Accepted, RequestParts};
use crate::json::{Node, read_object};

mod messages;
mod tool_parts;

/// Reads a request. Unknown members are ignored: `useChat` adds any members that the application
/// wants.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::root(&body);
    let mut losses = Vec::new();
    let mut request = Request {
        stream: true,
        thread: string(&root, "id")?.filter(|id| !id.is_empty()),
        ..Request::default()
    };
    // The body takes precedence over `forwardedProps`.
    if let Some(forwarded) = root.get("forwardedProps") {
        forwarded.object()?;
        frontend_settings::read(&forwarded, &mut request, &mut losses)?;
    }
    frontend_settings::read(&root, &mut request, &mut losses)?;
    let anew = match root.get("trigger") {
        None => Regenerate::Nothing,
        Some(trigger) => match trigger.text()? {
            "submit-message" => Regenerate::Nothing,
            "regenerate-message" => match string(&root, "messageId")? {
                Some(id) => Regenerate::Message(id),
                None => Regenerate::Last,
            },
            _ => {
                return Err(trigger.refuse("expected `submit-message` or `regenerate-message`"));
            }
        },
    };
    let messages = root.need("messages")?;
    let continued = messages::read(&messages, &anew, &mut request, &mut losses)?;
    Ok(Accepted {
        request,
        losses,
        left_out: Vec::new(),
        session: Box::new(ContinuedMessage(continued)),
    })
}
