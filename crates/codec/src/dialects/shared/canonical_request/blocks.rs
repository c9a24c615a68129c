//! Message content: a string or a list of blocks. Blocks may also be the lines of an earlier reply,
//! so that a client can send back a reply without understanding it.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, Fault, Loss, LossReason, LossSubject, MediaKind, Source};

use crate::dialects::shared::fields::{flag, string};
use crate::dialects::shared::losses::omit;
use crate::dialects::shared::media::{media_kind, read_url};
use crate::json::Node;

/// Reads the content of a message or of a tool result.
pub(crate) fn read(content: &Node<'_>, losses: &mut Vec<Loss>) -> Result<Vec<Block>, Fault> {
    match content.value() {
        Value::String(text) => return Ok(vec![Block::text(text.clone())]),
        Value::Array(_) => {}
        _ => return Err(content.wrong("a string or a list of blocks")),
    }
    let mut reader = BlockReader { blocks: Vec::new(), positions: HashMap::new(), losses };
    for block in content.elements()? {
        reader.block(&block)?;
    }
    Ok(reader.blocks)
}

struct BlockReader<'a> {
    blocks: Vec<Block>,
    /// Positions of the blocks of a reply, by the number in its lines.
    positions: HashMap<u64, usize>,
    losses: &'a mut Vec<Loss>,
}

impl BlockReader<'_> {
    fn block(&mut self, node: &Node<'_>) -> Result<(), Fault> {
        if let Value::String(text) = node.value() {
            self.blocks.push(Block::text(text.clone()));
            return Ok(());
        }
        node.object()?;
        let kind = node.need("type")?;
        let number = node.get("block").map(|number| number.count()).transpose()?;
        let block = match kind.text()? {
            "text" if flag(node, "refusal")? == Some(true) => {
                Block::Refusal { text: first_text(node, &["text", "content"])? }
            }
            "text" => Block::Text {
                text: first_text(node, &["text", "content"])?,
                signature: read_signature(node)?,
                citations: Vec::new(),
            },
            "thinking" => Block::Thinking {
                text: first_text(node, &["thinking", "text", "content"])?,
                signature: read_signature(node)?,
            },
            "thinking_signature" | "signature" => {
                let signature_text = first_text(node, &["signature", "content"])?;
                self.sign(signature_text, number);
                return Ok(());
            }
            "redacted_thinking" | "redacted" => {
                Block::Redacted { data: first_text(node, &["data", "content"])? }
            }
            "refusal" => Block::Refusal { text: first_text(node, &["text", "content"])? },
            "tool_call" => call(node)?,
            "tool_result" => self.result(node)?,
            "media" => media(node)?,
            "opaque" => Block::Opaque {
                dialect: node.need("dialect")?.text()?.to_owned(),
                value: node.need("value")?.value().clone(),
            },
            // Lines that are not content.
            "source" | "error" | "done" => return Ok(()),
            _ => {
                omit(self.losses, LossSubject::Block, LossReason::NoWord);
                return Ok(());
            }
        };
        let appends = flag(node, "append")? == Some(true);
        self.push(block, number, appends);
        Ok(())
    }

    /// Adds a block, or appends it to the block with the same number.
    fn push(&mut self, block: Block, number: Option<u64>, appends: bool) {
        let position = match number {
            Some(number) => self.positions.get(&number).copied(),
            None if appends => self.blocks.len().checked_sub(1),
            None => None,
        };
        let before = position.and_then(|position| self.blocks.get_mut(position));
        match (before, &block) {
            (Some(Block::Text { text, .. }), Block::Text { text: more, .. })
            | (Some(Block::Refusal { text }), Block::Refusal { text: more })
            | (Some(Block::Thinking { text, .. }), Block::Thinking { text: more, .. }) => {
                text.push_str(more);
            }
            _ => {
                self.positions.extend(number.map(|number| (number, self.blocks.len())));
                self.blocks.push(block);
            }
        }
    }

    /// Adds a detached signature to the block with this number, else to the previous block. If that
    /// block has a signature already, the signature becomes a block of its own.
    fn sign(&mut self, signature_text: String, number: Option<u64>) {
        let position = match number {
            Some(number) => self.positions.get(&number).copied(),
            None => self.blocks.len().checked_sub(1),
        };
        let before = position.and_then(|position| self.blocks.get_mut(position));
        if let Some(
            Block::Thinking { signature, .. }
            | Block::Text { signature, .. }
            | Block::ToolCall { signature, .. },
        ) = before
            && signature.is_none()
        {
            *signature = Some(signature_text);
            return;
        }
        let block = Block::Thinking { text: String::new(), signature: Some(signature_text) };
        self.positions.extend(number.map(|number| (number, self.blocks.len())));
        self.blocks.push(block);
    }

    fn result(&mut self, node: &Node<'_>) -> Result<Block, Fault> {
        let id = match node.get("tool_call_id") {
            Some(id) => id,
            None => node.need("id")?,
        };
        let content = match node.get("content") {
            None => Vec::new(),
            Some(content) => match content.value() {
                Value::String(_) | Value::Array(_) => read(&content, self.losses)?,
                // Tool results are often objects.
                other => vec![Block::text(other.to_string())],
            },
        };
        Ok(Block::ToolResult {
            id: id.text()?.to_owned(),
            name: string(node, "name")?,
            content,
            is_error: flag(node, "is_error")?.unwrap_or_default(),
        })
    }
}

