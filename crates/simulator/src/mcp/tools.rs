//! The tools: a useful one, and one for each way in which a call can go wrong.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{RpcError, Shared};

/// A red pixel.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

/// A tool: its name, what it does, and the names and types of its arguments.
type Tool = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const TOOLS: &[Tool] = &[
    ("add", "Adds two numbers.", &[("a", "number"), ("b", "number")]),
    ("echo", "Returns its text.", &[("text", "string")]),
    ("wait", "Never returns.", &[]),
    ("fail", "Fails.", &[]),
    ("crash", "Ends the server.", &[]),
    ("huge", "Returns this many bytes of text.", &[("bytes", "integer")]),
    ("picture", "Returns an image.", &[]),
    ("ask", "Asks a person for a name, and greets.", &[]),
    ("shed", "Asks to be called again once, for no reason.", &[]),
    ("grow", "Adds the tool `grown` to this server.", &[]),
];

/// The result of a call.
pub(super) enum Called {
    /// A result.
    Result(Value),
    /// It never returns.
    Never,
}

/// One page of the list.
pub(super) fn list(shared: &Shared, cursor: Option<&str>) -> Result<Value, RpcError> {
    let grown: &[Tool] = &[("grown", "Was added later.", &[])];
    let has_grown = shared.has_grown.load(Ordering::SeqCst);
    let all = TOOLS.iter().chain(grown.iter().filter(|_| has_grown));
    let first: usize = match cursor {
        None => 0,
        Some(cursor) => {
            cursor.parse().map_err(|_| RpcError::invalid(format!("unknown cursor `{cursor}`")))?
        }
    };
    let all: Vec<Value> = all.map(describe).collect();
    let page = shared.options.page.max(1);
    let shown: Vec<Value> = all.iter().skip(first).take(page).cloned().collect();
    let mut result = json!({"tools": shown});
    if first + page < all.len() {
        result["nextCursor"] = (first + page).to_string().into();
    }
    Ok(result)
}

fn describe((name, about, arguments): &Tool) -> Value {
    let mut properties = json!({});
    for (argument, kind) in *arguments {
        properties[*argument] = json!({"type": kind});
    }
    let required: Vec<&str> = arguments.iter().map(|(name, _)| *name).collect();
    json!({"name": name, "description": about, "inputSchema":
        {"type": "object", "properties": properties, "required": required}})
}

/// Runs a tool. `stateless` tools may ask a person.
#[allow(
    clippy::disallowed_methods,
    reason = "a tool that ends its server must do so without warning"
)]
pub(super) async fn call(
    shared: &Shared,
    params: &Value,
    stateless: bool,
) -> Result<Called, RpcError> {
    let name = params["name"].as_str().unwrap_or_default();
    let arguments = &params["arguments"];
    shared.record(name, arguments);
    let text = |text: String| {
        Ok(Called::Result(json!({"content": [{"type": "text", "text": text}], "isError": false})))
    };
    match name {
        "add" => match (arguments["a"].as_f64(), arguments["b"].as_f64()) {
            (Some(a), Some(b)) => text((a + b).to_string()),
            _ => failed("`a` and `b` must be numbers"),
        },
        "echo" => text(arguments["text"].as_str().unwrap_or_default().to_owned()),
        "wait" => Ok(Called::Never),
        "fail" => failed("this tool always fails"),
        "crash" => std::process::exit(3),
        "huge" => {
            let bytes = arguments["bytes"].as_u64().unwrap_or(1 << 20);
            text("x".repeat(usize::try_from(bytes).unwrap_or_default().min(256 << 20)))
        }
        "picture" => Ok(Called::Result(json!({"content": [
            {"type": "text", "text": "a red pixel"},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        ]}))),
        "ask" if stateless => Ok(Called::Result(ask(params))),
        "shed" if stateless => match params["requestState"].as_str() {
            Some("shed-1") => text("done".to_owned()),
            _ => Ok(Called::Result(json!({
                "resultType": "input_required", "requestState": "shed-1",
            }))),
        },
        "grow" => {
            shared.has_grown.store(true, Ordering::SeqCst);
            shared.changes.send_modify(|changes| *changes += 1);
            text("grown".to_owned())
        }
        "grown" if shared.has_grown.load(Ordering::SeqCst) => text("here".to_owned()),
        unknown => Err(RpcError::invalid(format!("unknown tool `{unknown}`"))),
    }
}

fn failed(why: &str) -> Result<Called, RpcError> {
    Ok(Called::Result(json!({"content": [{"type": "text", "text": why}], "isError": true})))
}

/// Asks for a name, or greets the one that was given. The state must come back as it was.
fn ask(params: &Value) -> Value {
    let answer = &params["inputResponses"]["who"];
    let greeting = |text: String, is_error: bool| json!({"content": [{"type": "text", "text": text}], "isError": is_error});
    if answer.is_null() {
        return json!({
            "resultType": "input_required",
            "requestState": "ask-1",
            "inputRequests": {"who": {
                "method": "elicitation/create",
                "params": {
                    "mode": "form",
                    "message": "What is your name?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    },
                },
            }},
        });
    }
    if params["requestState"] != "ask-1" {
        return greeting("the state is not the one that was sent".to_owned(), true);
    }
    match (answer["action"].as_str(), answer["content"]["name"].as_str()) {
        (Some("accept"), Some(name)) => greeting(format!("hello {name}"), false),
        (Some("decline" | "cancel"), _) => {
            greeting("the person does not want to be greeted".to_owned(), true)
        }
        _ => greeting("the answer does not follow the schema".to_owned(), true),
    }
}
