//! The outline of a request finds the same thinking as its full reader, so that a block has the same
//! key on the passthrough lane and on the translate lane.

use throughline_canonical::{Block, Request, Role};
use throughline_codec::dialects::opaque_outline::{OpaqueEdit, OpaqueKind};
use throughline_codec::dialects::{CLIENT, RequestParts, Target, UPSTREAM};

use super::shared::requests;

/// Variants that write thinking or signatures to different members.
fn variants(dialect: &str) -> &'static [&'static str] {
    match dialect {
        "openai_chat" => &["openrouter", "litellm", "google", "mistral", "deepseek-v4"],
        _ => &[""],
    }
}

/// Thinking, and signatures of calls and texts, in order.
fn opaque_parts(request: &Request, dialect: &str) -> Vec<Block> {
    let signed = |signature: &Option<String>| {
        signature
            .clone()
            .map(|signature| Block::Thinking { text: String::new(), signature: Some(signature) })
    };
    let assistant = request.messages.iter().filter(|message| message.role == Role::Assistant);
    let blocks = assistant.flat_map(|message| &message.content);
    blocks
        .filter_map(|block| match block {
            Block::Thinking { .. } | Block::Redacted { .. } => Some(block.clone()),
            Block::ToolCall { signature, .. } => signed(signature),
            // Only Gemini treats the signature of a text as opaque.
            Block::Text { signature, .. } if dialect == "gemini" => signed(signature),
            _ => None,
        })
        .collect()
}

fn without_opaque_parts(mut request: Request) -> Request {
    for message in &mut request.messages {
        message
            .content
            .retain(|block| !matches!(block, Block::Thinking { .. } | Block::Redacted { .. }));
        for block in &mut message.content {
            if let Block::ToolCall { signature, .. } = block {
                *signature = None;
            }
        }
    }
    request
}

#[test]
fn outlines_find_and_remove_exactly_the_thinking() {
    let mut found = 0;
    for upstream in UPSTREAM {
        let name = upstream.name();
        let client = CLIENT.iter().find(|client| client.name() == name).unwrap();
        for (variant, (capture, shared)) in variants(name)
            .iter()
            .flat_map(|variant| requests().into_iter().map(move |request| (*variant, request)))
        {
            let target = Target { model: &shared.model, profile: upstream.profile(variant) };
            let written = upstream.write_request(&shared, &target).value;
            let read = |body: &[u8]| {
                let asked = RequestParts {
                    path: &written.path,
                    query: &written.query,
                    body,
                    ..Default::default()
                };
                let outline = upstream.passthrough().outline(&asked);
                (client.read_request(&asked).map(|accepted| accepted.request), outline)
            };
            let at = format!("{} by {name} {variant}", capture.name);
            let (Ok(request), Some(outline)) = read(&written.body) else {
                continue;
            };
            let carried = outline
                .parts
                .iter()
                .filter(|mark| mark.kind != OpaqueKind::Call || mark.signature.is_some());
            let blocks: Vec<_> = carried.map(|mark| mark.block(&written.body)).collect();
            assert_eq!(blocks, opaque_parts(&request, name), "{at}");
            assert_eq!(outline.model_name(&written.body).as_deref(), Some(&*request.model), "{at}");
            assert_eq!(outline.stream, request.stream, "{at}");
            found += blocks.len();

            let changes = vec![OpaqueEdit::Remove; outline.parts.len()];
            let (edited, filled) = outline.rewrite(&written.body, None, &changes);
            let edited = edited.unwrap_or_else(|| written.body.clone());
            let (rest, outline) = read(&edited);
            let rest = rest.unwrap_or_else(|fault| panic!("{at}: {fault}"));
            assert_eq!(opaque_parts(&rest, name), [], "{at}");
            assert!(outline.is_some(), "{at}");
            if filled == 0 && name != "gemini" {
                assert_eq!(without_opaque_parts(rest), without_opaque_parts(request), "{at}");
            }
        }
    }
    assert!(found > 20, "only {found} opaque parts in all requests");
}
