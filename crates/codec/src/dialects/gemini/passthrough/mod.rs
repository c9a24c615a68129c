//! Keep-alives and errors in a stream that passes through, and the span of the model name.

use throughline_canonical::Fault;

use super::client_reply::KEEP_ALIVE;
use super::{Gemini, address, errors};
use crate::dialects::RequestParts;
use crate::dialects::opaque_outline::OpaqueOutline;
use crate::dialects::passthrough::{Passthrough, StreamInjector, close_event};
use crate::dialects::profile::Profile;
use crate::json::{Kind, Span, each_member};

mod outline;

impl Passthrough for Gemini {
    fn outline(&self, parts: &RequestParts<'_>) -> Option<OpaqueOutline> {
        let (model, method) = address::read(parts.path).ok()?;
        outline::read(parts.body, &model, method).ok()
    }

    fn path(&self, path: &str, model: &str, renamed: bool, profile: &Profile) -> String {
        let variant = profile.gemini();
        let as_it_came = !renamed && !variant.vertex && path.starts_with("/v1");
        match address::read(path) {
            Ok((_, method)) if !as_it_came => address::write(model, method, variant),
            _ => path.to_owned(),
        }
    }

    fn block_path(&self, content: usize, part: Option<usize>) -> String {
        match part {
            Some(part) => format!("contents.{content}.parts.{part}"),
            None => format!("contents.{content}"),
        }
    }

    fn model_of(&self, reply: &[u8]) -> Option<Span> {
        let mut name = None;
        each_member(reply, 0, |key, kind, span| {
            if matches!(key, b"modelVersion" | b"model_version") && kind == Kind::String {
                name = Some(span.start + 1..span.end - 1);
            }
        })
        .ok()?;
        name
    }

    fn injector(&self) -> Box<dyn StreamInjector> {
        Box::new(Injector)
    }
}

#[derive(Debug)]
struct Injector;

impl StreamInjector for Injector {
    fn keep_alive(&self) -> Vec<u8> {
        KEEP_ALIVE.to_vec()
    }

    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
        let error = errors::value(fault);
        let mut out = Vec::new();
        close_event(half, &error["error"].to_string(), &mut out);
        out.extend_from_slice(format!("data: {error}\n\n").as_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::UpstreamDialect;
    use crate::dialects::passthrough::ModelNameSpan;

    #[test]
    fn path_changes_only_for_a_renamed_model() {
        let odd = "/v1beta/models/g%2D3:streamGenerateContent";
        for (path, renamed, variant, expected) in [
            (odd, false, "", odd),
            (odd, true, "", "/v1beta/models/new:streamGenerateContent"),
            ("/models/g:countTokens", false, "", "/v1beta/models/new:countTokens"),
            (
                "/v1/models/g:generateContent",
                false,
                "vertex",
                "/publishers/google/models/new:generateContent",
            ),
        ] {
            assert_eq!(Gemini.path(path, "new", renamed, Gemini.profile(variant)), expected);
        }
    }

    #[test]
    fn model_name_is_found_in_every_chunk() {
        let piece = r#"{"candidates":[],"modelVersion":"g-3"}"#;
        assert_eq!(Gemini.model_name_span(b"", piece.as_bytes()), ModelNameSpan::Here(33..36));
        assert_eq!(Gemini.model_name_span(b"", b"{}"), ModelNameSpan::None);
    }
}
