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

    /// The output with at most this many bytes of texts and media. A mark at its end says if it was cut.
    #[must_use]
    pub fn cut(self, limit: usize) -> Self {
        let is_empty = |block: &Block| matches!(block, Block::Text { text, .. } if text.is_empty());
        let all: usize = self.content.iter().map(size).sum();
        let (mut left, mut content) = (limit, Vec::new());
        for block in self.content.into_iter().filter(|block| !is_empty(block)) {
            let size = size(&block);
            if size <= left {
                left -= size;
                content.push(block);
                continue;
            }
            let kept = match block {
                Block::Text { mut text, .. } => {
                    text.truncate(text.floor_char_boundary(left));
                    text
                }
                _ => String::new(),
            };
            let missing = all - (limit - left) - kept.len();
            let note = format!("[cut: {missing} more bytes; a result may have {limit} bytes]");
            let line = if kept.is_empty() { note } else { format!("{kept}\n{note}") };
            content.push(Block::text(line));
            break;
        }
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

/// The bytes of a block that count.
fn size(block: &Block) -> usize {
    match block {
        Block::Text { text, .. } => text.len(),
        Block::Media { source: Source::Base64 { media_type, data }, .. } => {
            media_type.len() + data.len()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_is_cut_at_a_character_with_one_mark() {
        let image = || media(MediaKind::Image, "image/png".to_owned(), "AAAA".to_owned());
        let output = |content| ToolOutput { content, is_error: false };
        let content = vec![Block::text("äö"), image(), Block::text("x")];
        assert_eq!(
            output(content.clone()).cut(18),
            output(content.clone()),
            "9 bytes are a media type"
        );
        let cut = |limit| output(content.clone()).cut(limit).content;
        let mark = |text: &str, missing: usize, limit: usize| {
            Block::text(format!(
                "{text}[cut: {missing} more bytes; a result may have {limit} bytes]"
            ))
        };
        assert_eq!(cut(3), [mark("ä\n", 16, 3)]);
        assert_eq!(cut(16), [Block::text("äö"), mark("", 14, 16)]);
        assert_eq!(cut(17), [Block::text("äö"), image(), mark("", 1, 17)]);
    }

    #[test]
    fn output_of_many_blocks_holds_the_limit() {
        let media_type = format!("image/{}", "x".repeat(1_000));
        let image = media(MediaKind::Image, media_type, String::new());
        let blocks = [Block::text("0123456789"), image, Block::text("")];
        let content: Vec<Block> = blocks.iter().cycle().take(30_000).cloned().collect();
        let cut = ToolOutput { content, is_error: false }.cut(2_100);
        let bytes: usize = cut.content.iter().map(size).sum();
        assert!(bytes < 2_200 && cut.content.len() < 10, "{bytes} bytes in {:?}", cut.content);
    }
}
