//! What a call returns, as blocks that go to a model, cut at a limit.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use throughline_canonical::{Block, MediaKind, Source};

/// What a tool returned.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    /// Texts and media.
    pub content: Vec<Block>,
    /// Whether the tool failed.
    pub is_error: bool,
}

impl ToolOutput {
    /// The output of a call that failed outside the tool.
    pub fn error(what: impl Into<String>) -> Self {
        Self { content: vec![Block::text(what)], is_error: true }
    }

    /// Reads a result. What a model cannot be given becomes a short text.
    pub(crate) fn read(result: CallToolResult) -> Self {
        let mut content: Vec<Block> = result.content.into_iter().map(block).collect();
        if content.is_empty() {
            // Servers repeat structured content as text if they want older clients to read it.
            content.extend(result.structured_content.map(|value| Block::text(value.to_string())));
        }
        Self { content, is_error: result.is_error == Some(true) }
    }

    /// The output with at most this many bytes of texts and media. A cut text says so.
    #[must_use]
    pub fn cut(self, limit: usize) -> Self {
        let mut left = limit;
        let content = self.content.into_iter().map(|block| cut(block, limit, &mut left)).collect();
        Self { content, ..self }
    }
}

fn block(content: ContentBlock) -> Block {
    match content {
        ContentBlock::Text(text) => Block::text(text.text),
        ContentBlock::Image(image) => media(MediaKind::Image, image.mime_type, image.data),
        ContentBlock::Audio(audio) => media(MediaKind::Audio, audio.mime_type, audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Block::text(text),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                match mime_type {
                    Some(kind) if kind.starts_with("image/") => media(MediaKind::Image, kind, blob),
                    Some(kind) if kind == "application/pdf" => {
                        media(MediaKind::Document, kind, blob)
                    }
                    kind => {
                        let kind = kind.unwrap_or_else(|| "unknown type".to_owned());
                        Block::text(format!("[resource {uri} ({kind}, {} bytes)]", blob.len()))
                    }
                }
            }
            _ => Block::text("[a resource of an unknown kind]"),
        },
        ContentBlock::ResourceLink(link) => {
            Block::text(format!("[resource {}: {}]", link.name, link.uri))
        }
        _ => Block::text("[content of an unknown kind]"),
    }
}

fn media(kind: MediaKind, media_type: String, data: String) -> Block {
    let source = Source::Base64 { media_type, data };
    Block::Media { kind, source, name: None, detail: None }
}

fn cut(block: Block, limit: usize, left: &mut usize) -> Block {
    let size = match &block {
        Block::Text { text, .. } => text.len(),
        Block::Media { source: Source::Base64 { data, .. }, .. } => data.len(),
        _ => 0,
    };
    if size <= *left {
        *left -= size;
        return block;
    }
    match block {
        Block::Text { mut text, .. } => {
            let end = (0..=*left).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            *left = 0;
            let missing = size - end;
            Block::text(format!(
                "{text}\n[cut: {missing} more bytes; a result may have {limit} bytes]"
            ))
        }
        _ => Block::text(format!(
            "[left out: media of {size} bytes; a result may have {limit} bytes]"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_is_cut_at_a_character_with_a_mark() {
        let image = || media(MediaKind::Image, "image/png".to_owned(), "AAAA".to_owned());
        let output = |content| ToolOutput { content, is_error: false };
        let content = vec![Block::text("äö"), image(), Block::text("x")];
        assert_eq!(output(content.clone()).cut(9), output(content.clone()));
        let cut = output(content).cut(3);
        let texts = [
            "ä\n[cut: 2 more bytes; a result may have 3 bytes]",
            "[left out: media of 4 bytes; a result may have 3 bytes]",
            "\n[cut: 1 more bytes; a result may have 3 bytes]",
        ];
        assert_eq!(cut.content, texts.map(Block::text));
    }
}
