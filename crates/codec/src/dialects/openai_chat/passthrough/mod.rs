//! Keep-alives and errors in a stream that passes through, and the span of the model name.

use std::borrow::Cow;

use throughline_canonical::{Fault, Lossy};

use super::detail_meta::DetailMeta;
use super::{OpenAiChat, errors};
use crate::dialects::RequestParts;
use crate::dialects::opaque_outline::{self, OpaqueOutline};
use crate::dialects::passthrough::{Passthrough, StreamInjector, close_event};
use crate::dialects::profile::Profile;
use crate::dialects::shared::keep_alive;
use crate::json::{Kind, Span, find_member};

mod complete;
mod outline;

impl Passthrough for OpenAiChat {
    fn outline(&self, parts: &RequestParts<'_>) -> Option<OpaqueOutline> {
        outline::read(parts.body).ok()
    }

    fn path(&self, _: &str, _model: &str, _renamed: bool, profile: &Profile) -> String {
        profile.chat().path.to_owned()
    }

    fn refuses(&self, part: &opaque_outline::OpaquePart, profile: &Profile) -> bool {
        part.beside && profile.chat().refuses_reasoning
    }

    fn complete(&self, body: &[u8], profile: &Profile) -> Lossy<Option<Vec<u8>>> {
        complete::write(body, profile.chat())
    }

    fn block_path(&self, message: usize, _: Option<usize>) -> String {
        // Several members of a message may repeat the reasoning, so the path names the message.
        format!("messages.{message}")
    }

    fn raw_signature<'s>(&self, signature: &'s str) -> Cow<'s, str> {
        match signature.starts_with('{') {
            true => DetailMeta::unpack(signature).signature.into(),
            false => signature.into(),
        }
    }

    fn model_of(&self, reply: &[u8]) -> Option<Span> {
        let name = find_member(reply, 0, b"model", Kind::String).ok()??;
        Some(name.start + 1..name.end - 1)
    }

    fn injector(&self) -> Box<dyn StreamInjector> {
        Box::new(Injector)
    }
}

#[derive(Debug)]
struct Injector;

impl StreamInjector for Injector {
    fn keep_alive(&self) -> Vec<u8> {
        keep_alive::COMMENT.to_vec()
    }

    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
        let error = errors::object(fault).to_string();
        let mut out = Vec::new();
        close_event(half, &error, &mut out);
        let event = format!("data: {{\"error\":{error}}}\n\ndata: [DONE]\n\n");
        out.extend_from_slice(event.as_bytes());
        out
    }
}