/// The first of these members that is present.
fn first_text(node: &Node<'_>, names: &[&'static str]) -> Result<String, Fault> {
    let found = names.iter().find_map(|name| node.get(name));
    match (found, names.first()) {
        (Some(text), _) => text.text().map(str::to_owned),
        (None, Some(name)) => node.need(name)?.text().map(str::to_owned),
        (None, None) => Ok(String::new()),
    }
}

fn read_signature(node: &Node<'_>) -> Result<Option<String>, Fault> {
    Ok(string(node, "signature")?.filter(|signature_text| !signature_text.is_empty()))
}

fn call(node: &Node<'_>) -> Result<Block, Fault> {
    let arguments = match node.get("arguments") {
        None => "{}".to_owned(),
        Some(arguments) => match arguments.value() {
            Value::String(text) => text.clone(),
            Value::Object(_) => arguments.value().to_string(),
            _ => return Err(arguments.wrong("an object, or its text")),
        },
    };
    Ok(Block::ToolCall {
        id: node.need("id")?.text()?.to_owned(),
        name: node.need("name")?.text()?.to_owned(),
        arguments,
        signature: read_signature(node)?,
    })
}

/// Reads media. The source is a canonical object or an address.
fn media(node: &Node<'_>) -> Result<Block, Fault> {
    let media_type = string(node, "media_type")?;
    let source = match node.get("url") {
        Some(url) => {
            let source = read_url(url.text()?);
            source
                .ok_or_else(|| url.refuse("expected `data:<type>;base64,<data>` or an address"))?
        }
        None => source(&node.need("source")?)?,
    };
    let source = match (source, media_type) {
        (Source::Url { url, media_type: None }, media_type) => Source::Url { url, media_type },
        (source, _) => source,
    };
    let kind = match node.get("kind") {
        None => match &source {
            Source::Base64 { media_type, .. } => media_kind(media_type),
            Source::Url { media_type, .. } => media_kind(media_type.as_deref().unwrap_or("image")),
            Source::Text { .. } | Source::File { .. } => MediaKind::Document,
        },
        Some(kind) => match kind.text()? {
            "image" => MediaKind::Image,
            "document" => MediaKind::Document,
            "audio" => MediaKind::Audio,
            "video" => MediaKind::Video,
            _ => return Err(kind.refuse("expected `image`, `document`, `audio` or `video`")),
        },
    };
    Ok(Block::Media { kind, source, name: string(node, "name")?, detail: string(node, "detail")? })
}

fn source(node: &Node<'_>) -> Result<Source, Fault> {
    node.object()?;
    let kind = node.need("kind")?;
    let text = |name: &'static str| -> Result<String, Fault> {
        node.need(name)?.text().map(str::to_owned)
    };
    Ok(match kind.text()? {
        "base64" => Source::Base64 { media_type: text("media_type")?, data: text("data")? },
        "text" => Source::Text { text: text("text")? },
        "url" => Source::Url { url: text("url")?, media_type: string(node, "media_type")? },
        "file" => Source::File { dialect: text("dialect")?, id: text("id")? },
        _ => return Err(kind.refuse("expected `base64`, `text`, `url` or `file`")),
    })
}
