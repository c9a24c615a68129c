//! Paths where clients of all dialects ask about models.

use super::ollama::Endpoint;

/// Whether a path asks for models. Paths with a method, such as `:generateContent`, are turns.
pub fn is_about_models(path: &str) -> bool {
    if Endpoint::at(path) == Some(Endpoint::Tags) {
        return true;
    }
    ["/v1/models", "/v1beta/models", "/models"]
        .iter()
        .filter_map(|start| path.strip_prefix(start))
        .any(|rest| rest.is_empty() || rest.starts_with('/') && !rest.contains(':'))
}

/// The model that a path names. `None` if it asks for all.
pub fn model_in_path(path: &str) -> Option<&str> {
    let (_, name) = path.split_once("/models/")?;
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_about_models_unless_it_names_a_method() {
        for (path, about, name) in [
            ("/v1/models", true, None),
            ("/v1/models/", true, None),
            ("/v1/models/gpt-6", true, Some("gpt-6")),
            ("/v1beta/models/gemini-3", true, Some("gemini-3")),
            ("/models", true, None),
            ("/api/tags", true, None),
            ("/api/tag", false, None),
            ("/v1/models/openai/gpt-6", true, Some("openai/gpt-6")),
            ("/v1beta/models/gemini-3:countTokens", false, Some("gemini-3:countTokens")),
            ("/v1/modelsx", false, None),
        ] {
            assert_eq!(is_about_models(path), about, "{path}");
            assert_eq!(model_in_path(path), name, "{path}");
        }
    }
}
