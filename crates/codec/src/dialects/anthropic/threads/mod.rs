//! Message threads: a client creates a thread with a whole conversation and then continues it with
//! new messages only. Reads what a request says about its thread, puts the conversation before the
//! new messages, and reads from a reply what it adds ([`MessageReader`]).
//!
//! All contents are kept as JSON text. So a thinking block stays as the model made it, and the
//! same conversation is written with the same bytes in every turn.

pub(super) mod message;

use serde::{Deserialize, Serialize};
use throughline_canonical::{Fault, FaultKind};

use super::outline::Outline;
use super::prefix::{normalise, normalise_system};
use super::rewrite;
use crate::json::{Edits, Kind, Span, append_member, each_element, each_member, slice, text};

pub use message::{AddedMessage, MessageReader};

/// The member that names the thread.
pub(crate) const MEMBER: &str = "thread";
/// The code of an error about a request that a thread does not allow.
pub(crate) const UNSUPPORTED: &str = "thread_unsupported_request";
/// The stop reason after which a thread continues without a new message.
const PAUSED: &str = "pause_turn";
/// The first words of the line about billing that one client puts before its system text. It
/// repeats the line when it continues a thread.
const BILLING: &str = "x-anthropic-billing-header:";

/// What a request wants from its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThreadAction {
    /// Starts one with a whole conversation.
    Create,
    /// Adds to the one that ends in this message.
    Continue {
        /// The id of the message.
        previous: String,
    },
}

/// What a thread keeps from the request that created it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadBase {
    /// The name of the model.
    pub model: String,
    /// The JSON of `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The JSON of `tools`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
}

/// What one turn added to a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTurn {
    /// The messages of the client: the JSON of their list, without brackets.
    pub messages: String,
    /// The answer: the JSON of its `content`.
    pub content: String,
    /// Why the answer ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

impl ThreadTurn {
    /// Writes the messages of the turn, with a comma before each but the first of all.
    fn write(&self, out: &mut Vec<u8>) {
        push(out, self.messages.as_bytes());
        // A refusal may have no content, and providers reject an empty message.
        if !is_empty_list(self.content.as_bytes()) {
            push(out, br#"{"role":"assistant","content":"#);
            out.extend_from_slice(self.content.as_bytes());
            out.push(b'}');
        }
    }
}

/// A request that names a thread.
#[derive(Debug)]
pub struct ThreadRequest<'a> {
    body: &'a [u8],
    outline: Outline,
    /// What it wants.
    pub action: ThreadAction,
}

impl<'a> ThreadRequest<'a> {
    /// Whether a body may name a thread. Most do not, and this is fast.
    pub fn is_likely(body: &[u8]) -> bool {
        memchr::memmem::find(body, b"\"thread\"").is_some()
    }

    /// Reads a body that nests at most `depth` levels deep. `None` if it names no thread.
    pub fn read(body: &'a [u8], depth: usize) -> Result<Option<Self>, Fault> {
        let outline = Outline::read(body, depth)?;
        let Some(member) = &outline.thread else {
            return Ok(None);
        };
        let action = read_action(body, member)?;
        Ok(Some(Self { body, action, outline }))
    }

    /// Whether the client asks for a stream.
    pub fn streams(&self) -> bool {
        self.outline.stream
    }

    /// What the thread keeps from this request.
    pub fn base(&self) -> ThreadBase {
        let json = |span: &Option<Span>| Some(string(slice(self.body, span.as_ref()?)));
        let Outline { model, system, tools, .. } = &self.outline;
        ThreadBase {
            model: model.as_ref().map(|model| model.name.clone()).unwrap_or_default(),
            system: json(system),
            tools: json(tools),
        }
    }

    /// The messages: the JSON of their list, without brackets.
    pub fn messages(&self) -> String {
        let messages = &self.outline.messages;
        let (Some(first), Some(last)) = (messages.first(), messages.last()) else {
            return String::new();
        };
        string(slice(self.body, &(first.span.start..last.span.end)))
    }

    /// The request without its thread.
    pub fn without_thread(&self) -> Vec<u8> {
        self.without(&[MEMBER])
    }

    fn without(&self, members: &[&str]) -> Vec<u8> {
        let mut edits = Edits::default();
        match rewrite::remove_members(&mut edits, self.body, &self.outline, members) {
            true => edits.apply(self.body),
            false => b"{}".to_vec(),
        }
    }

