//! What the outlines of a dialect find in a request is what reading it to the last word finds: a block
//! has one name, whichever lane its request takes.

use throughline_canonical::{Block, Request, Role};
use throughline_codec::dialects::opaque_outline::{OpaqueEdit, OpaqueKind};
use throughline_codec::dialects::{CLIENT, RequestParts, Target, UPSTREAM};

use super::dialects::requests;

/// The variants of a dialect that write thinking, or signatures, each in its own place.
fn variants(dialect: &str) -> &'static [&'static str] {
    match dialect {
        "openai_chat" => &["openrouter", "litellm", "google", "mistral", "deepseek-v4"],
        _ => &[""],
    }
}

/// Thinking, and signatures of calls and texts, in order.
fn marks_of(request: &Request, dialect: &str) -> Vec<Block> {
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
            // In one dialect it is a word of the message, which anybody reads.
            Block::Text { signature, .. } if dialect == "gemini" => signed(signature),
            _ => None,
        })
        .collect()
}

fn without_marks(mut request: Request) -> Request {
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
fn outlines_find_what_is_read_and_take_out_nothing_else() {
    let mut found = 0;
    for upstream in UPSTREAM {
        let name = upstream.name();
        let client = CLIENT.iter().find(|client| client.name() == name).unwrap();
        for (variant, (capture, request)) in variants(name)
            .iter()
            .flat_map(|variant| requests().into_iter().map(move |request| (*variant, request)))
        {
            let target = Target { model: &request.model, variant };
            let written = upstream.write_request(&request, &target).value;
            let read = |body: &[u8]| {
                let asked = RequestParts { path: &written.path, query: &written.query, body };
                let places = upstream.passthrough().places(&asked);
                (client.read_request(&asked).map(|read| read.value), places)
            };
            let at = format!("{} by {name} {variant}", capture.name);
            let (Ok(said), Some(places)) = read(&written.body) else {
                continue;
            };
            let carried = places
                .marks
                .iter()
                .filter(|mark| mark.kind != OpaqueKind::Call || mark.signature.is_some());
            let blocks: Vec<_> = carried.map(|mark| mark.block(&written.body)).collect();
            assert_eq!(blocks, marks_of(&said, name), "{at}");
            assert_eq!(places.model_name(&written.body).as_deref(), Some(&*said.model), "{at}");
            assert_eq!(places.stream, said.stream, "{at}");
            found += blocks.len();

            let changes = vec![OpaqueEdit::Remove; places.marks.len()];
            let (edited, filled) = places.rewrite(&written.body, None, &changes);
            let edited = edited.unwrap_or_else(|| written.body.clone());
            let (rest, places) = read(&edited);
            let rest = rest.unwrap_or_else(|fault| panic!("{at}: {fault}"));
            assert_eq!(marks_of(&rest, name), [], "{at}");
            assert!(places.is_some(), "{at}");
            if filled == 0 && name != "gemini" {
                assert_eq!(without_marks(rest), without_marks(said), "{at}");
            }
        }
    }
    assert!(found > 20, "only {found} marks in all requests");
}
