//! Reads the parts of a client's contents as blocks.
//!
//! A client that got a stream sends its chunks back, each as a part. Consecutive texts and thoughts
//! of the model are joined, up to a part with a signature, as in the reply reader. So both see the
//! same blocks.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};
use throughline_canonical::{Block, Fault, Loss, LossReason, LossSubject, Role, Source};

use super::super::names::{self, member, need, others};
use super::super::{NAME, omit};
use super::one_or_many;
use crate::dialects::shared::media::media_kind;
use crate::json::Node;

/// The data members of a part; it has one of them.
pub(crate) const KINDS: [&str; 9] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

/// Other known members of a part.
const BESIDE: [&str; 5] =
    ["thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata"];

/// The address of files in the Developer API.
pub(crate) const FILES: &str = "https://generativelanguage.googleapis.com/";

/// Reads the parts of one request, in order.
pub(crate) struct Parts<'l> {
    calls: Calls,
    losses: &'l mut Vec<Loss>,
}

impl<'l> Parts<'l> {
    /// Creates a reader for these contents. New ids do not repeat theirs.
    pub(crate) fn new(contents: &Value, losses: &'l mut Vec<Loss>) -> Self {
        Self { calls: Calls::new(contents), losses }
    }

    /// Reads a part and adds it to the blocks.
    pub(crate) fn read(
        &mut self,
        part: &Node<'_>,
        role: Role,
        blocks: &mut Vec<Block>,
    ) -> Result<(), Fault> {
        let members = part.object()?;
        let mut kinds = KINDS.into_iter().filter(|kind| member(part, kind).is_some());
        let kind = kinds.next();
        if kinds.next().is_some() {
            return Err(part.refuse("holds more than one kind of data"));
        }
        let thought = match member(part, "thought") {
            Some(thought) => thought.flag()?,
            None => false,
        };
        let signature = match member(part, "thoughtSignature") {
            Some(signature) => Some(signature.text()?).filter(|text| !text.is_empty()),
            None => None,
        };
        let signature = signature.map(str::to_owned);
        let opaque = |blocks: &mut Vec<Block>| {
            blocks.push(Block::Opaque {
                dialect: NAME.to_owned(),
                value: Value::Object(members.clone()),
            });
        };
        match kind {
            Some("text") => {
                let text = need(part, "text")?;
                let text = text.text()?;
                self.report_unknown(part);
                if thought {
                    push_thought(text, signature, blocks);
                } else {
                    push_text(text, signature, role, blocks);
                }
            }
            // The vocabulary has no thought or signed images.
            Some("inlineData" | "fileData") if thought || signature.is_some() => opaque(blocks),
            Some("inlineData" | "fileData") => {
                self.report_unknown(part);
                blocks.push(self.media(part)?);
            }
            Some("functionCall") => {
                let call = need(part, "functionCall")?;
                self.report_unknown(part);
                blocks.push(self.call(&call, signature)?);
            }
            Some("functionResponse") => {
                let response = need(part, "functionResponse")?;
                self.report_unknown(part);
                blocks.push(self.response(&response)?);
            }
            Some(kind) => {
                need(part, kind)?.object()?;
                opaque(blocks);
            }
            // A signature of an empty part, whose text the client dropped.
            None if signature.is_some() && others(part, &BESIDE).is_empty() => {
                if thought {
                    push_thought("", signature, blocks);
                } else {
                    push_text("", signature, role, blocks);
                }
            }
            None if others(part, &BESIDE).is_empty() => {
                return Err(part.refuse("holds no data"));
            }
            None => opaque(blocks),
        }
        Ok(())
    }

    fn omit_part(&mut self, part: LossSubject) {
        omit(self.losses, part, LossReason::NoWord);
    }

    /// Reports unknown members next to the data.
    fn report_unknown(&mut self, part: &Node<'_>) {
        for (name, lost) in [
            ("partMetadata", LossSubject::Member),
            ("mediaResolution", LossSubject::MediaSettings),
            ("videoMetadata", LossSubject::MediaSettings),
        ] {
            if member(part, name).is_some() {
                self.omit_part(lost);
            }
        }
        let known: Vec<&str> = KINDS.into_iter().chain(BESIDE).collect();
        if !others(part, &known).is_empty() {
            self.omit_part(LossSubject::Member);
        }
    }

    fn media(&mut self, part: &Node<'_>) -> Result<Block, Fault> {
        let text = |node: &Node<'_>, name: &str| match member(node, name) {
            Some(found) => found.text().map(|text| Some(text.to_owned())),
            None => Ok(None),
        };
        if let Some(data) = member(part, "inlineData") {
            data.object()?;
            let media_type = need(&data, "mimeType")?.text()?.to_owned();
            return Ok(Block::Media {
                kind: media_kind(&media_type),
                name: text(&data, "displayName")?,
                source: Source::Base64 {
                    media_type,
                    data: need(&data, "data")?.text()?.to_owned(),
                },
                detail: None,
            });
        }
        let file = need(part, "fileData")?;
        file.object()?;
        let url = need(&file, "fileUri")?.text()?.to_owned();
        let media_type = text(&file, "mimeType")?;
        let kind = media_kind(media_type.as_deref().unwrap_or_default());
        let source = if url.starts_with(FILES) {
            // The provider knows the type of its own files.
            Source::File { dialect: NAME.to_owned(), id: url }
        } else {
            Source::Url { url, media_type }
        };
        Ok(Block::Media { kind, source, name: text(&file, "displayName")?, detail: None })
    }

    fn call(&mut self, call: &Node<'_>, signature: Option<String>) -> Result<Block, Fault> {
        call.object()?;
        let name = need(call, "name")?.text()?.to_owned();
        let arguments = match member(call, "args") {
            Some(arguments) => Value::Object(arguments.object()?.clone()).to_string(),
            None => "{}".to_owned(),
        };
        if !others(call, &["id", "name", "args"]).is_empty() {
            self.omit_part(LossSubject::ToolCallSettings);
        }
        let id = self.calls.call(id(call)?, &name);
        Ok(Block::ToolCall { id, name, arguments, signature })
    }

    fn response(&mut self, response: &Node<'_>) -> Result<Block, Fault> {
        response.object()?;
        let name = need(response, "name")?.text()?.to_owned();
        let empty = Map::new();
        let output = member(response, "response");
        let members = match &output {
            Some(output) => output.object()?,
            None => &empty,
        };
        let (mut content, is_error) = answer(members);
        if let Some(parts) = member(response, "parts") {
            for part in one_or_many(&parts)? {
                part.object()?;
                self.report_unknown(&part);
                content.push(self.media(&part)?);
            }
        }
        let others = others(response, &["id", "name", "response", "parts"]);
        if others.values().any(|value| *value != Value::Bool(false)) {
            self.omit_part(LossSubject::ToolResultSettings);
        }
        let id = self.calls.response(id(response)?, &name);
        Ok(Block::ToolResult { id, name: Some(name), content, is_error })
    }
}