    /// The request as a client that sends its whole conversation would write it.
    pub fn with_history<'t>(
        &self,
        base: &ThreadBase,
        turns: impl IntoIterator<Item = &'t ThreadTurn>,
    ) -> Vec<u8> {
        let mut messages = b"[".to_vec();
        turns.into_iter().for_each(|turn| turn.write(&mut messages));
        push(&mut messages, self.messages().as_bytes());
        messages.push(b']');
        let mut body = self.without(&[MEMBER, "system", "tools", "messages"]);
        for (name, json) in [
            ("system", base.system.as_deref().map(str::as_bytes)),
            ("tools", base.tools.as_deref().map(str::as_bytes)),
            ("messages", Some(messages.as_slice())),
        ] {
            if let Some(json) = json {
                let start = body.iter().position(|byte| *byte == b'{').unwrap_or_default();
                let end = body.trim_ascii_end().len();
                let mut edits = Edits::default();
                append_member(&mut edits, &body, &(start..end), name, json);
                body = edits.apply(&body);
            }
        }
        body
    }

    /// Checks that the request may continue a thread with this base whose last answer is `last`.
    pub fn check_continue(
        &self,
        base: &ThreadBase,
        last: Option<&ThreadTurn>,
    ) -> Result<(), Fault> {
        let own = self.base();
        let mut differing = Vec::new();
        if own.model != base.model {
            differing.push("model");
        }
        let mut repeated = None;
        let system = own.system.filter(|system| !is_billing_only(system.as_bytes()));
        for (name, own, kept, normal) in [
            ("system", &system, &base.system, normalised_system as fn(&str) -> Vec<u8>),
            ("tools", &own.tools, &base.tools, normalised),
        ] {
            let Some(own) = own.as_deref().filter(|own| !is_nothing(own.as_bytes())) else {
                continue;
            };
            match kept.as_deref().is_some_and(|kept| normal(kept) == normal(own)) {
                true => repeated = Some(name),
                false => differing.push(name),
            }
        }
        if !differing.is_empty() {
            let fields = differing.join(", ");
            return Err(mismatch(&fields));
        }
        if let Some(name) = repeated {
            return Err(Fault::at(
                name,
                "cannot be sent when a thread is continued: the thread keeps it",
            )
            .with_code(UNSUPPORTED));
        }
        let reason = last.and_then(|turn| turn.stop_reason.as_deref());
        if self.outline.messages.is_empty() && reason != Some(PAUSED) {
            return Err(Fault::at(
                "messages",
                format!("at least one message is required, except after stop reason `{PAUSED}`"),
            ));
        }
        Ok(())
    }
}

fn mismatch(fields: &str) -> Fault {
    Fault::at(
        MEMBER,
        format!(
            "the request does not fit its thread, differing field(s): {fields}; send the whole \
             conversation and create another thread"
        ),
    )
    .with_code("thread_fingerprint_mismatch")
}

/// The error for a thread that cannot be continued here. Clients answer it with the whole
/// conversation.
pub fn not_found(previous: &str) -> Fault {
    let message = format!(
        "thread_not_found: no thread ends in message `{previous}`, or it has expired; send the \
         whole conversation and create another thread"
    );
    Fault::new(FaultKind::NotFound, message).with_code("thread_not_found")
}

/// The error for a message that another message follows already.
pub fn already_continued(previous: &str) -> Fault {
    Fault::at(
        "thread.previous_message_id",
        format!(
            "message `{previous}` has already been continued; continue from the newest message, \
             or send the whole conversation and create another thread"
        ),
    )
    .with_code("thread_already_continued")
}

/// The error for a message whose continuation is still being written.
pub fn in_flight(previous: &str) -> Fault {
    let message =
        format!("message `{previous}` is being continued by another request; wait for its end");
    Fault::new(FaultKind::Conflict, message).with_code("thread_continue_in_flight")
}

fn read_action(body: &[u8], member: &Span) -> Result<ThreadAction, Fault> {
    let (mut action, mut previous) = (None, None);
    let mut wrong = None;
    let read = each_member(body, member.start, |key, kind, span| match (key, kind) {
        (b"type", Kind::String) => action = Some(text(body, &span)),
        (b"previous_message_id", Kind::String) => previous = Some(text(body, &span).into_owned()),
        (b"previous_message_id", Kind::Null) => {}
        (key, _) => wrong = Some(String::from_utf8_lossy(key).into_owned()),
    });
    if read.is_err() {
        return Err(Fault::at(MEMBER, "expected an object"));
    }
    if let Some(key) = wrong {
        return Err(Fault::at(format!("{MEMBER}.{key}"), "unknown, or of the wrong type"));
    }
    let path = "thread.previous_message_id";
    match (action.as_deref(), previous) {
        (Some("create"), None) => Ok(ThreadAction::Create),
        (Some("create"), Some(_)) => Err(Fault::at(path, "only for `continue`")),
        (Some("continue"), Some(previous)) => Ok(ThreadAction::Continue { previous }),
        (Some("continue"), None) => Err(Fault::at(path, "required for `continue`")),
        _ => Err(Fault::at("thread.type", "must be `create` or `continue`")),
    }
}

/// Whether a system text is only the line about billing.
fn is_billing_only(system: &[u8]) -> bool {
    if system.starts_with(b"\"") {
        return text(system, &(0..system.len())).starts_with(BILLING);
    }
    let mut all = true;
    let mut check = |span: Span| {
        let mut bills = false;
        let read = each_member(system, span.start, |key, kind, span| {
            bills |=
                key == b"text" && kind == Kind::String && text(system, &span).starts_with(BILLING);
        });
        all &= bills && read.is_ok();
    };
    let read = each_element(system, 0, |kind, span| match kind {
        Kind::Object => check(span),
        _ => check(0..0),
    });
    read.is_ok() && all
}

/// Whether a system text or a list of tools has nothing in it.
fn is_nothing(json: &[u8]) -> bool {
    json == b"\"\"" || is_empty_list(json)
}

fn is_empty_list(json: &[u8]) -> bool {
    let inside = json.strip_prefix(b"[").and_then(|json| json.strip_suffix(b"]"));
    inside.is_some_and(|inside| inside.trim_ascii().is_empty())
}

fn normalised(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    normalise(json.as_bytes(), &mut out);
    out
}

fn normalised_system(json: &str) -> Vec<u8> {
    let mut out = Vec::new();
    normalise_system(json.as_bytes(), &mut out);
    out
}

/// Adds elements to a list that is being written.
fn push(out: &mut Vec<u8>, elements: &[u8]) {
    if elements.is_empty() {
        return;
    }
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
    out.extend_from_slice(elements);
}

/// JSON that was checked to be UTF-8.
fn string(json: &[u8]) -> String {
    String::from_utf8_lossy(json).into_owned()
}
