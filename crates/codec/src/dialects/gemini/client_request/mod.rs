//! Reads a client's request. Unknown members are kept in `extra` or reported as a loss.

use serde_json::{Map, Value};
use throughline_canonical::{Fault, Loss, Message, Request, Role};

use self::parts::Parts;
use super::NAME;
use super::address::{self, Method};
use super::client_reply::Framing;
use super::names::{member, need, others};
use crate::dialects::{Accepted, RequestParts};
use crate::json::{Node, read_object};

pub mod parts;
pub mod schema;
pub mod settings;

/// Reads a request.
pub fn read(received: &RequestParts<'_>) -> Result<Accepted, Fault> {
    let (model, method) = address::read(received.path)?;
    let body = read_object(received.body, received.max_depth)?;
    let root = Node::root(&body);
    let inner = match method {
        // A count request has contents only, or a whole request inside this member.
        Method::Count => member(&root, "generateContentRequest"),
        Method::Generate | Method::Stream => None,
    };
    let mut request = Request { model, stream: method == Method::Stream, ..Request::default() };
    let mut losses = Vec::new();
    let extra = match &inner {
        Some(inner) => read_body(inner, &mut request, &mut losses)?,
        None => read_body(&root, &mut request, &mut losses)?,
    };
    if !extra.is_empty() {
        request.extra.insert(NAME.to_owned(), extra);
    }
    let framing = match method {
        Method::Stream if !address::wants_events(received.query) => Framing::List { begun: false },
        _ => Framing::Events,
    };
    Ok(Accepted { request, losses, left_out: Vec::new(), session: Box::new(framing) })
}

/// Reads a body into the request. Returns the unknown members.
fn read_body(
    body: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<Map<String, Value>, Fault> {
    const KNOWN: [&str; 7] = [
        "model",
        "contents",
        "systemInstruction",
        "tools",
        "toolConfig",
        "generationConfig",
        "generateContentRequest",
    ];
    body.object()?;
    // Parts of the address, not of the body.
    for name in ["alt", "method"] {
        if let Some(found) = body.get(name) {
            return Err(found.refuse("is no member of a request"));
        }
    }
    let mut extra = others(body, &KNOWN);
    if let Some(system) = member(body, "systemInstruction") {
        request.system = settings::read_system(&system)?;
    }
    read_contents(body, request, losses)?;
    if let Some(tools) = member(body, "tools") {
        for tool in one_or_many(&tools)? {
            settings::read_tool(&tool, &mut request.tools, losses)?;
        }
    }
    let mut keep = |name: &str, rest: Map<String, Value>| {
        if !rest.is_empty() {
            extra.insert(name.to_owned(), Value::Object(rest));
        }
    };
    if let Some(config) = member(body, "toolConfig") {
        keep("toolConfig", settings::read_tool_config(&config, request)?);
    }
    if let Some(config) = member(body, "generationConfig") {
        let rest = settings::read_generation(&config, request, losses)?;
        keep("generationConfig", rest);
    }
    Ok(extra)
}

fn read_contents(
    body: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let contents = need(body, "contents")?;
    let list = one_or_many(&contents)?;
    if list.is_empty() {
        return Err(contents.refuse("must not be empty"));
    }
    let mut reader = Parts::new(contents.value(), losses);
    for content in &list {
        content.object()?;
        let role = match member(content, "role") {
            None => Role::User,
            Some(role) => match role.text()? {
                "" | "user" | "function" => Role::User,
                "model" => Role::Assistant,
                _ => return Err(role.refuse("expected `user` or `model`")),
            },
        };
        let mut blocks = Vec::new();
        // An empty answer comes back without parts.
        if role != Role::Assistant || member(content, "parts").is_some() {
            let parts = need(content, "parts")?;
            let parts_list = one_or_many(&parts)?;
            if parts_list.is_empty() && role != Role::Assistant {
                return Err(parts.refuse("must not be empty"));
            }
            for part in &parts_list {
                reader.read(part, role, &mut blocks)?;
            }
        }
        request.messages.push(Message::new(role, blocks));
    }
    Ok(())
}

/// The elements of a list. The provider accepts a single object as a list of one.
pub(crate) fn one_or_many<'a>(node: &'a Node<'a>) -> Result<Vec<Node<'a>>, Fault> {
    if node.value().is_object() {
        return Ok(vec![*node]);
    }
    Ok(node.elements()?.collect())
}