/// Reads a tool result: `output` alone is the result, `error` alone an error; anything else is a
/// result as a whole.
fn answer(members: &Map<String, Value>) -> (Vec<Block>, bool) {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut entries = members.iter();
    match (entries.next(), entries.next()) {
        (None, _) => (Vec::new(), false),
        (Some((key, value)), None) if key == "output" => (vec![Block::text(text(value))], false),
        (Some((key, value)), None) if key == "error" => {
            let message = text(value);
            let blank = message.is_empty();
            (if blank { Vec::new() } else { vec![Block::text(message)] }, true)
        }
        _ => (vec![Block::text(Value::Object(members.clone()).to_string())], false),
    }
}

fn id<'a>(node: &'a Node<'a>) -> Result<Option<&'a str>, Fault> {
    match member(node, "id") {
        Some(id) => Ok(Some(id.text()?).filter(|id| !id.is_empty())),
        None => Ok(None),
    }
}

fn push_text(text: &str, signature: Option<String>, role: Role, blocks: &mut Vec<Block>) {
    if role == Role::Assistant && signature.is_none() {
        if text.is_empty() {
            return;
        }
        if let Some(Block::Text { text: before, signature: None, .. }) = blocks.last_mut() {
            before.push_str(text);
            return;
        }
    }
    blocks.push(Block::Text { text: text.to_owned(), signature, citations: Vec::new() });
}

fn push_thought(text: &str, signature: Option<String>, blocks: &mut Vec<Block>) {
    if text.is_empty() && signature.is_none() {
        return;
    }
    if let Some(Block::Thinking { text: before, signature: unsigned @ None }) = blocks.last_mut() {
        before.push_str(text);
        *unsigned = signature;
        return;
    }
    blocks.push(Block::Thinking { text: text.to_owned(), signature });
}

/// Matches results to calls. Older models send no ids; then the name and the order decide.
#[derive(Debug, Default)]
struct Calls {
    made: usize,
    /// Ids in the contents, and ids of calls that were read.
    given: HashSet<String>,
    known: HashSet<String>,
    answered: HashSet<String>,
    /// Calls by name in order, and those with an id that we created.
    by_name: HashMap<String, [VecDeque<String>; 2]>,
}

impl Calls {
    fn new(contents: &Value) -> Self {
        let mut calls = Self::default();
        each(contents, &mut |content| {
            let Some(parts) = content.get("parts") else {
                return;
            };
            each(parts, &mut |part| {
                for (key, value) in part.as_object().into_iter().flatten() {
                    if (names::is(key, "functionCall") || names::is(key, "functionResponse"))
                        && let Some(id) = value.get("id").and_then(Value::as_str)
                    {
                        calls.given.insert(id.to_owned());
                    }
                }
            });
        });
        calls
    }

    fn make(&mut self) -> String {
        loop {
            let id = format!("call_{}", self.made);
            self.made += 1;
            if !self.given.contains(&id) {
                return id;
            }
        }
    }

    /// The id of a call.
    fn call(&mut self, given: Option<&str>, name: &str) -> String {
        let id = match given {
            Some(id) => id.to_owned(),
            None => self.make(),
        };
        self.known.insert(id.clone());
        let [all, made] = self.by_name.entry(name.to_owned()).or_default();
        all.push_back(id.clone());
        if given.is_none() {
            made.push_back(id.clone());
        }
        id
    }

    /// The id of the call that a result answers.
    fn response(&mut self, given: Option<&str>, name: &str) -> String {
        let id = match given {
            Some(id) if self.known.contains(id) => id.to_owned(),
            // An unknown id: perhaps its call had none.
            Some(id) => self.open(name, 1).unwrap_or_else(|| id.to_owned()),
            None => match self.open(name, 0) {
                Some(id) => id,
                None => self.make(),
            },
        };
        self.answered.insert(id.clone());
        id
    }

    /// The first call of this name without a result.
    fn open(&mut self, name: &str, queue: usize) -> Option<String> {
        let queue = self.by_name.get_mut(name)?.get_mut(queue)?;
        while let Some(id) = queue.pop_front() {
            if !self.answered.contains(&id) {
                return Some(id);
            }
        }
        None
    }
}

/// The elements of a list, or the single value in its place.
fn each(value: &Value, found: &mut dyn FnMut(&Value)) {
    match value {
        Value::Array(list) => list.iter().for_each(found),
        one => found(one),
    }
}
