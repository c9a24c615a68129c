//! The model and the method in the path.

use throughline_canonical::{Fault, FaultKind};

use super::Variant;
use crate::dialects::shared::segments::{decode, encode};

/// The method in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Generate a whole reply.
    Generate,
    /// Generate a streamed reply.
    Stream,
    /// Count tokens.
    Count,
}

impl Method {
    const ALL: [Self; 3] = [Self::Generate, Self::Stream, Self::Count];

    /// The name of the method in a path.
    pub fn word(self) -> &'static str {
        match self {
            Self::Generate => "generateContent",
            Self::Stream => "streamGenerateContent",
            Self::Count => "countTokens",
        }
    }
}

/// Reads a path: the model name and the method.
///
/// Accepts `/v1beta/models/{model}:generateContent`, the same under `/v1` or without a version, and
/// the long paths of Vertex. The part before the model collection does not matter.
pub fn read(path: &str) -> Result<(String, Method), Fault> {
    let wrong = |why: &str| Fault::new(FaultKind::NotFound, format!("path: {why}"));
    let (resource, word) =
        path.rsplit_once(':').ok_or_else(|| wrong("expected `/models/{model}:{method}`"))?;
    let method = Method::ALL
        .into_iter()
        .find(|method| method.word() == word)
        .ok_or_else(|| wrong(&format!("`{word}` is no method that is served")))?;
    let model = if let Some(model) = after_collection(resource, "models/") {
        model.to_owned()
    } else {
        // Tuned models and endpoints keep the name of their collection.
        COLLECTIONS
            .into_iter()
            .find_map(|collection| {
                Some(format!("{collection}{}", after_collection(resource, collection)?))
            })
            .ok_or_else(|| wrong("names no model"))?
    };
    let model = decode(&model);
    if model.is_empty() || model.ends_with('/') {
        return Err(wrong("names no model"));
    }
    Ok((model, method))
}

/// The text after the name of a collection, at the start of a path segment.
fn after_collection<'a>(resource: &'a str, collection: &str) -> Option<&'a str> {
    if let Some(rest) = resource.strip_prefix(collection) {
        return Some(rest);
    }
    let mut from = 0;
    while let Some(found) = resource[from..].find(collection) {
        let at = from + found;
        if resource[..at].ends_with('/') {
            return resource.get(at + collection.len()..);
        }
        from = at + collection.len();
    }
    None
}

/// Whether a query asks for server-sent events.
pub fn wants_events(query: &str) -> bool {
    query
        .split('&')
        .any(|pair| matches!(pair.split_once('='), Some(("alt" | "$alt" | "%24alt", "sse"))))
}

/// Collections whose names are part of the model name.
const COLLECTIONS: [&str; 2] = ["tunedModels/", "endpoints/"];

/// Writes the path for a model, whose name stays one segment.
///
/// On Vertex, a bare name follows a base address that ends in the project and the location (or in
/// the version, if a key stands for the project). A name that starts with `projects/` is complete,
/// and one with `publishers/` has several segments.
pub fn write(model: &str, method: Method, variant: Variant) -> String {
    let name = model.strip_prefix('/').unwrap_or(model);
    let name = name.strip_prefix("models/").unwrap_or(name);
    let collection = COLLECTIONS.into_iter().find(|collection| name.starts_with(collection));
    let project = variant.vertex && name.starts_with("projects/");
    let publisher = variant.vertex && name.starts_with("publishers/");
    let mut path = String::from(match (variant.vertex, collection) {
        (true, _) if project => "/v1beta1/",
        (true, Some(_)) => "/",
        (true, None) if publisher => "/",
        (true, None) => "/publishers/google/models/",
        (false, Some(_)) => "/v1beta/",
        (false, None) => "/v1beta/models/",
    });
    if project || publisher {
        for (index, segment) in name.split('/').enumerate() {
            if index > 0 {
                path.push('/');
            }
            encode(segment, &mut path);
        }
    } else {
        let collection = collection.unwrap_or_default();
        path.push_str(collection);
        encode(name.strip_prefix(collection).unwrap_or(name), &mut path);
    }
    path.push(':');
    path.push_str(method.word());
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::UpstreamDialect;
    use crate::dialects::gemini::Gemini;

    #[test]
    fn every_client_path_names_its_model() {
        let long = "/v1beta1/projects/p/locations/us/publishers/google/models";
        for (path, model, method) in [
            ("/v1beta/models/g:generateContent", "g", Method::Generate),
            ("/v1/models/g:streamGenerateContent", "g", Method::Stream),
            ("/models/g:countTokens", "g", Method::Count),
            ("models/g:countTokens", "g", Method::Count),
            (&format!("{long}/g-2.5:streamGenerateContent"), "g-2.5", Method::Stream),
            ("/v1beta/models/qwen3:8b:generateContent", "qwen3:8b", Method::Generate),
            ("/v1beta/models/qwen3%3A8b:generateContent", "qwen3:8b", Method::Generate),
            ("/v1beta/models/z/glm-5:generateContent", "z/glm-5", Method::Generate),
            ("/v1beta/tunedModels/t:generateContent", "tunedModels/t", Method::Generate),
        ] {
            assert_eq!(read(path), Ok((model.to_owned(), method)), "{path}");
        }
    }

    #[test]
    fn unknown_path_is_not_found() {
        for (path, why) in [
            ("/v1beta/models/g", "path: expected `/models/{model}:{method}`"),
            ("/v1beta/models/g:embedContent", "path: `embedContent` is no method that is served"),
            ("/v1beta/models/:generateContent", "path: names no model"),
            ("/v1beta/supermodels/g:generateContent", "path: names no model"),
        ] {
            let fault = read(path).unwrap_err();
            assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::NotFound, why));
        }
    }

    #[test]
    fn written_path_reads_back() {
        for variant in ["", "vertex"] {
            for model in ["gemini-3-pro", "qwen3:8b", "a/b c", "tunedModels/x", "é%?#"] {
                if variant == "vertex" && model.starts_with("tuned") {
                    continue;
                }
                for method in Method::ALL {
                    let path = write(model, method, Gemini.profile(variant).gemini());
                    assert!(path.is_ascii() && !path.contains(['?', '#', ' ']), "{path}");
                    assert_eq!(read(&path), Ok((model.to_owned(), method)), "{path}");
                }
            }
        }
        let vertex = Gemini.profile("vertex").gemini();
        for (model, path) in [
            ("g", "/publishers/google/models/g:countTokens"),
            ("publishers/x/models/g", "/publishers/x/models/g:countTokens"),
            (
                "projects/p/locations/l/endpoints/4",
                "/v1beta1/projects/p/locations/l/endpoints/4:countTokens",
            ),
        ] {
            assert_eq!(write(model, Method::Count, vertex), path);
        }
        for (model, path) in [
            ("models/g", "/v1beta/models/g:countTokens"),
            ("z/g", "/v1beta/models/z/g:countTokens"),
            ("tunedModels/a/b", "/v1beta/tunedModels/a/b:countTokens"),
            ("g?x=1#y", "/v1beta/models/g%3Fx%3D1%23y:countTokens"),
            ("%2e%2e", "/v1beta/models/%252e%252e:countTokens"),
        ] {
            assert_eq!(write(model, Method::Count, Variant::default()), path);
        }
    }

    #[test]
    fn query_can_ask_for_events() {
        for (query, events) in [
            ("alt=sse", true),
            ("key=K&alt=sse", true),
            ("%24alt=sse", true),
            ("alt=json", false),
            ("", false),
            ("salt=sse", false),
        ] {
            assert_eq!(wants_events(query), events, "{query}");
        }
    }
}
