//! Reads message content: a string or a list of parts.

use serde_json::Value;
use throughline_canonical::{Block, Fault, MediaKind, Source};

use crate::dialects::shared::fields::string;
use crate::dialects::shared::file_owner;
use crate::json::Node;

/// Reads a string or a list of parts.
pub(super) fn read(content: &Node<'_>) -> Result<Vec<Block>, Fault> {
    match content.value() {
        Value::String(text) => Ok(vec![Block::text(text.clone())]),
        Value::Array(_) => content.elements()?.map(|part| read_part(&part)).collect(),
        _ => Err(content.wrong("a string or a list")),
    }
}

/// Reads a text that may be split into parts.
pub(super) fn read_text(content: &Node<'_>) -> Result<String, Fault> {
    let mut text = String::new();
    for block in read(content)? {
        match block {
            Block::Text { text: more, .. } => text.push_str(&more),
            _ => return Err(content.refuse("may hold nothing but text")),
        }
    }
    Ok(text)
}

fn read_part(part: &Node<'_>) -> Result<Block, Fault> {
    part.object()?;
    let kind = part.need("type")?;
    let media = match kind.text()? {
        "text" => return Ok(Block::text(part.need("text")?.text()?)),
        "image" => MediaKind::Image,
        "audio" => MediaKind::Audio,
        "video" => MediaKind::Video,
        "document" => MediaKind::Document,
        "binary" => return read_binary(part),
        _ => {
            return Err(kind.refuse(
                "expected `text`, `image`, `audio`, `video`, `document` or the older `binary`",
            ));
        }
    };
    let source = part.need("source")?;
    source.object()?;
    Ok(Block::Media { kind: media, source: read_source(&source)?, name: None, detail: None })
}

fn read_source(source: &Node<'_>) -> Result<Source, Fault> {
    let kind = source.need("type")?;
    let value = source.need("value")?;
    let media_type = string(source, "mimeType")?;
    match kind.text()? {
        "data" => Ok(Source::Base64 {
            media_type: source.need("mimeType")?.text()?.to_owned(),
            data: value.text()?.to_owned(),
        }),
        "url" => Ok(read_url(value.text()?, media_type)),
        "file" => Ok(Source::File {
            dialect: file_owner::dialect_of(string(source, "provider")?.as_deref()),
            id: value.text()?.to_owned(),
        }),
        _ => Err(kind.refuse("expected `data`, `url` or `file`")),
    }
}

/// Reads the only media part of older clients.
fn read_binary(part: &Node<'_>) -> Result<Block, Fault> {
    let media_type = part.need("mimeType")?.text()?.to_owned();
    let kind = match media_type.split('/').next() {
        Some("image") => MediaKind::Image,
        Some("audio") => MediaKind::Audio,
        Some("video") => MediaKind::Video,
        _ => MediaKind::Document,
    };
    let source = match (part.get("data"), part.get("url"), part.get("id")) {
        (Some(data), ..) => Source::Base64 { media_type, data: data.text()?.to_owned() },
        (None, Some(url), _) => read_url(url.text()?, Some(media_type)),
        (None, None, Some(id)) => {
            Source::File { dialect: String::new(), id: id.text()?.to_owned() }
        }
        (None, None, None) => return Err(part.refuse("has none of `data`, `url` and `id`")),
    };
    Ok(Block::Media { kind, source, name: string(part, "filename")?, detail: None })
}

/// Reads an address. A `data:` address becomes inline data.
fn read_url(url: &str, media_type: Option<String>) -> Source {
    let inline = url.strip_prefix("data:");
    match inline.and_then(|data| data.split_once(";base64,")) {
        Some((kind, data)) => Source::Base64 { media_type: kind.to_owned(), data: data.to_owned() },
        None => Source::Url { url: url.to_owned(), media_type },
    }
}
